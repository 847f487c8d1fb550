//! Turns of a trajectory: rewards and values of calls, one number a call.

use arrow::array::{Array, ArrayRef, AsArray, Float64Array, Int64Array};
use arrow::datatypes::{Float64Type, Int64Type};
use datafusion_common::{Result, exec_err, internal_err};

use crate::call_window::CallIds;
use crate::function::Param;
use crate::number_lists::NotFinite;

pub(super) const REWARD: Param = Param::required("reward", "double", "Reward of the call.");
pub(super) const TURN: Param = Param::optional(
    "turn",
    "bigint",
    "NULL",
    "Turn of the call: neighbors with the same turn are one step; a null turn is a step of its own.",
);

/// The rules that hold for both functions over turns, for the documentation.
macro_rules! turn_rules {
    () => {
        "\
- **Turns**: the calls of the partition in the window's order; ORDER BY must be unique. Neighboring calls with the same `turn` are one turn, whose \
reward is the sum of theirs, and each of them gets the turn's result.\n\
- **Null**: an unknown number makes the turn and every earlier one null, later ones stay.\n\
- **NaN or infinity** is an error that names the call (`not_finite`); so is a result beyond a double."
    };
}
pub(super) use turn_rules;

/// A column with one number a call; NaN is null.
pub(super) fn column(
    function: &str,
    name: &str,
    array: &ArrayRef,
    ids: &CallIds,
    not_finite: NotFinite,
) -> Result<Vec<f64>> {
    let Some(numbers) = array.as_primitive_opt::<Float64Type>() else {
        return internal_err!("{function}: {name} is of type {}", array.data_type());
    };
    let mut values = Vec::with_capacity(numbers.len());
    for (row, value) in numbers.iter().enumerate() {
        values.push(match value {
            Some(value) if value.is_finite() => value,
            Some(value) if not_finite == NotFinite::Error => {
                return exec_err!("{function}: {name} of call {} is {value}", ids.show(row));
            }
            _ => f64::NAN,
        });
    }
    Ok(values)
}

/// Returns where each turn begins, and the end.
pub(super) fn turn_starts(function: &str, turns: &ArrayRef, rows: usize) -> Result<Vec<usize>> {
    let Some(turns) = turns.as_primitive_opt::<Int64Type>() else {
        return internal_err!("{function}: turn is of type {}", turns.data_type());
    };
    let same = |a: usize, b: usize, turns: &Int64Array| {
        turns.is_valid(a) && turns.is_valid(b) && turns.value(a) == turns.value(b)
    };
    let mut starts: Vec<usize> = (0..rows).filter(|row| *row == 0 || !same(row - 1, *row, turns)).collect();
    starts.push(rows);
    Ok(starts)
}

/// Makes the result, one number a call from one a turn; an infinite one is an error.
pub(super) fn by_call(function: &str, ids: &CallIds, starts: &[usize], turns: &[f64]) -> Result<Float64Array> {
    let mut result = Vec::new();
    for (bounds, value) in starts.windows(2).zip(turns) {
        if value.is_infinite() {
            return exec_err!("{function}: the result for call {} is beyond a double", ids.show(bounds[0]));
        }
        result.extend((bounds[0]..bounds[1]).map(|_| (!value.is_nan()).then_some(*value)));
    }
    Ok(result.into())
}
