//! `grpo_passk(value, rollout_id)`: the lead of the best rollout over the second best.

use super::rule::Name;
use super::window::CreditWindow;
use super::{
    DDOF, EPS, GROUP_SIZE, INCOMPLETE, MIN_STD, MISSING, NAN, ROLLOUT_ID, SCALE, SINGLETON, VALUE, VOTES,
    ZERO_VARIANCE, shared_rules,
};
use crate::function::{Function, Kind};

/// `grpo_passk`.
pub(crate) const GRPO_PASSK: Function = Function {
    name: "grpo_passk",
    family: "credit",
    version: 2,
    kind: Kind::Window(|| CreditWindow::udwf(Name::GrpoPassK)),
    params: &[
        VALUE,
        ROLLOUT_ID,
        DDOF,
        EPS,
        SCALE,
        SINGLETON,
        ZERO_VARIANCE,
        MISSING,
        NAN,
        GROUP_SIZE,
        INCOMPLETE,
        MIN_STD,
        VOTES,
    ],
    returns: "double",
    doc: "Returns credit to the best rollout of a group alone: its lead over the second best, over the group's standard deviation.",
    definition: concat!(
        "\
`(best - second) / (std + eps)` for the member with the best value, 0 for all others; std is that of all members, and `scale => 'none'` does not divide. Where \
several members share the best value the lead is 0.\n\n",
        shared_rules!()
    ),
    source: Some("Pass@k policy optimization, arXiv 2503.19595, as verl's grpo_passk (which raises on a singleton)"),
    slt: include_str!("grpo_passk.slt"),
};
