//! The digest of a derivation's rows, the same in whatever order they are made.
//!
//! It is the sum, modulo 2^256, of each row's own digest ([`crate::row_digest`]): addition forgets the order, and unlike
//! an exclusive or it does not forget a doubled row.

use std::fmt::Write as _;

use arrow::array::RecordBatch;

use crate::error::Result;
use crate::row_digest::row_digests;

/// A running sum of row digests.
#[derive(Debug, Clone, Default)]
pub(crate) struct ContentDigest {
    /// Four words, the lowest first.
    sum: [u64; 4],
    rows: u64,
}

impl ContentDigest {
    /// Adds the rows of a batch, by the named columns.
    pub(crate) fn add(&mut self, batch: &RecordBatch, columns: &[&str]) -> Result<()> {
        for digest in row_digests(batch, columns)? {
            self.add_row(&digest);
        }
        Ok(())
    }

    fn add_row(&mut self, digest: &[u8; 32]) {
        let mut carry = false;
        for (word, bytes) in self.sum.iter_mut().zip(digest.as_chunks::<8>().0) {
            let (partial, over) = word.overflowing_add(u64::from_le_bytes(*bytes));
            let (total, again) = partial.overflowing_add(u64::from(carry));
            *word = total;
            carry = over || again;
        }
        self.rows += 1;
    }

    /// Returns the number of rows added.
    pub(crate) fn rows(&self) -> u64 {
        self.rows
    }

    /// Returns the digest as text.
    pub(crate) fn text(&self) -> String {
        format!("sha256-sum:{}", hex(self.sum.iter().flat_map(|word| word.to_le_bytes())))
    }
}

/// Writes bytes as lower-case hex.
pub(crate) fn hex(bytes: impl IntoIterator<Item = u8>) -> String {
    bytes.into_iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        write!(text, "{byte:02x}").unwrap_or_default();
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(digests: &[[u8; 32]]) -> String {
        let mut content = ContentDigest::default();
        for digest in digests {
            content.add_row(digest);
        }
        content.text()
    }

    #[test]
    fn the_order_is_forgotten_and_a_doubled_row_is_not() {
        let (a, b) = ([7_u8; 32], [9_u8; 32]);
        assert_eq!(of(&[a, b]), of(&[b, a]));
        assert_ne!(of(&[a, b]), of(&[a, b, b, b]));
        assert_ne!(of(&[a, a]), of(&[]));
    }

    #[test]
    fn carries_run_through_and_the_last_is_dropped() {
        let mut one = [0_u8; 32];
        one[0] = 1;
        assert_eq!(of(&[[0xff; 32], one]), of(&[[0; 32]]));
    }
}
