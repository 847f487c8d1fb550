//! `clip(value, low, high)`: numbers cut at two bounds.

use datafusion_common::{Result, plan_err};

use super::elementwise::{Elementwise, Rule, udf};
use crate::constants::Constants;
use crate::function::{Function, Kind, Param};

/// `clip`.
pub(crate) const CLIP: Function = Function {
    name: "clip",
    family: "shaping",
    version: 1,
    kind: Kind::Scalar(|| udf(Elementwise { function: &CLIP, rule })),
    params: &[
        Param::required("value", "double | double[]", "The number, or a list of them."),
        Param::optional("low", "double", "NULL", "Least result; null is none."),
        Param::optional("high", "double", "NULL", "Greatest result; null is none."),
    ],
    returns: "double | double[]",
    doc: "Returns a number, or each number of a list, cut at a lower and an upper bound.",
    definition: "\
`min(max(value, low), high)`, with one bound, both or none; `clip(advantage, -1, 3)` is asymmetric.\n\
\n\
- A null stays null, where `least(greatest(value, low), high)` would make a bound of it. NaN stays NaN.\n\
- A low above high, and a bound that is NaN, are errors.",
    source: Some(
        "advantage clips of NeMo-RL (low and high), ROLL (symmetric), OpenRLHF (reward clip_range), RAGEN (asym_clip)",
    ),
    slt: include_str!("clip.slt"),
};

fn rule(constants: &Constants) -> Result<Rule> {
    let (low, high) = (constants.optional_number("low")?, constants.optional_number("high")?);
    if low.or(high).is_some_and(f64::is_nan) || high.is_some_and(f64::is_nan) {
        return plan_err!("clip: a bound must not be NaN");
    }
    match (low, high) {
        (Some(low), Some(high)) if low > high => plan_err!("clip: low {low} is above high {high}"),
        _ => Ok(Rule::Clip { low, high }),
    }
}
