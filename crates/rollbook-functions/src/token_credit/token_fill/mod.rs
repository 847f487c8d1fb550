//! `token_fill(value, mask)`: one number at every selected token.

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::Float64Type;
use datafusion_common::{Result, internal_err};

use super::read::MASK;
use crate::constants::Constants;
use crate::function::{Function, Kind, Param};
use crate::list_function::{ListFunction, declared, udf};
use crate::number_lists::{Lists, UNSELECTED, Unselected, lists_of, number_list};

/// `token_fill`.
pub(crate) const TOKEN_FILL: Function = Function {
    name: "token_fill",
    family: "token_credit",
    version: 1,
    kind: Kind::Scalar(|| udf(DEFINITION)),
    params: &[Param::required("value", "double", "The number."), MASK, UNSELECTED],
    returns: "double[]",
    doc: "Returns a list with the same number at every selected token.",
    definition: "\
A list as long as the mask.\n\
\n\
- A null value is null at every selected token.\n\
- Null where the mask is null; a null item selects nothing.",
    source: None,
    slt: include_str!("token_fill.slt"),
};

const DEFINITION: ListFunction =
    ListFunction { function: &TOKEN_FILL, columns: 2, output: number_list, evaluate, types: declared };

fn evaluate(columns: &[ArrayRef], rows: usize, constants: &Constants) -> Result<ArrayRef> {
    let [values, mask] = columns else {
        return internal_err!("token_fill of {} columns", columns.len());
    };
    let Some(values) = values.as_primitive_opt::<Float64Type>() else {
        return internal_err!("token_fill of {}", values.data_type());
    };
    let elsewhere = Unselected::of(constants)?.value(0.0);
    let mask = Lists::of("mask", mask)?;
    let mut lengths = Vec::with_capacity(rows);
    let mut items = Vec::new();
    let mut selected = Vec::new();
    for row in 0..rows {
        let length = mask.length(row);
        lengths.push(length);
        let Some(length) = length else { continue };
        let value = if values.is_valid(row) { values.value(row) } else { f64::NAN };
        if mask.selects_all(row) {
            items.resize(items.len() + length, value);
            continue;
        }
        selected.clear();
        mask.select(row, length, &mut selected);
        items.extend(selected.iter().map(|is_selected| if *is_selected { value } else { elsewhere }));
    }
    lists_of(&lengths, items)
}
