//! What the metrics are asked for: weights, criteria, or neither.

use datafusion_common::{Result, plan_err};

use super::super::criteria::{Bounds, Criterion, Level};
use crate::constants::Constants;

/// What a weight runs over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WeightLevel {
    Token,
    Sequence,
}

/// How weights are made.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Weights {
    pub(super) level: WeightLevel,
    pub(super) bounds: Bounds,
    pub(super) normalize: bool,
}

/// The constants of a call.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Rule {
    pub(super) weights: Option<Weights>,
    pub(super) criteria: Vec<Criterion>,
}

impl Rule {
    pub(super) fn of(constants: &Constants) -> Result<Self> {
        let weights = match constants.text("rollout_is")?.as_deref() {
            None => None,
            Some(level) => {
                let level = match level {
                    "token" => WeightLevel::Token,
                    "sequence" => WeightLevel::Sequence,
                    other => return plan_err!("rollout_is must be 'token', 'sequence' or null, not {other}"),
                };
                let bounds = constants.text("rollout_is_threshold")?.unwrap_or_default();
                let normalize = constants.boolean("rollout_is_batch_normalize")?;
                Some(Weights { level, bounds: Bounds::parse(&bounds)?, normalize })
            }
        };
        let criteria = match (constants.text("rollout_rs")?, constants.text("rollout_rs_threshold")?) {
            (None, _) => Vec::new(),
            (Some(_), None) => return plan_err!("rollout_rs needs a rollout_rs_threshold"),
            (Some(options), Some(thresholds)) => Criterion::parse(&options, &thresholds)?,
        };
        Ok(Self { weights, criteria })
    }

    /// Returns the criteria that judge single tokens.
    pub(super) fn token_criteria(&self) -> impl Iterator<Item = &Criterion> {
        self.criteria.iter().filter(|criterion| criterion.level == Level::Token)
    }
}

impl Weights {
    /// Returns the weight for a ratio.
    pub(super) fn applied(&self, ratio: f64) -> f64 {
        match self.bounds.lower {
            None => ratio.min(self.bounds.upper),
            Some(lower) if ratio < lower || ratio > self.bounds.upper => 0.0,
            Some(_) => ratio,
        }
    }

    /// Returns the bound below which a ratio counts as low.
    pub(super) fn low(&self) -> f64 {
        self.bounds.lower.unwrap_or(1.0 / self.bounds.upper)
    }
}
