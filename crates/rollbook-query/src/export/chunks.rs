//! The bytes of a part in chunks, whose memory is used again once a chunk has left: fresh pages would cost more than the
//! copy into them.

use std::io::{Result, Write};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

/// Bytes of a chunk; stores that take objects in parts want at least 5 MiB each.
pub(super) const CHUNK_BYTES: usize = 8 << 20;

/// Chunks that are kept for the next.
const SPARE_MAX: usize = 8;

/// Memory of chunks that have left.
#[derive(Clone, Debug, Default)]
pub(super) struct Spare(Arc<Mutex<Vec<Vec<u8>>>>);

impl Spare {
    fn take(&self) -> Vec<u8> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        kept.unwrap_or_else(|| Vec::with_capacity(CHUNK_BYTES))
    }

    fn give(&self, mut chunk: Vec<u8>) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() < SPARE_MAX {
            chunk.clear();
            kept.push(chunk);
        }
    }
}

/// A chunk on its way, which gives its memory back when nobody reads it any more.
struct Lent {
    bytes: Vec<u8>,
    spare: Spare,
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.spare.give(std::mem::take(&mut self.bytes));
    }
}

/// What is written, cut into chunks.
#[derive(Debug)]
pub(super) struct Chunks {
    spare: Spare,
    open: Option<Vec<u8>>,
    full: Vec<Bytes>,
    written: usize,
}

impl Chunks {
    pub(super) fn new(spare: &Spare) -> Self {
        Self { spare: spare.clone(), open: None, full: Vec::new(), written: 0 }
    }

    /// Bytes written so far.
    pub(super) fn written(&self) -> usize {
        self.written
    }

    /// Takes the chunks that are full.
    pub(super) fn take_full(&mut self) -> Vec<Bytes> {
        std::mem::take(&mut self.full)
    }

    /// Takes all chunks, the last one however short.
    pub(super) fn finish(mut self) -> Vec<Bytes> {
        self.close();
        self.full
    }

    fn close(&mut self) {
        if let Some(bytes) = self.open.take() {
            self.full.push(Bytes::from_owner(Lent { bytes, spare: self.spare.clone() }));
        }
    }
}

impl Write for Chunks {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        let spare = &self.spare;
        let open = self.open.get_or_insert_with(|| spare.take());
        let taken = bytes.len().min(CHUNK_BYTES - open.len());
        open.extend_from_slice(&bytes[..taken]);
        if open.len() == CHUNK_BYTES {
            self.close();
        }
        self.written += taken;
        Ok(taken)
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_put_together_are_what_was_written_and_their_memory_is_used_again() {
        let spare = Spare::default();
        let mut chunks = Chunks::new(&spare);
        let mut text = (0..=250).collect::<Vec<u8>>().repeat(1 + 2 * CHUNK_BYTES / 250);
        text.truncate(2 * CHUNK_BYTES + 5);
        chunks.write_all(&text[..3]).unwrap();
        assert!(chunks.take_full().is_empty());
        chunks.write_all(&text[3..]).unwrap();
        assert_eq!(chunks.written(), text.len());
        let mut all = chunks.take_full();
        all.extend(chunks.finish());
        assert_eq!(all.iter().map(Bytes::len).collect::<Vec<_>>(), [CHUNK_BYTES, CHUNK_BYTES, 5]);
        assert_eq!(all.concat(), text);
        let places: Vec<_> = all.iter().map(|chunk| chunk.as_ptr()).collect();
        drop(all);
        let mut again = Chunks::new(&spare);
        again.write_all(b"x").unwrap();
        let again = again.finish();
        assert_eq!(again[0].as_ref(), b"x");
        assert!(places.contains(&again[0].as_ptr()));
    }

    #[test]
    fn nothing_written_is_no_chunk() {
        assert!(Chunks::new(&Spare::default()).finish().is_empty());
    }
}
