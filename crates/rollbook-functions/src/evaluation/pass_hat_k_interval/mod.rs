//! `pass_hat_k_interval(is_success, rollout_id, k)`: Wilson's interval of pass^k.

use super::udaf::{Evaluation, Name};
use super::{CONFIDENCE, IS_SUCCESS, K, ROLLOUT_ID, attempt_rules};
use crate::function::{Function, Kind};

/// `pass_hat_k_interval`.
pub(crate) const PASS_HAT_K_INTERVAL: Function = Function {
    name: "pass_hat_k_interval",
    family: "evaluation",
    version: 1,
    kind: Kind::Aggregate(|| Evaluation::udaf(Name::PassHatKInterval)),
    params: &[IS_SUCCESS, ROLLOUT_ID, K, CONFIDENCE],
    returns: "struct(low double, high double)",
    doc: "Returns Wilson's confidence interval of the chance that all of k attempts succeed.",
    definition: concat!(
        "\
Wilson's score interval of the chance of one attempt, from c successes in n attempts, each end p carried over to `p^k`. It is an interval for one task; for the mean over tasks see \
`mean_interval`. Both ends are null without attempts; n may be less than k.\n\n",
        attempt_rules!()
    ),
    source: Some("E. B. Wilson, Probable inference, the law of succession, and statistical inference, 1927"),
    slt: include_str!("pass_hat_k_interval.slt"),
};
