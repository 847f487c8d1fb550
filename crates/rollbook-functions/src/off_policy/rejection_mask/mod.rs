//! `rejection_mask(train_logprobs, rollout_logprobs, mask, call_id)`: which tokens stay after off-policy ones are rejected.

use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray};
use datafusion_common::{Result, plan_err};

use super::criteria::{Criterion, Level};
use super::ratio::{LogRatios, bounded};
use super::{CALL_ID, MASK, ROLLOUT_LOGPROBS, TRAIN_LOGPROBS};
use crate::call_window::{Definition, Kernel, udwf};
use crate::function::{Function, Kind, Param};
use crate::number_lists::{NOT_FINITE, NotFinite, mask_list, masks_of};

/// `rejection_mask`.
pub(crate) const REJECTION_MASK: Function = Function {
    name: "rejection_mask",
    family: "off_policy",
    version: 1,
    kind: Kind::Window(|| udwf(DEFINITION)),
    params: &[
        TRAIN_LOGPROBS,
        ROLLOUT_LOGPROBS,
        MASK,
        CALL_ID,
        Param::optional(
            "rollout_rs",
            "varchar",
            "'token_k1'",
            "Criteria with commas between: token_k1, k2, k3; seq_sum_k1, k2, k3; seq_mean_k1, k2, k3; seq_max_k2, k3.",
        ),
        Param::optional(
            "rollout_rs_threshold",
            "varchar",
            "'2.0'",
            "One threshold for all, or one each: for k1 bounds of the ratio as lower_upper (u alone is 1/u_u), else an upper bound.",
        ),
        NOT_FINITE,
    ],
    returns: "boolean[]",
    doc: "Returns which selected tokens of a trajectory pass every criterion on the distance between the policies.",
    definition: "\
With `d = train_logprob - rollout_logprob`, clamped to -20..20: `k1 = -d`, `k2 = d^2 / 2`, `k3 = exp(d) - 1 - d`. A token criterion judges each token, a seq \
criterion the sum, mean (over n + 1e-8) or largest of the selected tokens of the trajectory, and keeps or rejects all of them. Bounds of k1 are compared as \
logarithms. Bounds belong to what is kept.\n\
\n\
- **Trajectory**: the calls of the partition, as for `gae`.\n\
- **Result**: true for a selected token that every criterion keeps; tokens that are not selected are false.\n\
- **Null**: an unknown logprob makes its token null, and with a seq criterion every selected token that no other criterion rejects.\n\
- **NaN or infinity** in a selected token is an error that names call and position (`not_finite`); lists of different lengths are one too.",
    source: Some("rollout_rs in verl/trainer/ppo/rollout_corr_helper.py"),
    slt: include_str!("rejection_mask.slt"),
};

pub(super) const DEFINITION: Definition = Definition {
    function: &REJECTION_MASK,
    columns: 4,
    output: mask_list,
    kernel: |constants| {
        let (Some(options), Some(thresholds)) =
            (constants.text("rollout_rs")?, constants.text("rollout_rs_threshold")?)
        else {
            return plan_err!("rejection_mask: rollout_rs and rollout_rs_threshold must not be null");
        };
        Ok(Arc::new(RejectionMask {
            criteria: Criterion::parse(&options, &thresholds)?,
            not_finite: NotFinite::of(constants)?,
        }))
    },
};

#[derive(Debug)]
struct RejectionMask {
    criteria: Vec<Criterion>,
    not_finite: NotFinite,
}

impl Kernel for RejectionMask {
    fn evaluate(&self, columns: &[ArrayRef], rows: usize) -> Result<ArrayRef> {
        let name = REJECTION_MASK.name;
        let LogRatios { tokens, values: log_ratios, .. } = LogRatios::read(name, columns, rows, self.not_finite)?;
        let selected = || log_ratios.iter().zip(&tokens.selected).filter(|(_, selected)| **selected);
        let mut kept: Vec<Option<bool>> = tokens.selected.iter().map(|selected| Some(*selected)).collect();
        for criterion in &self.criteria {
            let of_trajectory = criterion.statistic(selected().map(|(log_ratio, _)| *log_ratio));
            for (kept, log_ratio) in kept.iter_mut().zip(&log_ratios) {
                let verdict = match criterion.level {
                    Level::Token => criterion.keeps(criterion.divergence.of(bounded(*log_ratio))),
                    _ => criterion.keeps(of_trajectory),
                };
                *kept = both(*kept, verdict);
            }
        }
        masks_of(&tokens.lengths, BooleanArray::from(kept))
    }
}

/// Returns whether both hold; what one denies is decided, whatever the other is.
fn both(one: Option<bool>, other: Option<bool>) -> Option<bool> {
    match (one, other) {
        (Some(false), _) | (_, Some(false)) => Some(false),
        (Some(true), Some(true)) => Some(true),
        _ => None,
    }
}
