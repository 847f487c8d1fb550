//! `rollout_sum(value, rollout_id)`: the sum over distinct rollouts.

use super::rule::Name;
use super::window::CreditWindow;
use super::{MISSING, NAN, ROLLOUT_ID, VALUE, reading_rules};
use crate::function::{Function, Kind};

/// `rollout_sum`.
pub(crate) const ROLLOUT_SUM: Function = Function {
    name: "rollout_sum",
    family: "credit",
    version: 1,
    kind: Kind::Window(|| CreditWindow::udwf(Name::RolloutSum)),
    params: &[VALUE, ROLLOUT_ID, MISSING, NAN],
    returns: "double",
    doc: "Returns the sum of the values of the partition's distinct rollouts.",
    definition: concat!(
        "\
`sum(r)`, exact and rounded once, for every row of the partition; null where no rollout has a value.\n\n",
        reading_rules!()
    ),
    source: None,
    slt: include_str!("rollout_sum.slt"),
};
