//! `rollout_std(value, rollout_id)`: the standard deviation over distinct rollouts.

use super::rule::Name;
use super::window::CreditWindow;
use super::{DDOF, MISSING, NAN, ROLLOUT_ID, VALUE, reading_rules};
use crate::function::{Function, Kind, Param};

/// `rollout_std`.
pub(crate) const ROLLOUT_STD: Function = Function {
    name: "rollout_std",
    family: "credit",
    version: 2,
    kind: Kind::Window(|| CreditWindow::udwf(Name::RolloutStd)),
    params: &[
        VALUE,
        ROLLOUT_ID,
        Param::optional(
            "weight",
            "double",
            "1",
            "Weight of the rollout, a column or a constant, such as its trained tokens.",
        ),
        DDOF,
        MISSING,
        NAN,
    ],
    returns: "double",
    doc: "Returns the standard deviation, weighted if asked, of the values of the partition's distinct rollouts.",
    definition: concat!(
        "\
`sqrt(sum(weight * (r - mean)^2) / (sum(weight) - ddof))` with the weighted mean, for every row of the partition; exactly 0 where all values are equal, null where \
`sum(weight)` is not above ddof. A null weight is a missing value, a negative one an error.\n\n",
        reading_rules!()
    ),
    source: None,
    slt: include_str!("rollout_std.slt"),
};
