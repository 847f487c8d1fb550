//! Ranks among the members of a group.

#![expect(
    clippy::float_cmp,
    clippy::cast_precision_loss,
    reason = "only equal values tie, and no group has 2^53 members"
)]

use super::kernel::Outcome;
use super::rule::{Ties, Unit};

/// Computes the rank of each value from the smallest on.
pub(super) fn ranks(values: &[f64], ties: Ties, unit: Unit, credits: &mut Vec<f64>) -> Outcome {
    let n = values.len() as f64;
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_unstable_by(|a, b| values[*a].total_cmp(&values[*b]));
    credits.resize(values.len(), 0.0);
    let mut before = 0;
    for equal in order.chunk_by(|a, b| values[*a] == values[*b]) {
        let (least, greatest) = ((before + 1) as f64, (before + equal.len()) as f64);
        before += equal.len();
        let rank = match ties {
            Ties::Average => f64::midpoint(least, greatest),
            Ties::Least => least,
            Ties::Greatest => greatest,
        };
        let share = if values.len() == 1 { 0.5 } else { (rank - 1.0) / (n - 1.0) };
        let told = match unit {
            Unit::Rank => rank,
            Unit::Quantile => (rank - 0.5) / n,
            Unit::Unit => share,
            Unit::Centered => share - 0.5,
        };
        for member in equal {
            credits[*member] = told;
        }
    }
    Outcome::Each
}
