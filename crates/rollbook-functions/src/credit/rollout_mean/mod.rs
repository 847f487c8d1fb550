//! `rollout_mean(value, rollout_id)`: the mean over distinct rollouts.

use super::rule::Name;
use super::window::CreditWindow;
use super::{MISSING, NAN, ROLLOUT_ID, VALUE, reading_rules};
use crate::function::{Function, Kind, Param};

/// `rollout_mean`.
pub(crate) const ROLLOUT_MEAN: Function = Function {
    name: "rollout_mean",
    family: "credit",
    version: 1,
    kind: Kind::Window(|| CreditWindow::udwf(Name::RolloutMean)),
    params: &[
        VALUE,
        ROLLOUT_ID,
        Param::optional(
            "weight",
            "double",
            "1",
            "Weight of the rollout, a column or a constant, such as its trained tokens.",
        ),
        MISSING,
        NAN,
    ],
    returns: "double",
    doc: "Returns the mean, weighted if asked, of the values of the partition's distinct rollouts.",
    definition: concat!(
        "\
`sum(weight * r) / sum(weight)`, for every row of the partition; null where no rollout has a value, or all weights are 0. A null weight is a missing value, a \
negative one an error. With the trained tokens as weight it is the mean over tokens of a credit that is constant over a rollout.\n\n",
        reading_rules!()
    ),
    source: None,
    slt: include_str!("rollout_mean.slt"),
};
