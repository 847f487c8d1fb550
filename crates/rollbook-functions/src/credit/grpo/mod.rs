//! `grpo(value, rollout_id)`: group-relative advantage over the standard deviation.

use super::rule::Name;
use super::window::CreditWindow;
use super::{
    DDOF, EPS, GROUP_SIZE, INCOMPLETE, MIN_STD, MISSING, NAN, ROLLOUT_ID, SCALE, SINGLETON, VALUE, VOTES,
    ZERO_VARIANCE, shared_rules,
};
use crate::function::{Function, Kind, Param};

/// `grpo`.
pub(crate) const GRPO: Function = Function {
    name: "grpo",
    family: "credit",
    version: 3,
    kind: Kind::Window(|| CreditWindow::udwf(Name::Grpo)),
    params: &[
        VALUE,
        ROLLOUT_ID,
        DDOF,
        EPS,
        SCALE,
        Param::optional("leave_one_out", "boolean", "false", "Whether mean and std are those of the other members."),
        SINGLETON,
        ZERO_VARIANCE,
        MISSING,
        NAN,
        GROUP_SIZE,
        INCOMPLETE,
        MIN_STD,
        VOTES,
    ],
    returns: "double",
    doc: "Returns the group-relative advantage: a rollout's value less the mean of its group, over the group's standard deviation.",
    definition: concat!(
        "\
`(r - mean) / (std + eps)` with `mean = sum(r) / n` and `std = sqrt(sum((r - mean)^2) / (n - ddof))` over the members of the partition. \
With `scale => 'none'` the divisor is 1. With `leave_one_out => true` mean and std are those of the n - 1 other members; where the others have no \
spread (or are too few for one) the difference is not divided. A standard deviation over a whole batch beside the mean of a group is \
`dr_grpo(r, id) OVER (PARTITION BY group_id) / (rollout_std(r, id) OVER (PARTITION BY step) + eps)`.\n\n",
        shared_rules!()
    ),
    source: Some("DeepSeekMath, arXiv 2402.03300; ddof and eps as in verl and SkyRL (TRL: eps 1e-4; rLLM: ddof 0)"),
    slt: include_str!("grpo.slt"),
};
