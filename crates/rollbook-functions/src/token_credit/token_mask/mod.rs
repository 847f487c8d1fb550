//! `token_mask(output_len, sampled_mask, action_mask, call_id)`: which tokens of a call the policy sampled and the source meant to train.

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, BooleanBufferBuilder};
use arrow::datatypes::Int64Type;
use datafusion_common::{Result, exec_err, internal_err};

use super::read::CALL_ID;
use crate::call_window::CallIds;
use crate::constants::Constants;
use crate::function::{Function, Kind, Param};
use crate::list_function::{ListFunction, declared, udf};
use crate::number_lists::{Lists, mask_list, masks_of};

/// `token_mask`.
pub(crate) const TOKEN_MASK: Function = Function {
    name: "token_mask",
    family: "token_credit",
    version: 1,
    kind: Kind::Scalar(|| udf(DEFINITION)),
    params: &[
        Param::required("output_len", "bigint", "Output tokens of the call."),
        Param::required("sampled_mask", "boolean[]", "Which of them the policy sampled; null is all."),
        Param::required("action_mask", "boolean[]", "Which of them are meant to train; null is all."),
        CALL_ID,
    ],
    returns: "boolean[]",
    doc: "Returns which output tokens of a call were sampled and are meant to train.",
    definition: "\
True where both masks are true. A null mask is all true, a null item false.\n\
\n\
- Null where output_len is null.\n\
- A mask of another length, or a negative length, is an error that names the call.",
    source: None,
    slt: include_str!("token_mask.slt"),
};

const DEFINITION: ListFunction =
    ListFunction { function: &TOKEN_MASK, columns: 4, output: mask_list, evaluate, types: declared };

fn evaluate(columns: &[ArrayRef], rows: usize, _: &Constants) -> Result<ArrayRef> {
    let name = TOKEN_MASK.name;
    let [lengths, sampled, action, call_ids] = columns else {
        return internal_err!("{name} of {} columns", columns.len());
    };
    let ids = CallIds::of(call_ids)?;
    let masks = [Lists::of("sampled_mask", sampled)?, Lists::of("action_mask", action)?];
    let Some(given) = lengths.as_primitive_opt::<Int64Type>() else {
        return internal_err!("{name}: output_len is of type {}", lengths.data_type());
    };
    let mut lengths = Vec::with_capacity(rows);
    let mut items = BooleanBufferBuilder::new(0);
    let (mut one, mut other) = (Vec::new(), Vec::new());
    for row in 0..rows {
        if given.is_null(row) {
            lengths.push(None);
            continue;
        }
        let Ok(length) = usize::try_from(given.value(row)) else {
            return exec_err!("{name}: output_len of call {} is {}", ids.show(row), given.value(row));
        };
        if let Some(wrong) = masks.iter().filter_map(|mask| mask.length(row)).find(|wrong| *wrong != length) {
            return exec_err!("{name}: call {} has {length} output tokens and a mask of {wrong}", ids.show(row));
        }
        lengths.push(Some(length));
        if masks.iter().all(|mask| mask.selects_all(row)) {
            items.append_n(length, true);
            continue;
        }
        one.clear();
        other.clear();
        masks[0].select(row, length, &mut one);
        masks[1].select(row, length, &mut other);
        for (one, other) in one.iter().zip(&other) {
            items.append(*one && *other);
        }
    }
    masks_of(&lengths, BooleanArray::new(items.finish(), None))
}
