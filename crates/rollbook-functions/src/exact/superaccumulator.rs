//! A sum of doubles held as one wide integer.
//!
//! Every finite double is an integer multiple of 2^-1074, so a sum of doubles is an integer times 2^-1074, of about 2,100 bits at most. It is
//! held in signed 64-bit chunks that carry 32 bits each, and only the chunks that values reached are kept:
//!
//! ```text
//! chunk        low        low + 1     low + 2   …       chunk i weighs 2^(32 i - 1074)
//!            [ i64 ]      [ i64 ]     [ i64 ]           a double of 53 bits touches chunks i and i + 1
//! ```
//!
//! An addition leaves at most 2^52 in a chunk, so carries are due only every thousand additions. The integer is exact, therefore the order of
//! additions, their grouping into partial sums and taking values back out cannot be seen in the result; it is rounded once, at the end, to
//! the nearest double, ties to even. The design is R. Neal's small superaccumulator (arXiv 1505.05571).

#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_precision_loss,
    reason = "chunk numbers stay below 100, significands below 2^53, and a count beyond 2^53 may be rounded"
)]

/// Bits that a chunk carries.
const CHUNK_BITS: usize = 32;
/// The lower half of a chunk.
const CHUNK_MASK: i64 = 0xffff_ffff;
/// Exponent of the lowest bit of chunk 0.
const LOWEST_EXPONENT: i32 = -1074;
/// Bits of the significand of a double.
const SIGNIFICAND_BITS: i32 = 53;
/// Chunks that 2^64 of the largest doubles fill.
const MAX_CHUNKS: usize = 68;
/// Additions after which carries are propagated; 2^11 would still be safe.
const CARRY_EVERY: u32 = 1024;

/// An exact sum with the number of values in it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Superaccumulator {
    count: u64,
    /// Values that are no finite number, counted so that they can be taken out again.
    nan: u64,
    infinite: u64,
    minus_infinite: u64,
    low: usize,
    chunks: Vec<i64>,
    pending: u32,
}

/// A sum rounded to 53 bits, with an exponent as wide as it needs.
struct Rounded {
    significand: f64,
    exponent: i32,
}

impl Superaccumulator {
    /// Returns the sum of some numbers.
    #[cfg(test)]
    pub(crate) fn sum_of(values: impl IntoIterator<Item = f64>) -> f64 {
        let mut sum = Self::default();
        for value in values {
            sum.add(value);
        }
        sum.to_f64()
    }

    /// Returns how many values are in the sum.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// Returns the bytes held beside the struct itself.
    pub(crate) fn heap_size(&self) -> usize {
        self.chunks.capacity() * size_of::<i64>()
    }

    /// Adds a number.
    pub(crate) fn add(&mut self, value: f64) {
        self.count += 1;
        self.accumulate(value, false);
    }

    /// Takes out a number that was added before.
    pub(crate) fn remove(&mut self, value: f64) {
        self.count = self.count.wrapping_sub(1);
        self.accumulate(value, true);
    }

    /// Adds an integer.
    pub(crate) fn add_integer(&mut self, value: i64) {
        self.count += 1;
        self.accumulate_integer(value, value < 0);
    }

    /// Takes out an integer that was added before.
    pub(crate) fn remove_integer(&mut self, value: i64) {
        self.count = self.count.wrapping_sub(1);
        self.accumulate_integer(value, value >= 0);
    }

