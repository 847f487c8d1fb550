//! Arguments that the scans share, and the reading of them.

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::Int64Type;
use datafusion_common::{Result, exec_err, internal_err};

use super::scan::Steps;
use crate::call_window::{CallIds, Tokens};
use crate::function::Param;

pub(super) const REWARDS: Param = Param::required("rewards", "double[]", "Reward of each token.");
pub(super) const VALUES: Param =
    Param::required("state_values", "double[]", "Value of the state before each token, by the critic.");
pub(super) const MASK: Param =
    Param::required("mask", "boolean[]", "Which tokens are selected; a null list selects all, a null item none.");
pub(super) const CALL_ID: Param = Param::required("call_id", "varchar", "The call of the row, named in errors.");
pub(super) const GAP: Param = Param::optional(
    "gap",
    "bigint",
    "NULL",
    "Observation tokens between the call before and this one that stand in no list; null is 0.",
);
pub(super) const GAMMA: Param = Param::optional("gamma", "double", "1.0", "Discount of one step, from 0 to 1.");
pub(super) const LAM: Param =
    Param::optional("lam", "double", "1.0", "Weight of later differences (lambda), from 0 to 1.");
pub(super) const OBSERVATIONS: Param = Param::optional(
    "observations",
    "varchar",
    "'carry'",
    "Tokens that are not selected: 'carry' (no steps), 'zero' (steps with reward and value 0), 'step' (ordinary steps) or 'reset' \
     (nothing passes over them).",
);
pub(super) const UNSELECTED: Param = Param::optional(
    "unselected",
    "varchar",
    "'null'",
    "Result of a token that is not selected: 'null', 'zero' or 'carry' (what passes over it).",
);
pub(super) const OUTPUT: Param = Param::optional(
    "output",
    "varchar",
    "'advantage'",
    "What is returned: the 'advantage', or the 'return' (advantage plus value).",
);

/// The rules that hold for every scan over tokens, for the documentation.
macro_rules! scan_rules {
    () => {
        "\
- **Trajectory**: the calls of the partition in the window's order make one sequence of tokens; it ends with the last of them. \
`OVER (PARTITION BY run_id, rollout_id, trajectory_id ORDER BY call_index, call_id)` over the view `trajectories` is the usual window; ORDER BY must be unique.\n\
- **Mask** comes before arithmetic: what a token that is not selected holds, NaN included, is never looked at (but by `observations => 'step'`).\n\
- **Null**: an unknown number makes the token and every earlier one of the trajectory null, later ones stay. A null list is unknown as a whole; \
where all lists of a call are null its result is null, and it has no tokens.\n\
- **NaN or infinity** in a selected token is an error that names call and position (`not_finite`); so is a result beyond a double.\n\
- **Lengths**: lists of a call that differ in length are an error that names the call. An empty list gives an empty list.\n\
- One pass from the last token to the first: linear in tokens, and one trajectory is held at a time."
    };
}
pub(super) use scan_rules;

/// Reads the column `gap`: the tokens that have observations before them, in order.
pub(super) fn gaps(function: &str, column: &ArrayRef, ids: &CallIds, tokens: &Tokens) -> Result<Vec<(usize, u64)>> {
    let Some(column) = column.as_primitive_opt::<Int64Type>() else {
        return internal_err!("{function}: gap is of type {}", column.data_type());
    };
    let mut gaps = Vec::new();
    for (row, range) in tokens.ranges().enumerate() {
        if column.is_null(row) || column.value(row) == 0 {
            continue;
        }
        let Ok(gap) = u64::try_from(column.value(row)) else {
            return exec_err!("{function}: the gap before call {} is {}", ids.show(row), column.value(row));
        };
        gaps.push((range.start, gap));
    }
    Ok(gaps)
}

/// Makes the steps of a partition whose first list is the rewards.
pub(super) fn steps<'a>(tokens: &'a Tokens, gaps: &'a [(usize, u64)]) -> Result<Steps<'a>> {
    match tokens.numbers.first() {
        Some(rewards) => Ok(Steps { rewards, selected: &tokens.selected, gaps }),
        None => internal_err!("a scan without rewards"),
    }
}
