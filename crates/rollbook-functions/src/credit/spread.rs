//! Means and standard deviations of a group that was scaled to the middle of the doubles.

#![expect(
    clippy::float_cmp,
    clippy::cast_precision_loss,
    reason = "equal values are told from nearly equal ones, and no group has 2^53 votes"
)]

use crate::double_double::product;
use crate::exact::{scale, total, total_of_votes};

/// Distinct values up to which the spread of the others is computed anew for each of them.
const FEW: usize = 32;
/// Powers of two of the largest value within which squares neither overflow nor vanish.
const SAFE_EXPONENT: i32 = 256;

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

    /// Returns the sum of something of every value.
    pub(super) fn sum(self, of: impl Fn(f64) -> f64 + Clone) -> f64 {
        if self.votes.is_empty() {
            return total(self.values.iter().map(|value| of(*value)));
        }
        total_of_votes(self.iter().map(|(value, votes)| (of(value), votes)))
    }
}

impl Counted<'_> {
    /// Returns the sum of the values less as many times a number, without rounding on the way.
    fn rest(self, mean: f64) -> f64 {
        let taken = product(mean, self.count());
        let taken = [-taken.high, -taken.low];
        if self.votes.is_empty() {
            return total(self.values.iter().copied().chain(taken));
        }
        total_of_votes(self.iter().chain(taken.map(|part| (part, 1))))
    }
}

pub(super) fn all_equal(values: &[f64]) -> bool {
    values.windows(2).all(|pair| pair[0] == pair[1])
}

/// The members of a group, scaled by a power of two where their squares could overflow or vanish, and what all credits need of them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scaled<'a> {
    pub(super) members: Counted<'a>,
    pub(super) moments: ScaledMoments,
}

/// What is known of a group beside its scaled values.
#[derive(Debug, Clone, Copy)]
pub(super) struct ScaledMoments {
    exponent: i32,
    pub(super) count: f64,
    pub(super) mean: f64,
    /// What the mean lost when it was rounded to a double: beside values that lie far closer to each other than to 0 that is much.
    mean_rest: f64,
    squares: f64,
    pub(super) all_equal: bool,
}

impl ScaledMoments {
    /// Computes the moments; the scaled values are added to `scaled`.
    pub(super) fn new(members: Counted, scaled: &mut Vec<f64>) -> Self {
        let largest = members.values.iter().fold(0.0, |largest: f64, value| largest.max(value.abs()));
        let exponent = if largest == 0.0 { 0 } else { exponent(largest) };
        let exponent = if exponent.abs() <= SAFE_EXPONENT { 0 } else { exponent };
        let start = scaled.len();
        scaled.extend(members.values.iter().map(|value| scale(*value, -exponent)));
        let members = Counted { values: scaled.get(start..).unwrap_or_default(), ..members };
        let count = members.count();
        // Compared, not computed: the mean of equal values may differ from them by a rounding.
        if let (Some(first), true) = (members.values.first(), all_equal(members.values)) {
            return Self { exponent, count, mean: *first, mean_rest: 0.0, squares: 0.0, all_equal: true };
        }
        let mean = members.sum(|value| value) / count;
        let mean_rest = if members.values.is_empty() { 0.0 } else { members.rest(mean) / count };
        let squares = members.sum(|value| {
            let difference = value - mean - mean_rest;
            difference * difference
        });
        Self { exponent, count, mean, mean_rest, squares, all_equal: members.values.is_empty() }
    }

    /// Whether the scaled values differ from those that they were.
    pub(super) fn is_scaled(self) -> bool {
        self.exponent != 0
    }

    /// Returns a scaled value less the mean.
    pub(super) fn difference(self, value: f64) -> f64 {
        value - self.mean - self.mean_rest
    }

    /// Returns a scaled number as it is.
    pub(super) fn back(self, value: f64) -> f64 {
        if self.exponent == 0 { value } else { scale(value, self.exponent) }
    }

    /// Returns a number as the scaled ones are.
    pub(super) fn forth(self, value: f64) -> f64 {
        if self.exponent == 0 { value } else { scale(value, -self.exponent) }
    }

