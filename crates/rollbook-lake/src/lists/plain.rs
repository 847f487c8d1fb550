//! The values of a page, there or still compressed.

use std::io::{self, BufReader, Cursor, Read};

use arrow::buffer::MutableBuffer;
use bytes::Bytes;
use parquet::errors::{ParquetError, Result};

/// Bytes of values that are decompressed at once.
const PIECE: usize = 1 << 20;

/// Values of a page, one after the other.
pub(super) enum Plain {
    Whole(Bytes),
    Coming(Decompressed),
}

/// A page that is decompressed as far as it is read: first its levels, where it compresses them, then its values.
pub(super) struct Decompressed {
    page: zstd::Decoder<'static, BufReader<Cursor<Bytes>>>,
    /// Bytes of values that are passed.
    passed: usize,
}

impl Decompressed {
    pub(super) fn new(page: Bytes) -> Result<Self> {
        Ok(Self { page: zstd::Decoder::new(Cursor::new(page))?, passed: 0 })
    }

    /// Reads levels that tell their own length.
    pub(super) fn levels(&mut self) -> Result<Bytes> {
        let mut length = [0; 4];
        self.page.read_exact(&mut length)?;
        let length = u64::from(u32::from_le_bytes(length));
        let mut levels = Vec::new();
        let read = (&mut self.page).take(length).read_to_end(&mut levels)?;
        if read as u64 == length { Ok(levels.into()) } else { Err(general("a page ends within its levels")) }
    }

    /// Appends `bytes` bytes of values from byte `from` on; none may lie before those that were read.
    pub(super) fn append(&mut self, from: usize, bytes: usize, into: &mut MutableBuffer) -> Result<()> {
        let between = from.checked_sub(self.passed).ok_or_else(|| general("a value of a page is read twice"))?;
        let skipped = io::copy(&mut (&mut self.page).take(between as u64), &mut io::sink())?;
        if skipped < between as u64 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        // Piece by piece: levels of a damaged page may promise any number of values.
        let mut left = bytes;
        while left > 0 {
            let (begin, piece) = (into.len(), left.min(PIECE));
            into.resize(begin + piece, 0);
            self.page.read_exact(&mut into.as_slice_mut()[begin..])?;
            left -= piece;
        }
        self.passed = from + bytes;
        Ok(())
    }
}

impl Plain {
    /// All values of a page of which none was read.
    pub(super) fn whole(&mut self) -> Result<&Bytes> {
        if let Self::Coming(coming) = self {
            let mut values = Vec::new();
            coming.page.read_to_end(&mut values)?;
            *self = Self::Whole(values.into());
        }
        match self {
            Self::Whole(values) => Ok(values),
            Self::Coming(_) => Err(general("a page is not whole")),
        }
    }
}

fn general(message: &str) -> ParquetError {
    ParquetError::General(message.to_owned())
}
