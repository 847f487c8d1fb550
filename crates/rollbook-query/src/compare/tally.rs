//! What is counted of the pairs of one measure.

use crate::compare::histogram::Histogram;
use crate::compare::items::{Key, Level};
use crate::compare::{PAIRS, ranks};

/// How the values of a rollout become one figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Combine {
    /// The mean over what both sides have.
    Mean,
    /// The sum; what a side does not have is 0 there.
    Sum,
}

/// A rollout, call or token with what both sides say of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Difference {
    pub(super) key: Key,
    /// Run, once known.
    pub run_id: Option<String>,
    /// Rollout, once known.
    pub rollout_id: Option<String>,
    /// Call, of calls and tokens.
    pub call_id: Option<String>,
    /// Output offset, of tokens.
    pub position: Option<u32>,
    /// The first side's value.
    pub a: f64,
    /// The second side's value.
    pub b: f64,
}

/// One measure of a comparison.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Measure {
    /// `value`, `advantage` or `loss_weight`.
    pub name: &'static str,
    /// Values that both sides have.
    pub both: u64,
    /// Values that only the first side has.
    pub only_a: u64,
    /// Values that only the second side has.
    pub only_b: u64,
    /// Of both: those where either is NaN or infinite; left out of all that follows.
    pub not_finite: u64,
    /// Of both: those that are equal, to 1e-9 of their size, stored floats to 1e-6.
    pub equal: u64,
    /// Of both: those where one is above and the other below 0.
    pub sign_flips: u64,
    /// Of both: those where one is 0 and the other is not.
    pub one_is_zero: u64,
    /// Means of the two sides, over what both have.
    pub mean: Option<(f64, f64)>,
    /// Mean of the absolute differences.
    pub mean_difference: Option<f64>,
    /// Largest absolute difference.
    pub max_difference: Option<f64>,
    /// Spearman's rho.
    pub spearman: Option<f64>,
    /// Kendall's tau-b.
    pub kendall: Option<f64>,
    /// What ranks and distribution are over: rollout, call or token.
    pub ranked: &'static str,
    /// How the values are distributed.
    pub histogram: Option<Histogram>,
    /// Rollouts with the largest differences, the largest first.
    pub rollouts: Vec<Difference>,
    /// Calls or tokens with the largest differences, of values below rollouts.
    pub items: Vec<Difference>,
}

/// The largest differences, as they come.
#[derive(Debug)]
struct Top {
    most: usize,
    found: Vec<Difference>,
}

impl Top {
    fn add(&mut self, key: Key, a: f64, b: f64) {
        let size = (a - b).abs();
        // The last is the smallest; among equal differences the first key stays, whatever the order of files.
        let enters =
            self.found.len() < self.most || self.found.last().is_some_and(|last| size > (last.a - last.b).abs());
        if size == 0.0 || self.most == 0 || !enters {
            return;
        }
        let at = self.found.partition_point(|known| (known.a - known.b).abs() >= size);
        let difference = Difference { key, run_id: None, rollout_id: None, call_id: None, position: None, a, b };
        self.found.insert(at, difference);
        self.found.truncate(self.most);
    }
}

/// The running figures of one rollout.
#[derive(Debug, Clone, Copy, Default)]
struct Rollout {
    count: f64,
    a: f64,
    b: f64,
}

/// Counts pairs that come in the order of their keys.
#[derive(Debug)]
pub(super) struct Tally {
    measure: Measure,
    combine: Combine,
    tolerance: f64,
    sums: (f64, f64, f64),
    pairs: Vec<(f64, f64)>,
    is_overfull: bool,
    rollout: Option<(u128, Rollout)>,
    rollout_pairs: Vec<(f64, f64)>,
    top_rollouts: Top,
    top_items: Top,
}

