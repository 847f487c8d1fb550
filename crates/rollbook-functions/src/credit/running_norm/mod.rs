//! `running_norm(value, rollout_id, position)`: normalization by everything so far.

use super::rule::Name;
use super::window::CreditWindow;
use super::{DDOF, MISSING, NAN, POSITION, ROLLOUT_ID, VALUE, reading_rules};
use crate::function::{Function, Kind, Param};

/// `running_norm`.
pub(crate) const RUNNING_NORM: Function = Function {
    name: "running_norm",
    family: "credit",
    version: 1,
    kind: Kind::Window(|| CreditWindow::udwf(Name::RunningNorm)),
    params: &[
        VALUE,
        ROLLOUT_ID,
        POSITION,
        DDOF,
        Param::optional("eps", "double", "1e-8", "Added to the standard deviation."),
        MISSING,
        NAN,
    ],
    returns: "double",
    doc: "Returns a rollout's value less the mean of all values so far, over their standard deviation.",
    definition: concat!(
        "\
`(r - mean) / (std + eps)` with mean and std over the members of the partition whose position is at most the rollout's own: with `position => step` each step \
is normalized by all steps up to it. Steps are joined by their means and sums of squares (T. Chan), no term of which cancels. A null position is a \
missing value; no difference gives 0.\n\n",
        reading_rules!()
    ),
    source: Some("Running reward normalization as in ROLL"),
    slt: include_str!("running_norm.slt"),
};
