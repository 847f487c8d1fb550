//! The metrics, from the records of all trajectories.

#![expect(clippy::cast_precision_loss, reason = "no batch has 2^53 trajectories")]

use super::super::criteria::{COUNT_EPS, Criterion, Level};
use super::super::ratio::bounded;
use super::record::{Largest, OfCriterion, Record, Total};
use super::rule::{Rule, WeightLevel, Weights};

/// Names and values, in the order verl logs them.
pub(super) type Metrics = Vec<(String, f64)>;

/// One number a trajectory, as the summaries need them.
struct Numbers(Vec<f64>);

impl Numbers {
    fn mean(&self) -> f64 {
        if self.0.is_empty() { 0.0 } else { self.0.iter().sum::<f64>() / self.0.len() as f64 }
    }

    /// The sample standard deviation; 0 of one number.
    fn std(&self) -> f64 {
        if self.0.len() < 2 {
            return 0.0;
        }
        let mean = self.mean();
        let squares: f64 = self.0.iter().map(|value| (value - mean) * (value - mean)).sum();
        (squares / (self.0.len() - 1) as f64).sqrt()
    }

    fn max(&self) -> f64 {
        self.0.iter().copied().fold(f64::NEG_INFINITY, f64::max)
    }

    fn min(&self) -> f64 {
        self.0.iter().copied().fold(f64::INFINITY, f64::min)
    }

    fn share(&self, holds: impl Fn(f64) -> bool) -> f64 {
        if self.0.is_empty() {
            0.0
        } else {
            self.0.iter().filter(|value| holds(**value)).count() as f64 / self.0.len() as f64
        }
    }
}

/// The trajectories of a batch.
pub(super) struct Batch<'a> {
    records: Vec<&'a Record>,
    tokens: f64,
}

impl<'a> Batch<'a> {
    /// Takes the records in the order of their ids.
    pub(super) fn new(records: impl Iterator<Item = &'a Record>) -> Self {
        let records: Vec<&Record> = records.collect();
        let tokens = records.iter().map(|record| record.total(Total::Count)).sum();
        Self { records, tokens }
    }

    /// Returns every metric; none where no token is selected.
    pub(super) fn metrics(&self, rule: &Rule) -> Metrics {
        let mut metrics = Metrics::new();
        if self.tokens > 0.0 {
            if let Some(weights) = &rule.weights {
                self.of_weights(weights, &mut metrics);
            }
            if !rule.criteria.is_empty() {
                self.of_criteria(rule, &mut metrics);
            }
            self.of_policies(&mut metrics);
        }
        metrics.into_iter().map(|(name, value)| (format!("rollout_corr/{name}"), value)).collect()
    }

    fn numbers(&self, of: impl Fn(&Record) -> f64) -> Numbers {
        Numbers(self.records.iter().map(|record| of(record)).collect())
    }

    /// Returns a sum over all tokens over their count.
    fn token_mean(&self, of: impl Fn(&Record) -> f64) -> f64 {
        self.numbers(of).0.iter().sum::<f64>() / (self.tokens + COUNT_EPS)
    }

    fn std_of(&self, mean: f64, mean_of_squares: f64) -> f64 {
        if self.tokens > 1.0 { (mean_of_squares - mean * mean).max(0.0).sqrt() } else { 0.0 }
    }

    fn of_policies(&self, metrics: &mut Metrics) {
        let mean = |record: &Record, total: Total| record.total(total) / (record.total(Total::Count) + COUNT_EPS);
        let difference = self.numbers(|record| mean(record, Total::Rollout) - mean(record, Total::Train));
        let found = [
            ("training_ppl", self.numbers(|record| (-mean(record, Total::Train)).exp()).mean()),
            ("training_log_ppl", self.numbers(|record| -mean(record, Total::Train)).mean()),
            ("kl", self.token_mean(|record| -record.total(Total::LogRatio))),
            ("k3_kl", self.token_mean(|record| record.total(Total::K3Free))),
            ("rollout_ppl", self.numbers(|record| (-mean(record, Total::Rollout)).exp()).mean()),
            ("rollout_log_ppl", self.numbers(|record| -mean(record, Total::Rollout)).mean()),
            ("log_ppl_diff", difference.mean()),
            ("log_ppl_abs_diff", Numbers(difference.0.iter().map(|value| value.abs()).collect()).mean()),
            ("log_ppl_diff_max", difference.max()),
            ("log_ppl_diff_min", difference.min()),
            ("ppl_ratio", Numbers(difference.0.iter().map(|value| value.exp()).collect()).mean()),
            ("chi2_token", self.token_mean(|record| record.total(Total::RatioSquared)) - 1.0),
            ("chi2_seq", self.numbers(|record| (2.0 * bounded(record.total(Total::LogRatio))).exp()).mean() - 1.0),
        ];
        metrics.extend(found.map(|(name, value)| (name.to_owned(), value)));
    }

