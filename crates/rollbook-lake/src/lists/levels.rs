//! Levels of a page, as runs.
//!
//! ```text
//! repetition   0 1 1 1 1 0 1 1     a 0 begins a row
//! definition   3 3 3 3 3 3 2 3     the highest is a value, less is a null or an empty list
//! ```
//!
//! Parquet writes them as runs of equal levels, and groups of eight packed side by side. Format: Parquet, "RLE/Bit-Packing Hybrid".

use bytes::Bytes;
use parquet::errors::{ParquetError, Result};

/// Levels of one kind in one page.
#[derive(Debug)]
pub(super) struct Levels {
    data: Bytes,
    /// Byte at which the next run begins.
    at: usize,
    /// Bits of one level: 1 or 2.
    bits: usize,
    /// Levels of the packed run that are still packed, and the bit at which they begin.
    packed: usize,
    bit: usize,
    level: u8,
    count: usize,
}

impl Levels {
    /// Reads levels from 0 to `highest`, which is 3 at most.
    pub(super) fn new(data: Bytes, highest: i16) -> Self {
        let bits = if highest > 1 { 2 } else { 1 };
        Self { data, at: 0, bits, packed: 0, bit: 0, level: 0, count: 0 }
    }

    /// Returns the next level, and how many equal ones come at least.
    pub(super) fn peek(&mut self) -> Result<(u8, usize)> {
        while self.count == 0 {
            if self.packed == 0 {
                self.next_run()?;
            } else {
                self.unpack()?;
            }
        }
        Ok((self.level, self.count))
    }

    /// Goes on by so many levels, no more than [`Self::peek`] told.
    pub(super) fn take(&mut self, levels: usize) {
        self.count = self.count.saturating_sub(levels);
    }

    fn next_run(&mut self) -> Result<()> {
        let header = self.varint()?;
        if header & 1 == 1 {
            self.packed = (header >> 1) * 8;
            self.bit = self.at * 8;
            self.at += (header >> 1) * self.bits;
        } else {
            self.level = *self.data.get(self.at).ok_or_else(ended)?;
            self.count = header >> 1;
            self.at += 1;
        }
        Ok(())
    }

    /// Joins the equal levels that come next in a packed run. The last group may be cut short where the page ends.
    fn unpack(&mut self) -> Result<()> {
        self.level = self.packed_level().ok_or_else(ended)?;
        while self.packed > 0 && self.packed_level() == Some(self.level) {
            self.count += 1;
            self.packed -= 1;
            self.bit += self.bits;
        }
        Ok(())
    }

    fn packed_level(&self) -> Option<u8> {
        let byte = self.data.get(self.bit / 8)?;
        Some((byte >> (self.bit % 8)) & ((1 << self.bits) - 1))
    }

    fn varint(&mut self) -> Result<usize> {
        let mut value = 0;
        for shift in (0..35).step_by(7) {
            let byte = *self.data.get(self.at).ok_or_else(ended)?;
            self.at += 1;
            value |= usize::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(ParquetError::General("the length of a run of levels is no number".to_owned()))
    }
}

fn ended() -> ParquetError {
    ParquetError::General("the levels of a page end before its values do".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All runs of so many levels.
    fn runs(data: &[u8], highest: i16, levels: usize) -> Vec<(u8, usize)> {
        let mut read = Levels::new(Bytes::copy_from_slice(data), highest);
        let mut found = Vec::new();
        let mut left = levels;
        while left > 0 {
            let (level, count) = read.peek().unwrap();
            let count = count.min(left);
            read.take(count);
            left -= count;
            found.push((level, count));
        }
        found
    }

    #[test]
    fn runs_and_packed_groups_follow_one_another() {
        // A run of 100 ones (header 100 << 1 = 0xc8 0x01), then one packed group 0 1 1 1 0 1 1 1, lowest bit first.
        let data = [0xc8, 0x01, 1, 0x03, 0b1110_1110];
        assert_eq!(runs(&data, 1, 108), [(1, 100), (0, 1), (1, 3), (0, 1), (1, 3)]);
    }

    #[test]
    fn levels_of_two_bits_are_packed_four_to_a_byte() {
        // One group of eight: 3 3 2 0 and 1 3 3 3.
        assert_eq!(runs(&[0x03, 0b0010_1111, 0b1111_1101], 3, 8), [(3, 2), (2, 1), (0, 1), (1, 1), (3, 3)]);
    }

    #[test]
    fn levels_that_end_early_are_an_error() {
        let mut none = Levels::new(Bytes::new(), 1);
        assert!(none.peek().is_err());
        let mut cut = Levels::new(Bytes::from_static(&[0x05, 0xff]), 1);
        assert_eq!(cut.peek().unwrap(), (1, 8));
        cut.take(8);
        assert!(cut.peek().is_err());
        let mut endless = Levels::new(Bytes::from_static(&[0xff; 9]), 1);
        assert!(endless.peek().is_err());
    }
}
