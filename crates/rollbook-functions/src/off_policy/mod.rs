//! Off-policy correction: how far the policy that sampled lies from the one that trains, token by token and trajectory by trajectory.
//!
//! Everything comes from one number a token, the log ratio `d = train_logprob - rollout_logprob`. What reaches over a trajectory (its sum,
//! its mean) runs over all its calls, so the functions are windows like those of token credit.

mod criteria;
mod importance_weights;
mod ratio;
mod rejection_mask;
mod rollout_correction_metrics;
#[cfg(test)]
mod tests;
mod token_kl;

use crate::function::Param;

pub(crate) use importance_weights::IMPORTANCE_WEIGHTS;
pub(crate) use rejection_mask::REJECTION_MASK;
pub(crate) use rollout_correction_metrics::ROLLOUT_CORRECTION_METRICS;
pub(crate) use token_kl::TOKEN_KL;

// Arguments that the functions share.
const TRAIN_LOGPROBS: Param =
    Param::required("train_logprobs", "double[]", "Logprob of each token under the policy that trains.");
const ROLLOUT_LOGPROBS: Param =
    Param::required("rollout_logprobs", "double[]", "Logprob of each token under the policy that sampled it.");
const MASK: Param =
    Param::required("mask", "boolean[]", "Which tokens are selected; a null list selects all, a null item none.");
const CALL_ID: Param = Param::required("call_id", "varchar", "The call of the row, named in errors.");
