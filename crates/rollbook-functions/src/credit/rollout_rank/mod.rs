//! `rollout_rank(value, rollout_id)`: the place among distinct rollouts.

use super::rule::Name;
use super::window::CreditWindow;
use super::{MISSING, NAN, ROLLOUT_ID, VALUE, reading_rules};
use crate::function::{Function, Kind, Param};

/// `rollout_rank`.
pub(crate) const ROLLOUT_RANK: Function = Function {
    name: "rollout_rank",
    family: "credit",
    version: 1,
    kind: Kind::Window(|| CreditWindow::udwf(Name::RolloutRank)),
    params: &[
        VALUE,
        ROLLOUT_ID,
        Param::optional(
            "unit",
            "varchar",
            "'rank'",
            "How it is told: 'rank' (1 to n), 'quantile' ((rank - 0.5) / n), 'unit' ((rank - 1) / (n - 1)) or 'centered' (unit - 0.5).",
        ),
        Param::optional(
            "ties",
            "varchar",
            "'average'",
            "Rank that equal values share: the 'average', the 'least' or the 'greatest' of theirs.",
        ),
        MISSING,
        NAN,
    ],
    returns: "double",
    doc: "Returns the rank of a rollout's value among those of the partition's distinct rollouts.",
    definition: concat!(
        "\
The place from the smallest value on, from 1; equal values share a rank (`ties`). The only rollout has rank 1, unit 0.5 and centered 0.\n\n",
        reading_rules!()
    ),
    source: None,
    slt: include_str!("rollout_rank.slt"),
};
