//! Log ratios, and what is made of them.

use arrow::array::ArrayRef;
use datafusion_common::{Result, internal_err};

use crate::call_window::{CallIds, Tokens};
use crate::number_lists::{Lists, NotFinite};

/// The tokens of a trajectory, each with its log ratio.
pub(super) struct LogRatios<'a> {
    pub(super) ids: CallIds<'a>,
    pub(super) tokens: Tokens,
    pub(super) values: Vec<f64>,
}

impl<'a> LogRatios<'a> {
    /// Reads the columns that the functions share: `train_logprobs`, `rollout_logprobs`, `mask`, `call_id`.
    pub(super) fn read(function: &str, columns: &'a [ArrayRef], rows: usize, not_finite: NotFinite) -> Result<Self> {
        let [train, rollout, mask, call_ids, ..] = columns else {
            return internal_err!("{function} over {} columns", columns.len());
        };
        let ids = CallIds::of(call_ids)?;
        let (train, rollout) = (Lists::of("train_logprobs", train)?, Lists::of("rollout_logprobs", rollout)?);
        let mask = Lists::of("mask", mask)?;
        let tokens = Tokens::read(function, &ids, &mask, &[&train, &rollout], rows, not_finite)?;
        let values = tokens.numbers[0].iter().zip(&tokens.numbers[1]).map(|(train, rollout)| train - rollout).collect();
        Ok(Self { ids, tokens, values })
    }
}

/// Bound of the exponents, as verl clamps them: exp(20) is about 485 million.
pub(super) const LOG_BOUND: f64 = 20.0;

/// Returns a log ratio within the bounds of exponents; NaN stays.
pub(super) fn bounded(log_ratio: f64) -> f64 {
    log_ratio.clamp(-LOG_BOUND, LOG_BOUND)
}

/// Schulman's estimators of the divergence from the policy that sampled to the one that trains, of one token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Divergence {
    K1,
    K2,
    K3,
}

impl Divergence {
    /// Returns the estimate for a log ratio.
    pub(super) fn of(self, log_ratio: f64) -> f64 {
        match self {
            Self::K1 => -log_ratio,
            Self::K2 => 0.5 * log_ratio * log_ratio,
            Self::K3 => log_ratio.exp() - 1.0 - log_ratio,
        }
    }
}

/// A sum that carries what rounding drops (Neumaier's); NaN spreads.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Sum {
    total: f64,
    rest: f64,
}

impl Sum {
    /// Adds a number.
    pub(super) fn add(&mut self, value: f64) {
        let total = self.total + value;
        self.rest +=
            if self.total.abs() >= value.abs() { (self.total - total) + value } else { (value - total) + self.total };
        self.total = total;
    }

    /// Returns the sum.
    pub(super) fn get(self) -> f64 {
        self.total + self.rest
    }
}