    /// Adds another sum.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.count += other.count;
        self.nan += other.nan;
        self.infinite += other.infinite;
        self.minus_infinite += other.minus_infinite;
        let mut other = other.clone();
        other.propagate();
        self.propagate();
        for (at, chunk) in other.chunks.iter().enumerate() {
            let slot = self.slot(other.low + at);
            self.chunks[slot] += chunk;
        }
        self.propagate();
    }

    fn accumulate(&mut self, value: f64, negate: bool) {
        if !value.is_finite() {
            let counter = match value {
                value if value.is_nan() => &mut self.nan,
                value if value > 0.0 => &mut self.infinite,
                _ => &mut self.minus_infinite,
            };
            *counter = if negate { counter.wrapping_sub(1) } else { *counter + 1 };
            return;
        }
        let bits = value.to_bits();
        let biased = (bits >> 52) & 0x7ff;
        let fraction = bits & ((1 << 52) - 1);
        // A subnormal has the exponent of the smallest normal and no hidden bit.
        let significand = if biased == 0 { fraction } else { fraction | (1 << 52) };
        let position = usize::try_from(biased.max(1) - 1).unwrap_or(0);
        self.spread(u128::from(significand), position, value.is_sign_negative() != negate);
    }

    fn accumulate_integer(&mut self, value: i64, negative: bool) {
        self.spread(u128::from(value.unsigned_abs()), LOWEST_EXPONENT.unsigned_abs() as usize, negative);
    }

    /// Adds `magnitude` times 2^(position - 1074); magnitudes have at most 64 bits.
    fn spread(&mut self, magnitude: u128, position: usize, negative: bool) {
        if magnitude == 0 {
            return;
        }
        let shifted = magnitude << (position % CHUNK_BITS);
        let low = i64::try_from(shifted & 0xffff_ffff).unwrap_or(0);
        let high = shifted >> CHUNK_BITS;
        // The part above the first chunk has up to 63 bits for a wide integer; it is split so that chunks keep room for carries.
        let middle = i64::try_from(high & 0xffff_ffff).unwrap_or(0);
        let top = i64::try_from(high >> CHUNK_BITS).unwrap_or(0);
        let sign = if negative { -1 } else { 1 };
        let slot = self.slot(position / CHUNK_BITS);
        self.chunks[slot] += sign * low;
        let slot = self.slot(position / CHUNK_BITS + 1);
        self.chunks[slot] += sign * middle;
        if top != 0 {
            let slot = self.slot(position / CHUNK_BITS + 2);
            self.chunks[slot] += sign * top;
        }
        self.pending += 1;
        if self.pending >= CARRY_EVERY {
            self.propagate();
        }
    }

    /// Returns where a chunk lies, making room for it.
    fn slot(&mut self, chunk: usize) -> usize {
        if self.chunks.is_empty() {
            self.low = chunk;
        }
        if chunk < self.low {
            let missing = self.low - chunk;
            self.chunks.splice(0..0, std::iter::repeat_n(0, missing));
            self.low = chunk;
        }
        let slot = chunk - self.low;
        if slot >= self.chunks.len() {
            self.chunks.resize(slot + 1, 0);
        }
        slot
    }

    /// Carries, so that every chunk but the last lies in 0..2^32 and the last in -2^32..2^32.
    fn propagate(&mut self) {
        self.pending = 0;
        let mut carry = 0;
        let last = self.chunks.len().saturating_sub(1);
        for chunk in self.chunks.iter_mut().take(last) {
            let sum = *chunk + carry;
            *chunk = sum & CHUNK_MASK;
            carry = sum >> CHUNK_BITS;
        }
        if let Some(chunk) = self.chunks.last_mut() {
            *chunk += carry;
        }
        while let Some(top) = self.chunks.last_mut()
            && !(-CHUNK_MASK..=CHUNK_MASK).contains(top)
        {
            let carry = *top >> CHUNK_BITS;
            *top &= CHUNK_MASK;
            self.chunks.push(carry);
        }
    }

    /// Returns the sign and the chunks of the magnitude, first the lowest, without zeros at either end.
    fn magnitude(&self) -> (bool, usize, Vec<u32>) {
        let mut sum = self.clone();
        sum.propagate();
        // Two's complement carries make the sign that of the last chunk that is not zero.
        let negative = sum.chunks.iter().rev().find(|chunk| **chunk != 0).is_some_and(|chunk| *chunk < 0);
        if negative {
            sum.chunks.iter_mut().for_each(|chunk| *chunk = -*chunk);
            sum.propagate();
        }
        let first = sum.chunks.iter().position(|chunk| *chunk != 0).unwrap_or(0);
        let end = sum.chunks.iter().rposition(|chunk| *chunk != 0).map_or(first, |last| last + 1);
        let kept = sum.chunks.get(first..end).unwrap_or_default();
        (negative, sum.low + first, kept.iter().map(|chunk| u32::try_from(*chunk).unwrap_or(0)).collect())
    }

    fn rounded(&self) -> Rounded {
        let (negative, low, chunks) = self.magnitude();
        let Some(last) = chunks.len().checked_sub(1) else {
            return Rounded { significand: 0.0, exponent: 0 };
        };
        let chunk = |back: usize| last.checked_sub(back).map_or(0, |at| u128::from(chunks[at]));
        let window = (chunk(0) << 64) | (chunk(1) << 32) | chunk(2);
        let below = chunks.len() > 3 && chunks[..last - 2].iter().any(|chunk| *chunk != 0);
        let bits = CHUNK_BITS as i32;
        let window_exponent = bits * (low + last) as i32 - 2 * bits + LOWEST_EXPONENT;
        let length = 128 - window.leading_zeros() as i32;
        // The window has at least 65 bits, so there is something to drop; where the sum is subnormal only zeros are dropped.
        let shift = (length - SIGNIFICAND_BITS).max(LOWEST_EXPONENT - window_exponent);
        let mut significand = window >> shift;
        let dropped = window & ((1 << shift) - 1);
        let half = 1 << (shift - 1);
        if dropped > half || (dropped == half && (below || significand & 1 == 1)) {
            significand += 1;
        }
        let significand = significand as f64;
        Rounded { significand: if negative { -significand } else { significand }, exponent: window_exponent + shift }
    }

    /// Returns NaN or an infinity where a value that is no finite number decides the sum.
    fn decided(&self) -> Option<f64> {
        match (self.nan, self.infinite, self.minus_infinite) {
            (0, 0, 0) => None,
            (0, _, 0) => Some(f64::INFINITY),
            (0, 0, _) => Some(f64::NEG_INFINITY),
            _ => Some(f64::NAN),
        }
    }

    /// Returns the double nearest to the sum, ties to even; infinite where it lies beyond the doubles. An empty sum is 0.
    pub(crate) fn to_f64(&self) -> f64 {
        self.decided().unwrap_or_else(|| {
            let rounded = self.rounded();
            scale(rounded.significand, rounded.exponent)
        })
    }

    /// Returns the sum, rounded to a double, over the number of values; a sum beyond the doubles does not make it infinite.
    pub(crate) fn mean(&self) -> f64 {
        let count = self.count as f64;
        self.decided().unwrap_or_else(|| {
            let rounded = self.rounded();
            let sum = scale(rounded.significand, rounded.exponent);
            if sum.is_finite() { sum / count } else { scale(rounded.significand / count, rounded.exponent) }
        })
    }

    /// Returns the sum of integers; `None` beyond a bigint.
    pub(crate) fn to_i64(&self) -> Option<i64> {
        let (negative, low, chunks) = self.magnitude();
        let mut sum: i128 = 0;
        for (at, chunk) in chunks.iter().enumerate() {
            let exponent = i32::try_from(CHUNK_BITS * (low + at)).ok()? + LOWEST_EXPONENT;
            let part = i128::from(*chunk);
            sum += match exponent {
                exponent if exponent > 64 => return None,
                exponent if exponent < 0 => part >> exponent.unsigned_abs(),
                exponent => part << exponent.unsigned_abs(),
            };
        }
        i64::try_from(if negative { -sum } else { sum }).ok()
    }

    /// Writes the sum so that equal sums are equal bytes: counts, sign, first chunk, chunks.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let (negative, low, chunks) = self.magnitude();
        let mut bytes = Vec::with_capacity(37 + 4 * chunks.len());
        for counter in [self.count, self.nan, self.infinite, self.minus_infinite] {
            bytes.extend(counter.to_le_bytes());
        }
        bytes.push(u8::from(negative));
        bytes.extend((low as u32).to_le_bytes());
        bytes.extend(chunks.iter().flat_map(|chunk| chunk.to_le_bytes()));
        bytes
    }

    /// Reads what [`Self::to_bytes`] wrote; `None` for anything else.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (counters, rest) = bytes.split_at_checked(32)?;
        let mut counters = counters.chunks_exact(8).map(|word| word.try_into().map_or(0, u64::from_le_bytes));
        let (negative, rest) = rest.split_first()?;
        let (low, rest) = rest.split_first_chunk::<4>()?;
        let (words, []) = rest.as_chunks::<4>() else {
            return None;
        };
        let low = u32::from_le_bytes(*low) as usize;
        if low + words.len() > MAX_CHUNKS {
            return None;
        }
        let sign = if *negative == 0 { 1 } else { -1 };
        Some(Self {
            count: counters.next()?,
            nan: counters.next()?,
            infinite: counters.next()?,
            minus_infinite: counters.next()?,
            low,
            chunks: words.iter().map(|word| sign * i64::from(u32::from_le_bytes(*word))).collect(),
            pending: 0,
        })
    }
}

/// Returns `value` times 2^exponent. Exact wherever the result is a double of full precision.
pub(crate) fn scale(value: f64, exponent: i32) -> f64 {
    // Steps of at most 2^±1000 keep the factors normal; a step that leaves the doubles stays out.
    let mut value = value;
    let mut left = exponent;
    while left != 0 {
        let step = left.clamp(-1000, 1000);
        value *= f64::from_bits((i64::from(step) + 1023).unsigned_abs() << 52);
        left -= step;
    }
    value
}
