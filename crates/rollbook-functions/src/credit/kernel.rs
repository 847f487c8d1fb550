//! Credits of the members of one group.

#![expect(
    clippy::float_cmp,
    clippy::cast_precision_loss,
    reason = "equal values are told from nearly equal ones, and no group has 2^53 members"
)]

use super::rule::{Fallback, Incomplete, Rule, Scale};
use crate::exact::{Superaccumulator, scale};

/// Why a group has no credits.
#[derive(Debug, PartialEq)]
pub(super) enum Fault {
    /// It has fewer members than it should.
    Incomplete { members: usize, group_size: u64 },
    /// The credit of a member is no double.
    Overflow { member: usize },
}

/// Returns the credit of each member, in the order of `values`; all values are finite.
pub(super) fn credits(values: &[f64], rule: &Rule) -> Result<Vec<Option<f64>>, Fault> {
    let same = |fallback: Fallback| {
        let credits = values.iter().map(|value| match fallback {
            Fallback::Zero => Some(0.0),
            Fallback::Value => Some(*value),
            Fallback::Null => None,
        });
        Ok(credits.collect())
    };
    if let Some(group_size) = rule.group_size.filter(|size| (values.len() as u64) < *size) {
        match rule.incomplete {
            Incomplete::Keep => {}
            Incomplete::Null => return same(Fallback::Null),
            Incomplete::Error => {
                return Err(Fault::Incomplete { members: values.len(), group_size });
            }
        }
    }
    if values.len() < 2 {
        return same(rule.singleton);
    }
    // Compared, not computed: the mean of equal values may differ from them by a rounding.
    if values.windows(2).all(|pair| pair[0] == pair[1]) {
        return same(rule.zero_variance);
    }
    let credits = Group::new(values).credits(rule);
    match credits.iter().position(|credit| !credit.is_finite()) {
        Some(member) => Err(Fault::Overflow { member }),
        None => Ok(credits.into_iter().map(Some).collect()),
    }
}

/// A group of at least two members with at least two values, scaled by a power of two so that squares neither overflow nor vanish.
struct Group {
    values: Vec<f64>,
    exponent: i32,
    mean: f64,
}

impl Group {
    fn new(values: &[f64]) -> Self {
        // Adding 0.0 makes -0.0 the 0.0 that it equals.
        let largest = values.iter().fold(0.0, |largest: f64, value| largest.max(value.abs()));
        let exponent = exponent(largest);
        let values: Vec<f64> = values.iter().map(|value| scale(*value, -exponent) + 0.0).collect();
        let mean = mean(&values);
        Self { values, exponent, mean }
    }

    fn credits(&self, rule: &Rule) -> Vec<f64> {
        let n = self.values.len() as f64;
        let differences = self.values.iter().map(|value| {
            let difference = value - self.mean;
            // r - mean of the others = n / (n - 1) * (r - mean).
            if rule.leave_one_out { n * difference / (n - 1.0) } else { difference }
        });
        match rule.scale {
            Scale::None => differences.map(|difference| scale(difference, self.exponent)).collect(),
            Scale::Std { ddof, eps } if rule.leave_one_out => {
                let spreads = self.spreads_of_others(ddof);
                differences.zip(spreads).map(|(difference, spread)| self.divided(difference, spread, eps)).collect()
            }
            Scale::Std { ddof, eps } => {
                let spread = spread(&self.values, ddof);
                differences.map(|difference| self.divided(difference, spread, eps)).collect()
            }
        }
    }

    /// Returns a difference over its spread. A spread of 0 beside a difference, which only leaving one out can give, divides nothing.
    fn divided(&self, difference: f64, spread: f64, eps: f64) -> f64 {
        if spread == 0.0 {
            return scale(difference, self.exponent);
        }
        // eps has the unit of the values; whichever side is scaled, nothing overflows.
        if self.exponent > 0 {
            difference / (spread + scale(eps, -self.exponent))
        } else {
            scale(difference, self.exponent) / (scale(spread, self.exponent) + eps)
        }
    }

    /// Returns, for each member, the standard deviation of the other members; 0 where they have none.
    fn spreads_of_others(&self, ddof: u32) -> Vec<f64> {
        let mut by_value: Vec<(f64, f64)> = Vec::new();
        let mut sorted = self.values.clone();
        sorted.sort_unstable_by(f64::total_cmp);
        // Members with the same value have the same others: one computation a distinct value.
        for (at, value) in sorted.iter().enumerate() {
            if by_value.last().is_some_and(|(known, _)| known == value) {
                continue;
            }
            let others: Vec<f64> = [&sorted[..at], &sorted[at + 1..]].concat();
            by_value.push((*value, spread(&others, ddof)));
        }
        let spread_of = |value: &f64| {
            let found = by_value.binary_search_by(|(known, _)| known.total_cmp(value));
            found.map_or(0.0, |at| by_value[at].1)
        };
        self.values.iter().map(spread_of).collect()
    }
}

/// Returns the exponent that `largest` is scaled to 0.5..1 by.
fn exponent(largest: f64) -> i32 {
    let biased = |value: f64| i32::try_from((value.to_bits() >> 52) & 0x7ff).unwrap_or(0);
    match biased(largest) {
        // Subnormal: scaled into the normal range first.
        0 => biased(scale(largest, 200)) - 1022 - 200,
        biased => biased - 1022,
    }
}

fn mean(values: &[f64]) -> f64 {
    Superaccumulator::sum_of(values.iter().copied()) / values.len() as f64
}

/// Returns the standard deviation; 0 where the values are equal or too few.
fn spread(values: &[f64], ddof: u32) -> f64 {
    let freedom = values.len() as f64 - f64::from(ddof);
    if freedom <= 0.0 || values.windows(2).all(|pair| pair[0] == pair[1]) {
        return 0.0;
    }
    let mean = mean(values);
    let squares = values.iter().map(|value| (value - mean) * (value - mean));
    (Superaccumulator::sum_of(squares) / freedom).sqrt()
}
