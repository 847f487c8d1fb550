//! `pass_hat_k(is_success, rollout_id, k)`: the chance that all of k attempts succeed.

use super::udaf::{Evaluation, Name};
use super::{IS_SUCCESS, K, ROLLOUT_ID, attempt_rules};
use crate::function::{Function, Kind};

/// `pass_hat_k`.
pub(crate) const PASS_HAT_K: Function = Function {
    name: "pass_hat_k",
    family: "evaluation",
    version: 1,
    kind: Kind::Aggregate(|| Evaluation::udaf(Name::PassHatK)),
    params: &[IS_SUCCESS, ROLLOUT_ID, K],
    returns: "double",
    doc: "Returns the unbiased estimate of the chance that all of k attempts succeed.",
    definition: concat!(
        "\
`C(c, k) / C(n, k)` for c successes in n attempts: the share of all draws of k attempts out of the n that hold nothing but successes. Null where there are fewer than k \
attempts.\n\n",
        attempt_rules!()
    ),
    source: Some("tau-bench, arXiv 2406.12045, where it is pass^k"),
    slt: include_str!("pass_hat_k.slt"),
};
