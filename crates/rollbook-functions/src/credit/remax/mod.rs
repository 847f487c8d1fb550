//! `remax(value, rollout_id, is_greedy)`: a rollout's value less that of the greedy rollout.

use super::rule::Name;
use super::window::CreditWindow;
use super::{MISSING, NAN, ROLLOUT_ID, VALUE, reading_rules};
use crate::function::{Function, Kind, Param};

/// `remax`.
pub(crate) const REMAX: Function = Function {
    name: "remax",
    family: "credit",
    version: 1,
    kind: Kind::Window(|| CreditWindow::udwf(Name::ReMax)),
    params: &[
        VALUE,
        ROLLOUT_ID,
        Param::required(
            "is_greedy",
            "boolean",
            "Whether the rollout was decoded greedily and is the baseline; null is false.",
        ),
        Param::optional(
            "no_greedy",
            "varchar",
            "'null'",
            "Credit in a group without a greedy rollout: 'null', its 'value', or 'error'.",
        ),
        MISSING,
        NAN,
    ],
    returns: "double",
    doc: "Returns a rollout's value less that of the greedy rollout of its group.",
    definition: concat!(
        "\
`r - b` with b the value of the greedy member of the partition, or the mean of several. The greedy rollouts are the baseline and get null.\n\n",
        reading_rules!()
    ),
    source: Some("ReMax, arXiv 2310.10505"),
    slt: include_str!("remax.slt"),
};
