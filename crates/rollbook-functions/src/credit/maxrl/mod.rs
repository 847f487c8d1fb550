//! `maxrl(value, rollout_id)`: a rollout's value less the mean, over the mean.

use super::rule::Name;
use super::window::CreditWindow;
use super::{GROUP_SIZE, INCOMPLETE, MISSING, NAN, ROLLOUT_ID, SINGLETON, VALUE, VOTES, ZERO_VARIANCE, shared_rules};
use crate::function::{Function, Kind, Param};

/// `maxrl`.
pub(crate) const MAXRL: Function = Function {
    name: "maxrl",
    family: "credit",
    version: 2,
    kind: Kind::Window(|| CreditWindow::udwf(Name::MaxRl)),
    params: &[
        VALUE,
        ROLLOUT_ID,
        Param::optional("eps", "double", "0", "Added to the mean that divides."),
        Param::optional(
            "nonpositive_mean",
            "varchar",
            "'zero'",
            "Credit where the mean is not above 0: 'zero', 'null', or 'divide' as elsewhere.",
        ),
        SINGLETON,
        ZERO_VARIANCE,
        MISSING,
        NAN,
        GROUP_SIZE,
        INCOMPLETE,
        VOTES,
    ],
    returns: "double",
    doc: "Returns a rollout's value less the mean of its group, over that mean.",
    definition: concat!(
        "\
`(r - mean) / (mean + eps)` with `mean = sum(r) / n` over the members of the partition. Where the mean is 0 or less, the ratio has no meaning and the credit is \
0 (`nonpositive_mean`); a division by 0 is an error that names the rollout.\n\n",
        shared_rules!()
    ),
    source: Some(
        "MaxRL as in prime-rl (eps 0, zero where the mean is not positive); SkyRL has eps 1e-6 and divides always",
    ),
    slt: include_str!("maxrl.slt"),
};
