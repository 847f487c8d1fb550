//! What is kept of one trajectory: sums over its tokens, and extremes.

use super::super::ratio::{Divergence, bounded};
use super::rule::{Rule, WeightLevel};
use crate::double_double::DoubleDouble;

/// Sums that every trajectory has, by their place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Total {
    Count,
    Train,
    Rollout,
    LogRatio,
    K1,
    K2,
    K3,
    /// k3 of the log ratio as it is, not clamped.
    K3Free,
    RatioSquared,
    Weight,
    WeightSquared,
    /// Ratios before they become weights.
    Ratio,
    High,
    Low,
    /// Tokens that every token criterion keeps.
    Kept,
}

const TOTALS: usize = Total::Kept as usize + 1;

/// Sums that a token criterion adds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OfCriterion {
    Kept,
    High,
    Low,
    Clamped,
    ClampedSquared,
}

const OF_CRITERION: usize = OfCriterion::ClampedSquared as usize + 1;

/// Largest numbers of a trajectory; the smallest are kept with their sign turned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Largest {
    K1,
    MinusK1,
    K2,
    MinusK2,
    K3,
    MinusK3,
    Weight,
    MinusWeight,
}

const LARGEST: usize = Largest::MinusWeight as usize + 1;

/// One trajectory.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Record {
    totals: Vec<DoubleDouble>,
    largest: [f64; LARGEST],
}

impl Record {
    pub(super) fn new(rule: &Rule) -> Self {
        let length = TOTALS + OF_CRITERION * rule.token_criteria().count();
        Self { totals: vec![DoubleDouble::default(); length], largest: [f64::NEG_INFINITY; LARGEST] }
    }

    /// Adds a token.
    pub(super) fn add(&mut self, rule: &Rule, train: f64, rollout: f64) {
        let log_ratio = train - rollout;
        let clamped = bounded(log_ratio);
        let [k1, k2, k3] = [Divergence::K1, Divergence::K2, Divergence::K3].map(|kind| kind.of(clamped));
        let ratio = clamped.exp();
        for (total, value) in [
            (Total::Count, 1.0),
            (Total::Train, train),
            (Total::Rollout, rollout),
            (Total::LogRatio, log_ratio),
            (Total::K1, k1),
            (Total::K2, k2),
            (Total::K3, k3),
            (Total::K3Free, log_ratio.exp() - log_ratio - 1.0),
            (Total::RatioSquared, ratio * ratio),
        ] {
            self.sum(total as usize, value);
        }
        for (largest, value) in [(Largest::K1, k1), (Largest::K2, k2), (Largest::K3, k3)] {
            self.extreme(largest as usize, value);
            self.extreme(largest as usize + 1, -value);
        }
        if let Some(weights) = rule.weights.filter(|weights| weights.level == WeightLevel::Token) {
            let weight = weights.applied(ratio);
            self.sum(Total::Weight as usize, weight);
            self.sum(Total::WeightSquared as usize, weight * weight);
            self.sum(Total::Ratio as usize, ratio);
            self.sum(Total::High as usize, f64::from(ratio > weights.bounds.upper));
            self.sum(Total::Low as usize, f64::from(ratio < weights.low()));
            self.extreme(Largest::Weight as usize, weight);
            self.extreme(Largest::MinusWeight as usize, -weight);
        }
        let mut all_keep = true;
        for (at, criterion) in rule.token_criteria().enumerate() {
            let value = criterion.divergence.of(clamped);
            let keeps = criterion.keeps(value) == Some(true);
            all_keep &= keeps;
            let within = value.clamp(criterion.lower.unwrap_or(0.0), criterion.upper);
            for (total, value) in [
                (OfCriterion::Kept, f64::from(keeps)),
                (OfCriterion::High, f64::from(value > criterion.upper)),
                (OfCriterion::Low, f64::from(criterion.lower.is_some_and(|lower| value < lower))),
                (OfCriterion::Clamped, within),
                (OfCriterion::ClampedSquared, within * within),
            ] {
                self.sum(TOTALS + at * OF_CRITERION + total as usize, value);
            }
        }
        self.sum(Total::Kept as usize, f64::from(all_keep));
    }

    fn sum(&mut self, at: usize, value: f64) {
        self.totals[at] = self.totals[at].plus(DoubleDouble { high: value, low: 0.0 });
    }

    fn extreme(&mut self, at: usize, value: f64) {
        self.largest[at] = self.largest[at].max(value);
    }

    /// Adds what another part of the trajectory has.
    pub(super) fn merge(&mut self, other: &Self) {
        for (total, other) in self.totals.iter_mut().zip(&other.totals) {
            *total = total.plus(*other);
        }
        for (largest, other) in self.largest.iter_mut().zip(&other.largest) {
            *largest = largest.max(*other);
        }
    }

    /// Returns a sum.
    pub(super) fn total(&self, total: Total) -> f64 {
        self.totals[total as usize].high
    }

    /// Returns a sum that the n-th token criterion made.
    pub(super) fn of_criterion(&self, at: usize, total: OfCriterion) -> f64 {
        self.totals[TOTALS + at * OF_CRITERION + total as usize].high
    }

    /// Returns a largest number; minus infinity where there is no token.
    pub(super) fn largest(&self, largest: Largest) -> f64 {
        self.largest[largest as usize]
    }

    /// Returns the sum of an estimator, its largest and its smallest value.
    pub(super) fn divergence(&self, divergence: Divergence) -> (f64, f64, f64) {
        let (total, largest, smallest) = match divergence {
            Divergence::K1 => (Total::K1, Largest::K1, Largest::MinusK1),
            Divergence::K2 => (Total::K2, Largest::K2, Largest::MinusK2),
            Divergence::K3 => (Total::K3, Largest::K3, Largest::MinusK3),
        };
        (self.total(total), self.largest(largest), -self.largest(smallest))
    }

    /// Appends the record as bytes; its length follows from the rule.
    pub(super) fn write(&self, bytes: &mut Vec<u8>) {
        let totals = self.totals.iter().flat_map(|total| [total.high, total.low]);
        totals.chain(self.largest).for_each(|value| bytes.extend(value.to_le_bytes()));
    }

    /// Reads what [`Self::write`] wrote, and returns what follows it.
    pub(super) fn read<'a>(rule: &Rule, bytes: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let mut record = Self::new(rule);
        let mut rest = bytes;
        let mut next = || {
            let (word, tail) = rest.split_first_chunk::<8>()?;
            rest = tail;
            Some(f64::from_le_bytes(*word))
        };
        for total in &mut record.totals {
            *total = DoubleDouble { high: next()?, low: next()? };
        }
        for largest in &mut record.largest {
            *largest = next()?;
        }
        Some((record, rest))
    }
}
