//! The exact sum against other exact sums.

#![expect(clippy::float_cmp, reason = "the sums are exact, so are the tests")]

use proptest::prelude::*;
use rstest::rstest;

use super::superaccumulator::Superaccumulator;

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
    for value in values {
        sum.add_integer(*value);
    }
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
        for value in gone.iter().chain(&kept) {
            sum.add(*value);
        }
        for value in &gone {
            sum.remove(*value);
        }
        prop_assert_eq!(sum.to_f64() + 0.0, fsum(&kept));
        prop_assert_eq!(sum.count(), kept.len() as u64);
    }
}
