//! `pass_at_k(is_success, rollout_id, k)`: the chance that one of k attempts succeeds.

use super::udaf::{Evaluation, Name};
use super::{IS_SUCCESS, K, ROLLOUT_ID, attempt_rules};
use crate::function::{Function, Kind};

/// `pass_at_k`.
pub(crate) const PASS_AT_K: Function = Function {
    name: "pass_at_k",
    family: "evaluation",
    version: 1,
    kind: Kind::Aggregate(|| Evaluation::udaf(Name::PassAtK)),
    params: &[IS_SUCCESS, ROLLOUT_ID, K],
    returns: "double",
    doc: "Returns the unbiased estimate of the chance that at least one of k attempts succeeds.",
    definition: concat!(
        "\
`1 - C(n - c, k) / C(n, k)` for c successes in n attempts: the share of all draws of k attempts out of the n that hold a success. Null where there are fewer than k attempts.\n\n",
        attempt_rules!()
    ),
    source: Some("Evaluating large language models trained on code, arXiv 2107.03374"),
    slt: include_str!("pass_at_k.slt"),
};
