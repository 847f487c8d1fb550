//! `opo(value, rollout_id, length)`: a rollout's value less the length-weighted mean.

use super::rule::Name;
use super::window::CreditWindow;
use super::{GROUP_SIZE, INCOMPLETE, MISSING, NAN, ROLLOUT_ID, SINGLETON, VALUE, VOTES, ZERO_VARIANCE, shared_rules};
use crate::function::{Function, Kind, Param};

/// `opo`.
pub(crate) const OPO: Function = Function {
    name: "opo",
    family: "credit",
    version: 1,
    kind: Kind::Window(|| CreditWindow::udwf(Name::Opo)),
    params: &[
        VALUE,
        ROLLOUT_ID,
        Param::required("length", "double", "Weight of the rollout in the baseline: its trained tokens."),
        SINGLETON,
        ZERO_VARIANCE,
        MISSING,
        NAN,
        GROUP_SIZE,
        INCOMPLETE,
        VOTES,
    ],
    returns: "double",
    doc: "Returns a rollout's value less the length-weighted mean of its group.",
    definition: concat!(
        "\
`r - sum(length * r) / sum(length)` over the members of the partition. A null length is a missing value, a negative one an error; where all lengths are 0 \
there is no baseline and the credit is null. Votes only decide who is a singleton: a length counts all rows of its rollout.\n\n",
        shared_rules!()
    ),
    source: Some("On-policy RL with optimal reward baseline, arXiv 2505.23585; a singleton gets 0 (verl: its value)"),
    slt: include_str!("opo.slt"),
};
