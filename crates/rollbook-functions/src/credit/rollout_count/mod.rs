//! `rollout_count(value, rollout_id)`: the rollouts that have a value.

use super::rule::Name;
use super::window::CreditWindow;
use super::{MISSING, NAN, ROLLOUT_ID, VALUE, reading_rules};
use crate::function::{Function, Kind};

/// `rollout_count`.
pub(crate) const ROLLOUT_COUNT: Function = Function {
    name: "rollout_count",
    family: "credit",
    version: 1,
    kind: Kind::Window(|| CreditWindow::udwf(Name::RolloutCount)),
    params: &[VALUE, ROLLOUT_ID, MISSING, NAN],
    returns: "double",
    doc: "Returns how many distinct rollouts of the partition have a value.",
    definition: concat!(
        "\
n, for every row of the partition; 0 where no rollout has a value.\n\n",
        reading_rules!()
    ),
    source: None,
    slt: include_str!("rollout_count.slt"),
};
