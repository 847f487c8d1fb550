//! `rae(value, rollout_id, position)`: a rollout's value less a moving average of those before it.

use super::rule::Name;
use super::window::CreditWindow;
use super::{MISSING, NAN, POSITION, ROLLOUT_ID, VALUE, reading_rules};
use crate::function::{Function, Kind, Param};

/// `rae`.
pub(crate) const RAE: Function = Function {
    name: "rae",
    family: "credit",
    version: 1,
    kind: Kind::Window(|| CreditWindow::udwf(Name::Rae)),
    params: &[
        VALUE,
        ROLLOUT_ID,
        POSITION,
        Param::optional("decay", "double", "0.95", "Share of the old average that stays."),
        Param::optional("initial", "double", "0", "The average before the first rollout."),
        MISSING,
        NAN,
    ],
    returns: "double",
    doc: "Returns a rollout's value less the moving average of the values scored before it.",
    definition: concat!(
        "\
`r - m`, after which `m = decay * m + (1 - decay) * r`, over the members of the partition by position, then by rollout id; m begins at `initial`. A rollout is \
scored before it moves the average. A null position is a missing value. Partition by environment and agent.\n\n",
        reading_rules!()
    ),
    source: Some("Role-conditioned advantage estimation, arXiv 2506.24119; decay and order as in prime-rl"),
    slt: include_str!("rae.slt"),
};
