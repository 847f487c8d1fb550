//! The correctly rounded sum of a few numbers, without a wide accumulator wherever 128 bits hold it.

#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_precision_loss,
    reason = "exponents stay below 2100; the sum is rounded here, once"
)]

use super::superaccumulator::{Superaccumulator, scale};

/// Exponent of the lowest bit that a double can have.
const LOWEST_EXPONENT: i32 = -1074;
/// Bits of a sum of 128 bits that may be used: one is the sign, one is left.
const ROOM: u32 = 126;

/// Returns the double nearest to the sum of finite numbers; ties to even. No order of the numbers changes a bit of it.
pub(crate) fn total(values: impl Iterator<Item = f64> + Clone) -> f64 {
    match narrow(values.clone()) {
        Some(sum) => sum,
        None => wide(values.map(|value| (value, 1))),
    }
}

/// Returns the same of numbers that each count as often as their votes say.
pub(crate) fn total_of_votes(terms: impl Iterator<Item = (f64, u32)> + Clone) -> f64 {
    match narrow_of_votes(terms.clone()) {
        Some(sum) => sum,
        None => wide(terms),
    }
}

/// Takes a number apart: its significand, and the place of the significand's lowest bit above 2^-1074.
fn parts(value: f64) -> (u64, u32) {
    let bits = value.to_bits();
    let biased = (bits >> 52) as u32 & 0x7ff;
    let fraction = bits & ((1 << 52) - 1);
    if biased == 0 { (fraction, 0) } else { (fraction | (1 << 52), biased - 1) }
}

/// The bits that a sum can reach.
#[derive(Clone, Copy)]
struct Reach {
    low: u32,
    high: u32,
    count: u64,
}

impl Reach {
    const NOTHING: Self = Self { low: u32::MAX, high: 0, count: 0 };

    fn add(&mut self, value: f64, votes: u32) {
        let (significand, place) = parts(value);
        if significand != 0 {
            self.low = self.low.min(place + significand.trailing_zeros());
            self.high = self.high.max(place + 53);
        }
        self.count += u64::from(votes);
    }

    fn bits(self) -> u32 {
        self.high.saturating_sub(self.low) + (64 - self.count.leading_zeros())
    }

    /// Returns a number as a multiple of the lowest bit.
    fn units(self, value: f64) -> i128 {
        let (significand, place) = parts(value);
        if significand == 0 {
            return 0;
        }
        let units = match place.checked_sub(self.low) {
            Some(up) => i128::from(significand) << up,
            None => i128::from(significand >> (self.low - place)),
        };
        if value.is_sign_negative() { -units } else { units }
    }

    /// Rounds a sum to 53 bits; the power of two that follows is exact, for the unit is no smaller than the smallest double.
    fn rounded(self, sum: i128) -> f64 {
        let sum = i64::try_from(sum).map_or(sum as f64, |sum| sum as f64);
        scale(sum, self.low as i32 + LOWEST_EXPONENT)
    }
}

/// Sums in one integer of 128 bits; `None` where the numbers lie too far apart for that.
fn narrow(values: impl Iterator<Item = f64> + Clone) -> Option<f64> {
    let mut reach = Reach::NOTHING;
    values.clone().for_each(|value| reach.add(value, 1));
    if reach.high == 0 {
        return Some(0.0);
    }
    if reach.bits() < 64 {
        // Every part of the sum, too, fits 64 bits.
        let sum: i64 = values.map(|value| reach.units(value) as i64).sum();
        return Some(reach.rounded(i128::from(sum)));
    }
    (reach.bits() <= ROOM).then(|| reach.rounded(values.map(|value| reach.units(value)).sum()))
}

fn narrow_of_votes(terms: impl Iterator<Item = (f64, u32)> + Clone) -> Option<f64> {
    let mut reach = Reach::NOTHING;
    terms.clone().for_each(|(value, votes)| reach.add(value, votes));
    if reach.high == 0 {
        return Some(0.0);
    }
    let units = terms.map(|(value, votes)| reach.units(value) * i128::from(votes));
    (reach.bits() <= ROOM).then(|| reach.rounded(units.sum()))
}

fn wide(terms: impl Iterator<Item = (f64, u32)>) -> f64 {
    let mut sum = Superaccumulator::default();
    for (value, votes) in terms {
        if votes == 1 {
            sum.add(value);
            continue;
        }
        // value * votes in two doubles: exact, since votes have 32 bits. Halved where the product could leave the doubles.
        let count = f64::from(votes);
        let product = value * count;
        if product.is_finite() && (product == 0.0 || product.abs() > 1e-280) {
            sum.add(product);
            sum.add(value.mul_add(count, -product));
        } else {
            (0..votes).for_each(|_| sum.add(value));
        }
    }
    sum.to_f64()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn once(values: &[f64]) -> f64 {
        total(values.iter().copied())
    }

    #[test]
    fn sums_are_those_of_fsum() {
        // math.fsum of each.
        assert_eq!(once(&[]).to_bits(), 0.0f64.to_bits());
        assert_eq!(once(&[0.1; 10]).to_bits(), 1.0f64.to_bits());
        assert_eq!(once(&[1e16, 1.0, -1e16]).to_bits(), 1.0f64.to_bits());
        assert_eq!(once(&[1e300, 1e-300, -1e300]).to_bits(), 1e-300f64.to_bits());
        assert_eq!(once(&[5e-324, 5e-324]).to_bits(), 1e-323f64.to_bits());
        assert_eq!(once(&[-0.0]).to_bits(), 0.0f64.to_bits());
        assert!(once(&[1.7e308, 1.7e308]).is_infinite());
    }

    fn any_double() -> impl Strategy<Value = f64> {
        prop_oneof![
            Just(0.0),
            Just(1.0),
            -1.0..1.0f64,
            any::<f64>().prop_filter("finite", |value| value.is_finite() && value.abs() < 1e305),
        ]
    }

    proptest! {
        #[test]
        fn agrees_with_the_wide_sum_and_with_repeating(
            terms in proptest::collection::vec((any_double(), 0..5u32), 0..40),
        ) {
            let repeated: Vec<f64> = terms.iter().flat_map(|(value, votes)| vec![*value; *votes as usize]).collect();
            let expected = Superaccumulator::sum_of(repeated.iter().copied());
            prop_assert_eq!(total_of_votes(terms.iter().copied()).to_bits(), expected.to_bits());
            prop_assert_eq!(total(repeated.iter().copied()).to_bits(), expected.to_bits());
            prop_assert_eq!(wide(terms.iter().copied()).to_bits(), expected.to_bits());
        }

        #[test]
        fn order_leaves_no_trace(values in proptest::collection::vec(any_double(), 0..40)) {
            let reversed: Vec<f64> = values.iter().rev().copied().collect();
            prop_assert_eq!(once(&values).to_bits(), once(&reversed).to_bits());
        }
    }
}