    fn of_weights(&self, weights: &Weights, metrics: &mut Metrics) {
        let mut put = |name: &str, value: f64| metrics.push((format!("rollout_is_{name}"), value));
        let upper = weights.bounds.upper;
        let by_token = weights.level == WeightLevel::Token;
        let count = |record: &Record| record.total(Total::Count);
        let log_ratio = |record: &Record| record.total(Total::LogRatio);
        let ratio = |record: &Record| bounded(log_ratio(record)).exp();
        let weight = |record: &Record| weights.applied(ratio(record));
        // Sums over the tokens of a trajectory: of the weight, its square, the ratio before it, and what lies out of bounds.
        let (sum, squares, ratios, outside) = if by_token {
            put("ratio_fraction_high", self.token_mean(|record| record.total(Total::High)));
            put("ratio_fraction_low", self.token_mean(|record| record.total(Total::Low)));
            put("max", self.numbers(|record| record.largest(Largest::Weight)).max());
            put("min", -self.numbers(|record| record.largest(Largest::MinusWeight)).max());
            (
                self.numbers(|record| record.total(Total::Weight)),
                self.numbers(|record| record.total(Total::WeightSquared)),
                self.numbers(|record| record.total(Total::Ratio)),
                self.numbers(|record| record.total(Total::High) + record.total(Total::Low)),
            )
        } else {
            let logs = self.numbers(log_ratio);
            put("max", logs.max().min(super::super::ratio::LOG_BOUND).exp());
            put("min", logs.min().exp());
            put("ratio_fraction_high", logs.share(|log| log > upper.ln()));
            put("ratio_fraction_low", logs.share(|log| log < weights.low().ln()));
            let is_outside = |record: &Record| ratio(record) > upper || ratio(record) < weights.low();
            (
                self.numbers(|record| count(record) * weight(record)),
                self.numbers(|record| count(record) * weight(record) * weight(record)),
                self.numbers(|record| count(record) * ratio(record)),
                self.numbers(|record| count(record) * f64::from(is_outside(record))),
            )
        };
        let mean_of = |numbers: &Numbers| numbers.0.iter().sum::<f64>() / (self.tokens + COUNT_EPS);
        let (mean, mean_of_squares) = (mean_of(&sum), mean_of(&squares));
        put("mean", mean);
        put("std", self.std_of(mean, mean_of_squares));
        let scaled = (mean + COUNT_EPS) * (mean + COUNT_EPS);
        put("eff_sample_size", 1.0 / (mean_of_squares / scaled));
        let by_count = |numbers: &Numbers| {
            let pairs = numbers.0.iter().zip(&self.records);
            Numbers(pairs.map(|(value, record)| value / (count(record) + COUNT_EPS)).collect())
        };
        let of_sequences = by_count(&sum);
        put("seq_mean", of_sequences.mean());
        put("seq_std", of_sequences.std());
        put("seq_max", of_sequences.max());
        put("seq_min", of_sequences.min());
        put("seq_max_deviation", of_sequences.0.iter().map(|value| (value - 1.0).abs()).fold(0.0, f64::max));
        let before = by_count(&ratios);
        put("seq_fraction_high", before.share(|ratio| ratio > upper));
        put("seq_fraction_low", before.share(|ratio| ratio < weights.low()));
        if weights.bounds.lower.is_some() {
            put("oob_ratio", mean_of(&outside));
        }
        if weights.normalize {
            let valid = self.records.iter().filter(|record| count(record) > 0.0).count() as f64;
            let by_sequence = of_sequences.0.iter().sum::<f64>() / valid.max(COUNT_EPS);
            let factor = if by_token { mean } else { by_sequence };
            put("batch_norm_factor", if factor > COUNT_EPS { factor } else { 1.0 });
        }
    }

    fn of_criteria(&self, rule: &Rule, metrics: &mut Metrics) {
        let mut token_criterion = 0;
        let mut rejected_by_sequence = vec![false; self.records.len()];
        for criterion in &rule.criteria {
            if criterion.level == Level::Token {
                self.of_token_criterion(criterion, token_criterion, metrics);
                token_criterion += 1;
            } else {
                self.of_sequence_criterion(criterion, &mut rejected_by_sequence, metrics);
            }
        }
        let mut rejected = 0.0;
        let mut hit = 0.0;
        for (record, by_sequence) in self.records.iter().zip(rejected_by_sequence) {
            let count = record.total(Total::Count);
            let kept = if by_sequence { 0.0 } else { record.total(Total::Kept) };
            rejected += count - kept;
            hit += f64::from(count > kept);
        }
        metrics.push(("rollout_rs_masked_fraction".to_owned(), rejected / (self.tokens + COUNT_EPS)));
        metrics.push(("rollout_rs_seq_masked_fraction".to_owned(), hit / self.records.len() as f64));
    }

