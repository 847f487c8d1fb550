//! `place_reward(value, mask, call_id)`: the token rewards that a reward of a rollout or a call becomes.

use std::sync::Arc;

use arrow::array::ArrayRef;
use datafusion_common::{Result, exec_err, internal_err};

use super::read::{CALL_ID, MASK};
use super::turns::column;
use crate::call_window::{CallIds, Definition, Kernel, Tokens, udwf};
use crate::function::{Function, Kind, Param};
use crate::number_lists::{Lists, NOT_FINITE, NotFinite, number_list};

/// `place_reward`.
pub(crate) const PLACE_REWARD: Function = Function {
    name: "place_reward",
    family: "token_credit",
    version: 1,
    kind: Kind::Window(|| udwf(DEFINITION)),
    params: &[
        Param::required("value", "double", "The reward: of the trajectory, or of the call."),
        MASK,
        CALL_ID,
        Param::optional(
            "at",
            "varchar",
            "'end'",
            "'end': one reward, at the last selected token of the trajectory; 'call': each call's own, at its last selected token.",
        ),
        NOT_FINITE,
    ],
    returns: "double[]",
    doc: "Returns token rewards that are zero but where the reward of a trajectory or call falls due.",
    definition: "\
- `at => 'end'`: value is the same in all rows of the partition (unequal ones are an error) and stands at the last selected token of the last call that \
has one.\n\
- `at => 'call'`: the value of each call stands at its last selected token. A call without one hands its value to the nearest earlier call that has \
one, where it is added; with none before it, the value belongs to nobody's action and falls away.\n\
- A null value makes that one token null, which is unknown; the others are 0. A null call value with no selected token is 0.\n\
- The mask decides how long a list is, so it must not be null: the result is null where it is.\n\
- NaN or infinity is an error that names the call (`not_finite`).",
    source: None,
    slt: include_str!("place_reward.slt"),
};

const DEFINITION: Definition = Definition {
    function: &PLACE_REWARD,
    columns: 3,
    output: number_list,
    kernel: |constants| {
        Ok(Arc::new(PlaceReward {
            by_call: constants.choice("at", &[("end", false), ("call", true)])?,
            not_finite: NotFinite::of(constants)?,
        }))
    },
};

#[derive(Debug)]
struct PlaceReward {
    by_call: bool,
    not_finite: NotFinite,
}

impl Kernel for PlaceReward {
    fn evaluate(&self, columns: &[ArrayRef], rows: usize) -> Result<ArrayRef> {
        let name = PLACE_REWARD.name;
        let [value, mask, call_ids, ..] = columns else {
            return internal_err!("{name} over {} columns", columns.len());
        };
        let ids = CallIds::of(call_ids)?;
        let values = column(name, "value", value, &ids, self.not_finite)?;
        let mask = Lists::of("mask", mask)?;
        let tokens = Tokens::read(name, &ids, &mask, &[], rows, self.not_finite)?;
        let mut result = vec![0.0; tokens.selected.len()];
        let last_selected = |range: std::ops::Range<usize>| range.rev().find(|at| tokens.selected[*at]);
        if self.by_call {
            let mut last = None;
            for (range, value) in tokens.ranges().zip(&values) {
                let own = last_selected(range);
                last = own.or(last);
                if let Some(at) = last.filter(|_| own.is_some() || !value.is_nan()) {
                    result[at] += value;
                }
            }
        } else {
            let first = values.first().copied().unwrap_or(f64::NAN);
            let same = |value: f64| value - first == 0.0 || (value.is_nan() && first.is_nan());
            if let Some(row) = values.iter().position(|value| !same(*value)) {
                let (one, other) = (ids.show(0), ids.show(row));
                return exec_err!("{name}: calls {one} and {other} of one trajectory have different values");
            }
            if let Some(at) = last_selected(0..tokens.selected.len()) {
                result[at] = first;
            }
        }
        tokens.lists(name, &ids, result)
    }
}
