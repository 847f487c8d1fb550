//! Numbers as the unevaluated sum of two doubles: about 106 bits, enough to take a square sum and a squared sum from each other.
//!
//! The algorithms are T. J. Dekker's and D. E. Knuth's (two-sum, two-product).

/// `high + low`, with `low` below the last place of `high`.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct DoubleDouble {
    /// The double nearest to the number.
    pub(crate) high: f64,
    /// The rest.
    pub(crate) low: f64,
}

/// Returns the exact product of two doubles.
pub(crate) fn product(a: f64, b: f64) -> DoubleDouble {
    let high = a * b;
    DoubleDouble { high, low: a.mul_add(b, -high) }
}

fn sum(a: f64, b: f64) -> DoubleDouble {
    let high = a + b;
    let part = high - a;
    DoubleDouble { high, low: (a - (high - part)) + (b - part) }
}

impl DoubleDouble {
    /// Returns the sum of two numbers.
    pub(crate) fn plus(self, other: Self) -> Self {
        let high = sum(self.high, other.high);
        let low = sum(self.low, other.low);
        let first = sum(high.high, high.low + low.high);
        sum(first.high, first.low + low.low)
    }

    /// Returns the number times a double.
    pub(crate) fn times(self, factor: f64) -> Self {
        let high = product(self.high, factor);
        sum(high.high, self.low.mul_add(factor, high.low))
    }

    /// Returns the number over a double, as a double.
    pub(crate) fn over(self, divisor: f64) -> f64 {
        let quotient = self.high / divisor;
        let rest = self.plus(product(quotient, -divisor));
        quotient + (rest.high + rest.low) / divisor
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_a_double_loses_is_kept() {
        // (2^53 + 1)^2 - 2^106 - 2^54 = 1.
        let square = product(9_007_199_254_740_992.0, 9_007_199_254_740_992.0);
        let one = square.plus(sum(1.0, 0.0)).plus(square.times(-1.0));
        assert_eq!((one.high, one.low), (1.0, 0.0));
    }

    proptest! {
        #[test]
        fn agrees_with_integers(a in -1_000_000_000_000i64..1_000_000_000_000, b in -1_000_000_000_000i64..1_000_000_000_000, n in 1..1000i32) {
            #[expect(clippy::cast_precision_loss, reason = "below 2^53")]
            let (x, y) = (a as f64, b as f64);
            let exact = i128::from(a) * i128::from(b) * i128::from(n);
            let double = product(x, y).times(f64::from(n));
            #[expect(clippy::cast_possible_truncation, reason = "both parts are integers")]
            let got = double.high as i128 + double.low as i128;
            prop_assert_eq!(got, exact);
            prop_assert!((double.over(f64::from(n)) - x * y).abs() <= (x * y).abs() * f64::EPSILON);
        }
    }
}
