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

/// Bits that a chunk carries.
const CHUNK_BITS: usize = 32;
/// The lower half of a chunk.
const CHUNK_MASK: i64 = 0xffff_ffff;
/// Exponent of the lowest bit of chunk 0.
const LOWEST_EXPONENT: i32 = -1074;
/// Bits of the significand of a double.
const SIGNIFICAND_BITS: i32 = 53;
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
        let sign = if *negative == 0 { 1 } else { -1 };
        Some(Self {
            count: counters.next()?,
            nan: counters.next()?,
            infinite: counters.next()?,
            minus_infinite: counters.next()?,
            low: u32::from_le_bytes(*low) as usize,
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    /// Expected values are those of Python's `math.fsum`.
    #[rstest]
    #[case::nothing(&[], 0.0)]
    #[case::tenths(&[0.1; 10], 1.0)]
    #[case::cancels(&[1e100, 1.0, -1e100, 1e-100], 1.0)]
    #[case::cancels_to_zero(&[1e308, -1e308, 0.0], 0.0)]
    #[case::over_and_back(&[1.7e308, 1.7e308, -1.7e308], 1.7e308)]
    #[case::tie_to_even(&[9_007_199_254_740_992.0, 1.0], 9_007_199_254_740_992.0)]
    #[case::above_the_tie(&[9_007_199_254_740_992.0, 1.0, 1e-300], 9_007_199_254_740_994.0)]
    #[case::odd_tie(&[9_007_199_254_740_994.0, 1.0], 9_007_199_254_740_996.0)]
    #[case::negative(&[-1e16, -1.0, -1e-16], -1.000_000_000_000_000_2e16)]
    #[case::subnormal(&[5e-324, 5e-324], 1e-323)]
    #[case::subnormal_edge(&[2.225_073_858_507_201e-308, 5e-324], 2.225_073_858_507_201_4e-308)]
    fn sum_is_the_nearest_double(#[case] values: &[f64], #[case] expected: f64) {
        assert_eq!(Superaccumulator::sum_of(values.iter().copied()).to_bits(), expected.to_bits());
    }

    #[rstest]
    #[case::beyond(&[1.7e308, 1.7e308], f64::INFINITY)]
    #[case::infinity(&[1.0, f64::INFINITY], f64::INFINITY)]
    #[case::minus_infinity(&[f64::NEG_INFINITY, 1e308], f64::NEG_INFINITY)]
    fn sum_beyond_the_doubles_is_infinite(#[case] values: &[f64], #[case] expected: f64) {
        assert_eq!(Superaccumulator::sum_of(values.iter().copied()), expected);
    }

    #[test]
    fn infinities_of_both_signs_or_nan_give_nan() {
        assert!(Superaccumulator::sum_of([f64::INFINITY, f64::NEG_INFINITY]).is_nan());
        assert!(Superaccumulator::sum_of([1.0, f64::NAN]).is_nan());
    }

    #[test]
    fn mean_survives_a_sum_beyond_the_doubles() {
        let mut sum = Superaccumulator::default();
        (0..4).for_each(|_| sum.add(1.5e308));
        assert_eq!(sum.mean(), 1.5e308);
    }

    #[rstest]
    #[case(&[i64::MAX, 1, -2], Some(i64::MAX - 1))]
    #[case(&[i64::MAX, 1], None)]
    #[case(&[i64::MIN], Some(i64::MIN))]
    #[case(&[i64::MIN, -1], None)]
    #[case(&[], Some(0))]
    fn integers_are_exact_or_none(#[case] values: &[i64], #[case] expected: Option<i64>) {
        let mut sum = Superaccumulator::default();
        values.iter().for_each(|value| sum.add_integer(*value));
        assert_eq!(sum.to_i64(), expected);
    }

    #[test]
    fn many_additions_do_not_overflow_a_chunk() {
        let mut sum = Superaccumulator::default();
        (0..100_000).for_each(|_| sum.add(-(2f64.powi(53) - 1.0)));
        assert_eq!(sum.to_f64(), -(2f64.powi(53) - 1.0) * 100_000.0);
    }

    #[test]
    fn bytes_of_another_kind_are_refused() {
        assert_eq!(Superaccumulator::from_bytes(b"short"), None);
    }

    /// Shewchuk's partial sums, as Python's `math.fsum` has them: another exact algorithm.
    fn fsum(values: &[f64]) -> f64 {
        let mut partials: Vec<f64> = Vec::new();
        for value in values {
            let mut x = *value;
            let mut kept = Vec::new();
            for &partial in &partials {
                let (mut a, mut b) = (x, partial);
                if a.abs() < b.abs() {
                    std::mem::swap(&mut a, &mut b);
                }
                let high = a + b;
                let low = b - (high - a);
                if low != 0.0 {
                    kept.push(low);
                }
                x = high;
            }
            kept.push(x);
            partials = kept;
        }
        let mut high = partials.pop().unwrap_or(0.0);
        let mut low = 0.0;
        while let Some(partial) = partials.pop() {
            let x = high;
            high = x + partial;
            low = partial - (high - x);
            if low != 0.0 {
                break;
            }
        }
        let twice = low * 2.0;
        let rest = partials.last().copied().unwrap_or(0.0);
        if (low < 0.0 && rest < 0.0) || (low > 0.0 && rest > 0.0) {
            let x = high + twice;
            if twice == x - high {
                high = x;
            }
        }
        high + 0.0
    }

    fn numbers() -> impl Strategy<Value = Vec<f64>> {
        let number = prop_oneof![
            -1.0..1.0f64,
            (any::<i32>(), -300..300i32).prop_map(|(digits, exponent)| f64::from(digits) * 10f64.powi(exponent) / 1e10),
            any::<u64>().prop_map(|bits| f64::from_bits(bits & !(1 << 62))),
        ];
        proptest::collection::vec(number.prop_filter("finite", |value| value.is_finite()), 0..60)
    }

    proptest! {
        #[test]
        fn agrees_with_shewchuk(values in numbers()) {
            prop_assert_eq!(Superaccumulator::sum_of(values.iter().copied()) + 0.0, fsum(&values));
        }

        #[test]
        fn order_and_grouping_leave_no_trace(mut values in numbers(), cut in any::<proptest::sample::Index>()) {
            let whole = values.iter().fold(Superaccumulator::default(), |mut sum, value| { sum.add(*value); sum });
            values.reverse();
            let (left, right) = values.split_at(cut.index(values.len() + 1));
            let [mut a, b] = [left, right].map(|part| {
                let sum = part.iter().fold(Superaccumulator::default(), |mut sum, value| { sum.add(*value); sum });
                Superaccumulator::from_bytes(&sum.to_bytes()).unwrap()
            });
            a.merge(&b);
            prop_assert_eq!(a.to_bytes(), whole.to_bytes());
            prop_assert_eq!(a.to_f64().to_bits(), whole.to_f64().to_bits());
        }

        #[test]
        fn removing_undoes_adding(kept in numbers(), gone in numbers()) {
            let mut sum = Superaccumulator::default();
            gone.iter().chain(&kept).for_each(|value| sum.add(*value));
            gone.iter().for_each(|value| sum.remove(*value));
            prop_assert_eq!(sum.to_f64() + 0.0, fsum(&kept));
            prop_assert_eq!(sum.count(), kept.len() as u64);
        }
    }
}
