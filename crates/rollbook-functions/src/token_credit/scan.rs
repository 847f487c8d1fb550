//! Scans over the tokens of a trajectory, from its last token to its first.
//!
//! NaN is an unknown number and spreads towards earlier tokens, which depend on it.

use datafusion_common::{Result, plan_err};

use crate::constants::Constants;
use crate::number_lists::Unselected;

/// What a token that is not selected is to a scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Observations {
    /// No step: what is carried passes over it.
    Carry,
    /// A step with reward 0 and value 0.
    Zero,
    /// A step with its own reward and value.
    Step,
    /// The end of what comes before it: nothing passes over it.
    Reset,
}

impl Observations {
    /// Reads the argument `observations`.
    pub(super) fn of(constants: &Constants) -> Result<Self> {
        constants.choice(
            "observations",
            &[("carry", Self::Carry), ("zero", Self::Zero), ("step", Self::Step), ("reset", Self::Reset)],
        )
    }
}

/// Reads a factor between 0 and 1.
pub(super) fn factor(constants: &Constants, name: &str) -> Result<f64> {
    let value = constants.number(name)?;
    if !(0.0..=1.0).contains(&value) {
        return plan_err!("{name} must lie between 0 and 1, not {value}");
    }
    Ok(value)
}

/// One trajectory: rewards of its tokens, and which of them count.
#[derive(Debug, Clone, Copy)]
pub(super) struct Steps<'a> {
    pub(super) rewards: &'a [f64],
    pub(super) selected: &'a [bool],
    /// Observation tokens that stand between a token and the one before it and are not in the lists, by token.
    pub(super) gaps: &'a [(usize, u64)],
}

impl Steps<'_> {
    /// Returns the observation tokens before a token; asked from the last token to the first, each once.
    fn gap_before(gaps: &mut &[(usize, u64)], at: usize) -> u64 {
        let mut count = 0;
        while let Some(((place, gap), rest)) = gaps.split_last()
            && *place >= at
        {
            count += if *place == at { *gap } else { 0 };
            *gaps = rest;
        }
        count
    }
}

/// Returns the discounted sum of the rewards from each token on.
pub(super) fn returns(steps: Steps, gamma: f64, observations: Observations, unselected: Unselected) -> Vec<f64> {
    let mut result = vec![f64::NAN; steps.rewards.len()];
    let mut gaps = steps.gaps;
    let mut carried = 0.0;
    for at in (0..steps.rewards.len()).rev() {
        let is_step = steps.selected[at] || observations == Observations::Step;
        if is_step {
            carried = steps.rewards[at] + gamma * carried;
        } else if observations == Observations::Zero {
            carried *= gamma;
        } else if observations == Observations::Reset {
            carried = 0.0;
        }
        result[at] = if steps.selected[at] { carried } else { unselected.value(carried) };
        let gap = Steps::gap_before(&mut gaps, at);
        if gap > 0 && observations == Observations::Reset {
            carried = 0.0;
        } else if gap > 0 && observations != Observations::Carry {
            carried *= power(gamma, gap);
        }
    }
    result
}

/// The factors of generalized advantage estimation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Factors {
    pub(super) gamma: f64,
    pub(super) lam: f64,
}

/// Returns the advantage of each token.
pub(super) fn advantages(
    steps: Steps,
    values: &[f64],
    factors: Factors,
    observations: Observations,
    unselected: Unselected,
) -> Vec<f64> {
    let mut result = vec![f64::NAN; values.len()];
    let mut gaps = steps.gaps;
    let (mut next_value, mut carried) = (0.0, 0.0);
    for at in (0..values.len()).rev() {
        let step = match (steps.selected[at], observations) {
            (true, _) | (false, Observations::Step) => Some((steps.rewards[at], values[at])),
            (false, Observations::Zero) => Some((0.0, 0.0)),
            (false, Observations::Carry | Observations::Reset) => None,
        };
        if let Some((reward, value)) = step {
            let difference = reward + factors.gamma * next_value - value;
            carried = difference + factors.gamma * factors.lam * carried;
            next_value = value;
        } else if observations == Observations::Reset {
            (next_value, carried) = (0.0, 0.0);
        }
        result[at] = if steps.selected[at] { carried } else { unselected.value(carried) };
        let gap = Steps::gap_before(&mut gaps, at);
        if gap > 0 && observations == Observations::Step {
            // Nobody recorded the value of these steps. Where lambda is 1 differences telescope and none is needed: what the
            // token before the gap can still earn is the return after it.
            let ahead = if is_one(factors.lam) { power(factors.gamma, gap) * (next_value + carried) } else { f64::NAN };
            (next_value, carried) = (0.0, ahead);
        } else if gap > 0 && observations == Observations::Reset {
            (next_value, carried) = (0.0, 0.0);
        } else if gap > 0 && observations == Observations::Zero {
            // The last of the steps without value sees the next value, those before it see 0.
            let difference = factors.gamma * next_value + factors.gamma * factors.lam * carried;
            carried = difference * power(factors.gamma * factors.lam, gap - 1);
            next_value = 0.0;
        }
    }
    result
}

#[expect(clippy::float_cmp, reason = "only exactly 1 makes differences telescope")]
fn is_one(value: f64) -> bool {
    value == 1.0
}

fn power(base: f64, exponent: u64) -> f64 {
    base.powi(i32::try_from(exponent).unwrap_or(i32::MAX))
}
