//! Means and standard deviations of a group that was scaled to the middle of the doubles.

#![expect(
    clippy::float_cmp,
    clippy::cast_precision_loss,
    reason = "equal values are told from nearly equal ones, and no group has 2^53 votes"
)]

use crate::exact::{scale, total};

/// Distinct values up to which the spread of the others is computed anew for each of them.
const FEW: usize = 32;

/// Values with how often each counts.
#[derive(Debug, Clone, Copy)]
pub(super) struct Counted<'a> {
    pub(super) values: &'a [f64],
    /// Empty where each counts once.
    pub(super) votes: &'a [u32],
}

impl<'a> Counted<'a> {
    /// Returns every value with its votes.
    pub(super) fn iter(self) -> impl Iterator<Item = (f64, u32)> + Clone + use<'a> {
        let each = self.votes.iter().copied().chain(std::iter::repeat(1));
        self.values.iter().copied().zip(each)
    }

    /// Returns the number of votes.
    pub(super) fn count(self) -> f64 {
        if self.votes.is_empty() {
            return self.values.len() as f64;
        }
        self.votes.iter().map(|votes| u64::from(*votes)).sum::<u64>() as f64
    }

    pub(super) fn mean(self) -> f64 {
        total(self.iter()) / self.count()
    }

    /// Returns the standard deviation; 0 where the values are equal or too few.
    pub(super) fn std(self, ddof: u32) -> f64 {
        let freedom = self.count() - f64::from(ddof);
        if freedom <= 0.0 || all_equal(self.values) {
            return 0.0;
        }
        let mean = self.mean();
        let squares = self.iter().map(|(value, votes)| ((value - mean) * (value - mean), votes));
        (total(squares) / freedom).sqrt()
    }

    /// Returns, for each value, the standard deviation of all others: the value's own further votes stay in. 0 where they are equal or too few.
    ///
    /// Linear but for the sort: what lies below and above a value is known from running sums of squares that only grow, so that nothing
    /// cancels where one value lies far from all others.
    pub(super) fn stds_of_others(self, ddof: u32) -> Vec<f64> {
        let mut distinct: Vec<(f64, u32)> = Vec::with_capacity(self.values.len());
        let mut sorted: Vec<(f64, u32)> = self.iter().collect();
        sorted.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
        for (value, votes) in sorted {
            match distinct.last_mut() {
                Some((known, count)) if *known == value => *count += votes,
                _ => distinct.push((value, votes)),
            }
        }
        let stds = if distinct.len() <= FEW { each_anew(&distinct, ddof) } else { by_moments(&distinct, ddof) };
        let std_of = |value: &f64| {
            let found = distinct.binary_search_by(|(known, _)| known.total_cmp(value));
            found.map_or(0.0, |at| stds[at])
        };
        self.values.iter().map(std_of).collect()
    }
}

pub(super) fn all_equal(values: &[f64]) -> bool {
    values.windows(2).all(|pair| pair[0] == pair[1])
}

/// Computes the spread of the others of each distinct value from the others themselves.
fn each_anew(distinct: &[(f64, u32)], ddof: u32) -> Vec<f64> {
    let (mut values, mut votes) = (Vec::new(), Vec::new());
    (0..distinct.len())
        .map(|at| {
            let others =
                distinct.iter().enumerate().map(|(other, (value, count))| (*value, count - u32::from(other == at)));
            let others = others.filter(|(_, count)| *count > 0);
            (values, votes) = others.unzip();
            Counted { values: &values, votes: &votes }.std(ddof)
        })
        .collect()
}

/// Number, mean and sum of squared differences of some values.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Moments {
    pub(super) count: f64,
    pub(super) mean: f64,
    pub(super) squares: f64,
}

impl Moments {
    /// Returns the moments of both together (T. Chan): every term is at least 0, so none cancels.
    pub(super) fn and(self, other: Self) -> Self {
        let count = self.count + other.count;
        if count == 0.0 {
            return Self::default();
        }
        let difference = other.mean - self.mean;
        let share = other.count / count;
        Self {
            count,
            mean: self.mean + difference * share,
            squares: self.squares + other.squares + difference * difference * self.count * share,
        }
    }

    /// Returns the moments of one value.
    pub(super) fn of(value: f64, votes: u32) -> Self {
        Self { count: f64::from(votes), mean: value, squares: 0.0 }
    }

    /// Returns the standard deviation; 0 where there are too few values for one.
    pub(super) fn std(self, ddof: u32) -> f64 {
        let freedom = self.count - f64::from(ddof);
        if freedom > 0.0 { (self.squares / freedom).sqrt() } else { 0.0 }
    }
}

fn by_moments(distinct: &[(f64, u32)], ddof: u32) -> Vec<f64> {
    let mut above = vec![Moments::default(); distinct.len() + 1];
    for (at, (value, votes)) in distinct.iter().enumerate().rev() {
        above[at] = above[at + 1].and(Moments::of(*value, *votes));
    }
    let mut below = Moments::default();
    let stds = distinct.iter().enumerate().map(|(at, (value, votes))| {
        let own = Moments::of(*value, votes - 1);
        let others = below.and(own).and(above[at + 1]);
        below = below.and(Moments::of(*value, *votes));
        others.std(ddof)
    });
    stds.collect()
}

/// Returns the exponent that scales `largest` to 0.5..1.
pub(super) fn exponent(largest: f64) -> i32 {
    let biased = |value: f64| i32::try_from((value.to_bits() >> 52) & 0x7ff).unwrap_or(0);
    match biased(largest) {
        // Subnormal: scaled into the normal range first.
        0 => biased(scale(largest, 200)) - 1022 - 200,
        biased => biased - 1022,
    }
}
