//! The things used last, by the digest of their bytes.

use std::sync::Arc;

use crate::error::Result;

/// A small cache: what was used longest ago makes room.
#[derive(Debug)]
pub(super) struct Recent<T> {
    most: usize,
    /// The one used last stands last; none for what is not there.
    held: Vec<(String, Option<Arc<T>>)>,
}

impl<T> Recent<T> {
    pub(super) fn new(most: usize) -> Self {
        Self { most, held: Vec::new() }
    }

    /// Returns what stands under a digest, and makes it where it is not held.
    pub(super) fn get(&mut self, digest: &str, make: impl FnOnce() -> Result<Option<T>>) -> Result<Option<Arc<T>>> {
        let entry = match self.held.iter().position(|(known, _)| known == digest) {
            Some(place) => self.held.remove(place),
            None => (digest.to_owned(), make()?.map(Arc::new)),
        };
        if self.held.len() >= self.most {
            self.held.remove(0);
        }
        let found = entry.1.clone();
        self.held.push(entry);
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_used_longest_ago_makes_room() {
        let mut recent = Recent::new(2);
        let mut made = 0;
        for digest in ["a", "b", "a", "c", "a", "b"] {
            recent
                .get(digest, || {
                    made += 1;
                    Ok(Some(digest.to_owned()))
                })
                .unwrap();
        }
        // b made room for c, and was made again.
        assert_eq!(made, 4);
        assert_eq!(recent.held.len(), 2);
    }
}