    /// Returns a scaled difference over a scaled divisor and `eps`, which has the unit of the values as they are.
    pub(super) fn divided(self, difference: f64, divisor: f64, eps: f64) -> f64 {
        // Whichever side is scaled, nothing overflows.
        if self.exponent > 0 {
            difference / (divisor + self.forth(eps))
        } else {
            self.back(difference) / (self.back(divisor) + eps)
        }
    }

    /// Returns the standard deviation of the scaled values; 0 where they are equal or too few.
    pub(super) fn scaled_std(self, ddof: u32) -> f64 {
        let freedom = self.count - f64::from(ddof);
        if freedom > 0.0 { (self.squares / freedom).sqrt() } else { 0.0 }
    }

    /// Returns the standard deviation of the values as they are.
    pub(super) fn std(self, ddof: u32) -> f64 {
        self.back(self.scaled_std(ddof))
    }
}

impl ScaledMoments {
    /// Returns, for each value, the standard deviation of all others, as they are: the value's own further votes stay in. 0 where they are
    /// equal or too few.
    ///
    /// Linear but for the sort: what lies below and above a value is known from running sums of squares that only grow, so that nothing
    /// cancels where one value lies far from all others.
    pub(super) fn stds_of_others(self, members: Counted, ddof: u32) -> Vec<f64> {
        let mut distinct: Vec<(f64, u32)> = Vec::with_capacity(members.values.len());
        let mut sorted: Vec<(f64, u32)> = members.iter().collect();
        sorted.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
        for (value, votes) in sorted {
            match distinct.last_mut() {
                Some((known, count)) if *known == value => *count += votes,
                _ => distinct.push((value, votes)),
            }
        }
        let scaled: Vec<(f64, u32)> = distinct.iter().map(|(value, votes)| (self.forth(*value), *votes)).collect();
        let stds = if distinct.len() <= FEW { each_anew(&scaled, ddof) } else { by_moments(&scaled, ddof) };
        let stds = stds.into_iter().enumerate().map(|(at, std)| {
            // Others that are far smaller than the one vanish beside it: then they are scaled by themselves.
            let vanished = std == 0.0 && others(&distinct, at).nth(1).is_some();
            if vanished { std_alone(&distinct, at, ddof) } else { self.back(std) }
        });
        let stds: Vec<f64> = stds.collect();
        let std_of = |value: &f64| {
            let found = distinct.binary_search_by(|(known, _)| known.total_cmp(value));
            found.map_or(0.0, |at| stds[at])
        };
        members.values.iter().map(std_of).collect()
    }
}

fn std_alone(distinct: &[(f64, u32)], at: usize, ddof: u32) -> f64 {
    let (values, votes): (Vec<f64>, Vec<u32>) = others(distinct, at).unzip();
    ScaledMoments::new(Counted { values: &values, votes: &votes }, &mut Vec::new()).std(ddof)
}

/// Returns the distinct values without one vote of that at a place.
fn others(distinct: &[(f64, u32)], at: usize) -> impl Iterator<Item = (f64, u32)> + Clone {
    let less = distinct.iter().enumerate().map(move |(other, (value, count))| (*value, count - u32::from(other == at)));
    less.filter(|(_, count)| *count > 0)
}

/// Computes the spread of the others of each distinct value from the others themselves.
fn each_anew(distinct: &[(f64, u32)], ddof: u32) -> Vec<f64> {
    let count: f64 = distinct.iter().map(|(_, votes)| f64::from(*votes)).sum();
    let std = |at: usize| {
        let freedom = count - 1.0 - f64::from(ddof);
        let others = others(distinct, at);
        if freedom <= 0.0 || others.clone().nth(1).is_none() {
            return 0.0;
        }
        let mean = total_of_votes(others.clone()) / (count - 1.0);
        let squares = total_of_votes(others.map(|(value, votes)| ((value - mean) * (value - mean), votes)));
        (squares / freedom).sqrt()
    };
    (0..distinct.len()).map(std).collect()
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
fn exponent(largest: f64) -> i32 {
    let biased = |value: f64| i32::try_from((value.to_bits() >> 52) & 0x7ff).unwrap_or(0);
    match biased(largest) {
        // Subnormal: scaled into the normal range first.
        0 => biased(scale(largest, 200)) - 1022 - 200,
        biased => biased - 1022,
    }
}
