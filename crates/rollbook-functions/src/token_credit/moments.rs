//! Count, sum and sum of squares of many numbers, exact until the end.
//!
//! Squares of doubles leave the doubles, so numbers are kept in three classes, each scaled by a power of two:
//!
//! ```text
//! class    |x|                    held as
//! small    below 2^-300           x * 2^600
//! plain    in between, and 0      x
//! large    from 2^300 on          x * 2^-600
//! ```

use datafusion_common::{Result, internal_err};

use crate::double_double::{DoubleDouble, product};
use crate::exact::{Superaccumulator, scale};

/// Powers of two that the classes are scaled by.
const EXPONENTS: [i32; 3] = [-600, 0, 600];
/// Bounds between the classes: 2^-300 and 2^300.
const BOUNDS: [f64; 2] = [f64::from_bits((1023 - 300) << 52), f64::from_bits((1023 + 300) << 52)];

/// The sums of one class.
#[derive(Debug, Clone, Default)]
struct Class {
    sum: Superaccumulator,
    squares: Superaccumulator,
}

/// The sums of all numbers.
#[derive(Debug, Clone, Default)]
pub(super) struct Sums {
    classes: [Class; 3],
}

/// What the numbers come to; sums are scaled by 2^-exponent, squares by its square.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Moments {
    pub(super) count: u64,
    pub(super) exponent: i32,
    pub(super) sum: DoubleDouble,
    pub(super) squares: DoubleDouble,
}

impl Sums {
    /// Adds a finite number.
    pub(super) fn add(&mut self, value: f64) {
        let size = value.abs();
        let class = match size {
            size if size >= BOUNDS[1] => 2,
            size if size < BOUNDS[0] && size > 0.0 => 0,
            _ => 1,
        };
        let scaled = scale(value, -EXPONENTS[class]);
        let square = product(scaled, scaled);
        let class = &mut self.classes[class];
        class.sum.add(scaled);
        class.squares.add(square.high);
        class.squares.add(square.low);
    }

    /// Adds all numbers of another.
    pub(super) fn merge(&mut self, other: &Self) {
        for (class, other) in self.classes.iter_mut().zip(&other.classes) {
            class.sum.merge(&other.sum);
            class.squares.merge(&other.squares);
        }
    }

    /// Returns the bytes held beside the struct itself.
    pub(super) fn heap_size(&self) -> usize {
        self.classes.iter().map(|class| class.sum.heap_size() + class.squares.heap_size()).sum()
    }

    /// Writes the sums: each with its length before it.
    pub(super) fn to_bytes(&self) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        for sum in self.classes.iter().flat_map(|class| [&class.sum, &class.squares]) {
            let sum = sum.to_bytes();
            let Ok(length) = u32::try_from(sum.len()) else {
                return internal_err!("a sum of {} bytes", sum.len());
            };
            bytes.extend(length.to_le_bytes());
            bytes.extend(sum);
        }
        Ok(bytes)
    }

    /// Reads what [`Self::to_bytes`] wrote; `None` for anything else.
    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut rest = bytes;
        let mut sums = Self::default();
        for class in &mut sums.classes {
            for sum in [&mut class.sum, &mut class.squares] {
                let (length, tail) = rest.split_first_chunk::<4>()?;
                let (own, tail) = tail.split_at_checked(u32::from_le_bytes(*length) as usize)?;
                *sum = Superaccumulator::from_bytes(own)?;
                rest = tail;
            }
        }
        rest.is_empty().then_some(sums)
    }

    /// Returns what the numbers come to.
    pub(super) fn moments(&self) -> Moments {
        let count = self.classes.iter().map(|class| class.sum.count()).sum();
        let is_zero = |class: usize| self.classes[class].squares.to_f64() == 0.0;
        let largest = [2, 1, 0].into_iter().find(|class| !is_zero(*class)).unwrap_or(1);
        let exponent = EXPONENTS[largest];
        let mut moments = Moments { count, exponent, sum: DoubleDouble::default(), squares: DoubleDouble::default() };
        for (class, own) in self.classes.iter().zip(EXPONENTS).take(largest + 1) {
            let down = |number: DoubleDouble, by: i32| DoubleDouble {
                high: scale(number.high, by),
                low: scale(number.low, by),
            };
            moments.sum = moments.sum.plus(down(double_double(&class.sum), own - exponent));
            moments.squares = moments.squares.plus(down(double_double(&class.squares), 2 * (own - exponent)));
        }
        moments
    }
}

