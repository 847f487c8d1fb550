//! `rloo(value, rollout_id)`: a rollout's value less the mean of the others.

use super::rule::Name;
use super::window::CreditWindow;
use super::{GROUP_SIZE, INCOMPLETE, MISSING, NAN, ROLLOUT_ID, SINGLETON, VALUE, VOTES, ZERO_VARIANCE, shared_rules};
use crate::function::{Function, Kind};

/// `rloo`.
pub(crate) const RLOO: Function = Function {
    name: "rloo",
    family: "credit",
    version: 2,
    kind: Kind::Window(|| CreditWindow::udwf(Name::Rloo)),
    params: &[VALUE, ROLLOUT_ID, SINGLETON, ZERO_VARIANCE, MISSING, NAN, GROUP_SIZE, INCOMPLETE, VOTES],
    returns: "double",
    doc: "Returns a rollout's value less the mean of the other members of its group.",
    definition: concat!(
        "`n / (n - 1) * (r - mean)` with `mean = sum(r) / n` over the n members of the partition; computed as `n * (r - mean) / (n - 1)`.\n\n",
        shared_rules!()
    ),
    source: Some(
        "Back to Basics: REINFORCE-style optimization, arXiv 2402.14740; a singleton gets 0 as in TRL and SkyRL (verl: its value)",
    ),
    slt: include_str!("rloo.slt"),
};