impl Tally {
    pub(super) fn new(name: &'static str, combine: Combine, is_stored_float: bool, top: usize) -> Self {
        let measure = Measure {
            name,
            both: 0,
            only_a: 0,
            only_b: 0,
            not_finite: 0,
            equal: 0,
            sign_flips: 0,
            one_is_zero: 0,
            mean: None,
            mean_difference: None,
            max_difference: None,
            spearman: None,
            kendall: None,
            ranked: "rollout",
            histogram: None,
            rollouts: Vec::new(),
            items: Vec::new(),
        };
        Self {
            measure,
            combine,
            tolerance: if is_stored_float { 1e-6 } else { 1e-9 },
            sums: (0.0, 0.0, 0.0),
            pairs: Vec::new(),
            is_overfull: false,
            rollout: None,
            rollout_pairs: Vec::new(),
            top_rollouts: Top { most: top, found: Vec::new() },
            top_items: Top { most: top, found: Vec::new() },
        }
    }

    pub(super) fn add(&mut self, key: Key, a: Option<f64>, b: Option<f64>) {
        if self.rollout.is_none_or(|(rollout, _)| rollout != key.rollout) {
            self.end_rollout();
            self.rollout = Some((key.rollout, Rollout::default()));
        }
        match (a, b) {
            (Some(a), Some(b)) => self.add_both(key, a, b),
            (Some(_), None) => self.measure.only_a += 1,
            (None, Some(_)) => self.measure.only_b += 1,
            (None, None) => return,
        }
        if self.combine == Combine::Sum {
            let finite = |value: Option<f64>| value.filter(|value| value.is_finite()).unwrap_or(0.0);
            self.add_to_rollout(finite(a), finite(b));
        }
    }

    fn add_both(&mut self, key: Key, a: f64, b: f64) {
        let measure = &mut self.measure;
        measure.both += 1;
        if !(a.is_finite() && b.is_finite()) {
            measure.not_finite += 1;
            return;
        }
        let difference = (a - b).abs();
        measure.equal += u64::from(difference <= self.tolerance * a.abs().max(b.abs()));
        measure.sign_flips += u64::from((a > 0.0 && b < 0.0) || (a < 0.0 && b > 0.0));
        measure.one_is_zero += u64::from((a == 0.0) != (b == 0.0));
        measure.max_difference = Some(measure.max_difference.map_or(difference, |most| most.max(difference)));
        self.sums.0 += a;
        self.sums.1 += b;
        self.sums.2 += difference;
        self.top_items.add(key, a, b);
        if self.pairs.len() < PAIRS {
            self.pairs.push((a, b));
        } else {
            self.is_overfull = true;
        }
        if self.combine == Combine::Mean {
            self.add_to_rollout(a, b);
        }
    }

    fn add_to_rollout(&mut self, a: f64, b: f64) {
        if let Some((_, rollout)) = &mut self.rollout {
            rollout.count += 1.0;
            rollout.a += a;
            rollout.b += b;
        }
    }

    fn end_rollout(&mut self) {
        let Some((key, rollout)) = self.rollout.take().filter(|(_, rollout)| rollout.count > 0.0) else {
            return;
        };
        let by = if self.combine == Combine::Mean { rollout.count } else { 1.0 };
        let (a, b) = (rollout.a / by, rollout.b / by);
        self.top_rollouts.add(Key { rollout: key, call: 0, position: 0 }, a, b);
        if self.rollout_pairs.len() < PAIRS {
            self.rollout_pairs.push((a, b));
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "counts of values are far below 2^53")]
    pub(super) fn finish(mut self, level: Level) -> Measure {
        self.end_rollout();
        let mut measure = self.measure;
        let finite = (measure.both - measure.not_finite) as f64;
        if finite > 0.0 {
            measure.mean = Some((self.sums.0 / finite, self.sums.1 / finite));
            measure.mean_difference = Some(self.sums.2 / finite);
        }
        let (mut pairs, ranked) =
            if self.is_overfull { (self.rollout_pairs, Level::Rollout) } else { (self.pairs, level) };
        measure.ranked = ranked.as_str();
        measure.histogram = Histogram::of(&pairs);
        measure.spearman = ranks::spearman(&pairs);
        measure.kendall = ranks::kendall(&mut pairs);
        measure.rollouts = self.top_rollouts.found;
        if level != Level::Rollout {
            measure.items = self.top_items.found;
            if level == Level::Token {
                for item in &mut measure.items {
                    item.position = Some(item.key.position);
                }
            }
        }
        measure
    }
}
