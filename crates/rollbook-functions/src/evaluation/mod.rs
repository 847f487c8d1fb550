//! Evaluation: how often a task is solved in several attempts, and how sure that is.
//!
//! ```text
//! rows (is_success, rollout_id)  ->  n distinct attempts, c of them successes  ->  estimate, or interval
//!                                    attempts.rs                                   estimate.rs
//! ```

mod attempts;
mod distribution;
mod estimate;
mod mean_interval;
mod pass_at_k;
mod pass_at_k_interval;
mod pass_hat_k;
mod pass_hat_k_interval;
mod udaf;

use crate::function::Param;

pub(crate) use mean_interval::MEAN_INTERVAL;
pub(crate) use pass_at_k::PASS_AT_K;
pub(crate) use pass_at_k_interval::PASS_AT_K_INTERVAL;
pub(crate) use pass_hat_k::PASS_HAT_K;
pub(crate) use pass_hat_k_interval::PASS_HAT_K_INTERVAL;

// Arguments that the functions share.
const IS_SUCCESS: Param = Param::required("is_success", "boolean", "Whether the attempt solved the task.");
const ROLLOUT_ID: Param = Param::required("rollout_id", "varchar", "The attempt; its rows count once.");
const K: Param = Param::optional("k", "bigint", "1", "Attempts that the question is about.");
const CONFIDENCE: Param =
    Param::optional("confidence", "double", "0.95", "Share of experiments whose interval holds the true value.");

/// The rules that hold for every aggregate over attempts, for the documentation.
macro_rules! attempt_rules {
    () => {
        "\
- **Attempts** are the distinct rollouts; a rollout that stands in several rows counts once. A rollout that is a success in one row and none in \
another is an error that names it, a null rollout_id is one too.\n\
- **Null**: a rollout whose is_success is null is no attempt.\n\
- Group by the task: tasks are to be averaged, not their attempts thrown together.\n\
- The attempts of a group are held in memory while it is aggregated."
    };
}
use attempt_rules;
