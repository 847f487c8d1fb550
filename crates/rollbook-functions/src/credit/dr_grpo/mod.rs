//! `dr_grpo(value, rollout_id)`: group-relative advantage without the standard deviation.

use super::rule::Name;
use super::window::CreditWindow;
use super::{GROUP_SIZE, INCOMPLETE, MISSING, NAN, ROLLOUT_ID, SINGLETON, VALUE, VOTES, ZERO_VARIANCE, shared_rules};
use crate::function::{Function, Kind};

/// `dr_grpo`.
pub(crate) const DR_GRPO: Function = Function {
    name: "dr_grpo",
    family: "credit",
    version: 2,
    kind: Kind::Window(|| CreditWindow::udwf(Name::DrGrpo)),
    params: &[VALUE, ROLLOUT_ID, SINGLETON, ZERO_VARIANCE, MISSING, NAN, GROUP_SIZE, INCOMPLETE, VOTES],
    returns: "double",
    doc: "Returns a rollout's value less the mean of its group.",
    definition: concat!("`r - mean` with `mean = sum(r) / n` over the members of the partition.\n\n", shared_rules!()),
    source: Some("Understanding R1-Zero-like training, arXiv 2503.20783; prime-rl calls it grpo"),
    slt: include_str!("dr_grpo.slt"),
};