    fn of_token_criterion(&self, criterion: &Criterion, at: usize, metrics: &mut Metrics) {
        let share = |total| self.token_mean(|record| record.of_criterion(at, total));
        let divergence = |record: &Record| record.divergence(criterion.divergence);
        let mut put = |name: &str, value: f64| metrics.push((format!("rollout_rs_{}_{name}", criterion.name), value));
        put("mean", self.token_mean(|record| divergence(record).0));
        put("max", self.numbers(|record| divergence(record).1).max());
        put("min", self.numbers(|record| divergence(record).2).min());
        put("fraction_high", share(OfCriterion::High));
        put("fraction_low", share(OfCriterion::Low));
        put("std", self.std_of(share(OfCriterion::Clamped), share(OfCriterion::ClampedSquared)));
        let valid: Vec<&Record> = self.valid().collect();
        let of_sequences = |record: &&Record| divergence(record).0 / (record.total(Total::Count) + COUNT_EPS);
        let means = Numbers(valid.iter().map(of_sequences).collect());
        summary(criterion, &means, &mut put);
        let rejected = |record: &Record| record.total(Total::Count) - record.of_criterion(at, OfCriterion::Kept);
        put("masked_fraction", self.token_mean(rejected));
        put("seq_masked_fraction", Numbers(valid.iter().map(|record| rejected(record)).collect()).share(|n| n > 0.0));
    }

    fn of_sequence_criterion(&self, criterion: &Criterion, rejected: &mut [bool], metrics: &mut Metrics) {
        let statistic = |record: &Record| {
            let (sum, largest, _) = record.divergence(criterion.divergence);
            let count = record.total(Total::Count);
            match criterion.level {
                Level::Mean => sum / (count + COUNT_EPS),
                Level::Max if count == 0.0 => 0.0,
                Level::Max => largest,
                Level::Token | Level::Sum => sum,
            }
        };
        let is_rejected = |record: &Record| criterion.keeps(statistic(record)) != Some(true);
        for (record, rejected) in self.records.iter().zip(rejected) {
            *rejected |= is_rejected(record);
        }
        let spread = |record: &Record, of: &dyn Fn(f64) -> f64| record.total(Total::Count) * of(statistic(record));
        let within = |value: f64| value.clamp(criterion.lower.unwrap_or(0.0), criterion.upper);
        let statistics = Numbers(self.valid().map(statistic).collect());
        let mut put = |name: &str, value: f64| metrics.push((format!("rollout_rs_{}_{name}", criterion.name), value));
        put("mean", self.token_mean(|record| spread(record, &|value| value)));
        put("max", statistics.max());
        put("min", statistics.min());
        put("fraction_high", statistics.share(|value| value > criterion.upper));
        put("fraction_low", statistics.share(|value| criterion.lower.is_some_and(|lower| value < lower)));
        let mean = self.token_mean(|record| spread(record, &within));
        let squares = self.token_mean(|record| spread(record, &|value| within(value) * within(value)));
        put("std", self.std_of(mean, squares));
        summary(criterion, &statistics, &mut put);
        let count = |record: &Record| record.total(Total::Count);
        put("masked_fraction", self.token_mean(|record| count(record) * f64::from(is_rejected(record))));
        put("seq_masked_fraction", Numbers(self.valid().map(|r| f64::from(is_rejected(r))).collect()).mean());
    }

    /// Trajectories with a selected token.
    fn valid(&self) -> impl Iterator<Item = &Record> {
        self.records.iter().copied().filter(|record| record.total(Total::Count) > 0.0)
    }
}

/// What every criterion says of the trajectories' numbers.
fn summary(criterion: &Criterion, of_sequences: &Numbers, put: &mut dyn FnMut(&str, f64)) {
    put("seq_mean", of_sequences.mean());
    put("seq_std", of_sequences.std());
    put("seq_max", of_sequences.max());
    put("seq_min", of_sequences.min());
    put("seq_max_deviation", of_sequences.0.iter().map(|value| value.abs()).fold(0.0, f64::max));
    put("seq_fraction_high", of_sequences.share(|value| value > criterion.upper));
    if let Some(lower) = criterion.lower {
        put("seq_fraction_low", of_sequences.share(|value| value < lower));
    }
}