/// Returns a sum rounded twice: to the nearest double, and what that leaves.
fn double_double(sum: &Superaccumulator) -> DoubleDouble {
    let high = sum.to_f64();
    let mut rest = sum.clone();
    rest.remove(high);
    DoubleDouble { high, low: rest.to_f64() }
}

impl Moments {
    /// Returns the sum of the squared differences to a mean, scaled as squares are. What lies below the digits carried is 0.
    pub(super) fn squared_differences(&self, mean: f64) -> f64 {
        let count = self.count_as_double();
        let mean_squared = product(mean, mean).times(count);
        let differences = self.squares.plus(self.sum.times(-2.0 * mean)).plus(mean_squared);
        // 106 bits less those of the operations.
        if differences.high <= self.squares.high * f64::EPSILON * f64::EPSILON * 64.0 { 0.0 } else { differences.high }
    }

    /// Returns the count as a double.
    #[expect(clippy::cast_precision_loss, reason = "no batch has 2^53 tokens")]
    pub(super) fn count_as_double(&self) -> f64 {
        self.count as f64
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::float_cmp, reason = "equal numbers have exactly no spread")]

    use proptest::prelude::*;

    use super::*;

    fn moments(values: &[f64]) -> Moments {
        let mut sums = Sums::default();
        values.iter().for_each(|value| sums.add(*value));
        sums.moments()
    }

    #[test]
    fn large_and_small_numbers_keep_their_spread() {
        for unit in [1e300, 1.0, 1e-300, 1e-310] {
            let found = moments(&[unit, 3.0 * unit, 5.0 * unit]);
            let scaled = scale(unit, -found.exponent);
            let spread = found.squared_differences(found.sum.over(3.0));
            // 4 + 0 + 4 units; subnormal units have fewer digits.
            assert!((spread / (scaled * scaled) - 8.0).abs() < 1e-9, "{unit}: {spread}");
        }
    }

    #[test]
    fn a_spread_far_below_the_mean_is_found() {
        let found = moments(&[1e9, 1e9 + 1e-3, 1e9 + 2e-3]);
        let mean = found.sum.over(3.0);
        // Two steps of 1e-3, as doubles near 1e9 have them.
        assert!((found.squared_differences(mean) - 2e-6).abs() < 1e-9);
    }

    #[test]
    fn equal_numbers_have_none() {
        for value in [0.1, 1e-200, 7e250, 0.0] {
            let found = moments(&[value; 7]);
            let mean = found.sum.over(7.0);
            assert_eq!(scale(mean, found.exponent), value);
            assert_eq!(found.squared_differences(mean), 0.0);
        }
    }

    proptest! {
        #[test]
        fn agrees_with_two_passes_and_forgets_the_order(values in proptest::collection::vec(-1e3..1e3f64, 2..50)) {
            let found = moments(&values);
            let count = f64::from(u32::try_from(values.len()).unwrap());
            let mean = values.iter().sum::<f64>() / count;
            let naive: f64 = values.iter().map(|value| (value - mean) * (value - mean)).sum();
            prop_assert!((found.squared_differences(found.sum.over(count)) - naive).abs() <= 1e-9 * naive.max(1.0));
            let reversed: Vec<f64> = values.iter().rev().copied().collect();
            prop_assert_eq!(moments(&reversed), found);
            let (mut one, mut other) = (Sums::default(), Sums::default());
            values.iter().enumerate().for_each(|(at, value)| if at % 3 == 0 { one.add(*value) } else { other.add(*value) });
            one.merge(&Sums::from_bytes(&other.to_bytes().unwrap()).unwrap());
            prop_assert_eq!(one.moments(), found);
        }
    }
}
