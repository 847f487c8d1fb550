//! `importance_weights(train_logprobs, rollout_logprobs, mask, call_id)`: what corrects for tokens that another policy sampled.

use std::sync::Arc;

use arrow::array::ArrayRef;
use datafusion_common::{Result, plan_err};

use super::ratio::{LogRatios, Sum, bounded};
use super::{CALL_ID, MASK, ROLLOUT_LOGPROBS, TRAIN_LOGPROBS};
use crate::call_window::{Definition, Kernel, udwf};
use crate::constants::Constants;
use crate::function::{Function, Kind, Param};
use crate::number_lists::{NOT_FINITE, NotFinite, UNSELECTED, Unselected, number_list};

/// `importance_weights`.
pub(crate) const IMPORTANCE_WEIGHTS: Function = Function {
    name: "importance_weights",
    family: "off_policy",
    version: 1,
    kind: Kind::Window(|| udwf(DEFINITION)),
    params: &[
        TRAIN_LOGPROBS,
        ROLLOUT_LOGPROBS,
        MASK,
        CALL_ID,
        Param::optional(
            "level",
            "varchar",
            "'token'",
            "What a ratio runs over: 'token', 'sequence' (product over the trajectory) or 'geometric' (its geometric mean).",
        ),
        Param::optional(
            "mode",
            "varchar",
            "'truncate'",
            "'truncate' at upper, 'clip' to lower..upper, 'mask' 0 outside, 'keep' 1 inside and 0 outside, 'none' as it is.",
        ),
        Param::optional("upper", "double", "2.0", "Upper bound of the ratio."),
        Param::optional("lower", "double", "NULL", "Lower bound of the ratio; null is 0."),
        Param::optional(
            "veto",
            "double",
            "NULL",
            "Where a selected token's ratio lies below it, every weight of the trajectory is 0.",
        ),
        UNSELECTED,
        NOT_FINITE,
    ],
    returns: "double[]",
    doc: "Returns the importance weight of each token of a trajectory, truncated, clipped or masked.",
    definition: "\
`ratio = exp(d)` with `d = train_logprob - rollout_logprob` of the token, their sum over the selected tokens of the trajectory ('sequence'), or their mean \
('geometric'); exponents are clamped to -20..20. Truncated importance sampling (TIS) is 'truncate', IcePop 'mask' by token, masked importance sampling (MIS) \
'mask' by sequence or geometric mean; 'keep' rejects without weighting. Bounds belong to what is kept.\n\
\n\
- **Trajectory**: the calls of the partition, as for `gae`; with `level => 'token'` and no veto calls do not matter to each other.\n\
- **Mask** comes before arithmetic.\n\
- **Null**: an unknown logprob makes its token's weight null; with another level or a veto, all weights of the trajectory, unless a known token vetoes it.\n\
- **NaN or infinity** in a selected token is an error that names call and position (`not_finite`).\n\
- **Lengths**: lists of a call that differ in length are an error that names the call.",
    source: Some(
        "rollout_is in verl/trainer/ppo/rollout_corr_helper.py; IcePop, MIS and veto as in slime's train-inference mismatch helper",
    ),
    slt: include_str!("importance_weights.slt"),
};

pub(super) const DEFINITION: Definition = Definition {
    function: &IMPORTANCE_WEIGHTS,
    columns: 4,
    output: number_list,
    kernel: |constants| Ok(Arc::new(ImportanceWeights::of(constants)?)),
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Level {
    Token,
    Sequence,
    Geometric,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Truncate,
    Clip,
    Mask,
    Keep,
    None,
}

#[derive(Debug)]
struct ImportanceWeights {
    level: Level,
    mode: Mode,
    upper: f64,
    lower: f64,
    veto: Option<f64>,
    unselected: Unselected,
    not_finite: NotFinite,
}

impl ImportanceWeights {
    fn of(constants: &Constants) -> Result<Self> {
        let (upper, lower) = (constants.number("upper")?, constants.optional_number("lower")?.unwrap_or(0.0));
        if !(upper > 0.0 && (0.0..=upper).contains(&lower)) {
            return plan_err!(
                "importance_weights: 0 <= lower <= upper and upper > 0 must hold, not {lower} and {upper}"
            );
        }
        Ok(Self {
            level: constants.choice(
                "level",
                &[("token", Level::Token), ("sequence", Level::Sequence), ("geometric", Level::Geometric)],
            )?,
            mode: constants.choice(
                "mode",
                &[
                    ("truncate", Mode::Truncate),
                    ("clip", Mode::Clip),
                    ("mask", Mode::Mask),
                    ("keep", Mode::Keep),
                    ("none", Mode::None),
                ],
            )?,
            upper,
            lower,
            veto: constants.optional_number("veto")?,
            unselected: Unselected::of(constants)?,
            not_finite: NotFinite::of(constants)?,
        })
    }

    /// Returns the weight for a log ratio.
    fn weight(&self, log_ratio: f64) -> f64 {
        let ratio = bounded(log_ratio).exp();
        let is_inside = (self.lower..=self.upper).contains(&ratio);
        match self.mode {
            _ if ratio.is_nan() => f64::NAN,
            Mode::Truncate => ratio.min(self.upper),
            Mode::Clip => ratio.clamp(self.lower, self.upper),
            Mode::Mask => {
                if is_inside {
                    ratio
                } else {
                    0.0
                }
            }
            Mode::Keep => {
                if is_inside {
                    1.0
                } else {
                    0.0
                }
            }
            Mode::None => ratio,
        }
    }

    /// Returns the weight of each token, given the log ratios; those that are not selected get what they get.
    fn weights(&self, log_ratios: &[f64], selected: &[bool]) -> Vec<f64> {
        let counted = || log_ratios.iter().zip(selected).filter(|(_, selected)| **selected).map(|(ratio, _)| *ratio);
        let of_trajectory = |weight: f64| vec![weight; log_ratios.len()];
        if let Some(veto) = self.veto {
            if counted().any(|log_ratio| bounded(log_ratio).exp() < veto) {
                return of_trajectory(0.0);
            }
            if counted().any(f64::is_nan) {
                return of_trajectory(f64::NAN);
            }
        }
        if self.level == Level::Token {
            return log_ratios.iter().map(|log_ratio| self.weight(*log_ratio)).collect();
        }
        let (mut sum, mut count) = (Sum::default(), 0.0);
        counted().for_each(|log_ratio| {
            sum.add(log_ratio);
            count += 1.0;
        });
        let mean = if self.level == Level::Geometric { sum.get() / f64::max(count, 1.0) } else { sum.get() };
        of_trajectory(self.weight(mean))
    }
}

impl Kernel for ImportanceWeights {
    fn evaluate(&self, columns: &[ArrayRef], rows: usize) -> Result<ArrayRef> {
        let name = IMPORTANCE_WEIGHTS.name;
        let LogRatios { ids, tokens, values } = LogRatios::read(name, columns, rows, self.not_finite)?;
        let mut result = self.weights(&values, &tokens.selected);
        for (weight, selected) in result.iter_mut().zip(&tokens.selected).filter(|(_, selected)| !**selected) {
            *weight = if *selected { *weight } else { self.unselected.value(0.0) };
        }
        tokens.lists(name, &ids, result)
    }
}
