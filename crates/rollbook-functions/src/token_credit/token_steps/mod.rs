//! `token_steps(mask, starts, numbers, call_id)`: one number for each step within a call, at its tokens.

use arrow::array::{Array, ArrayRef, AsArray};
use datafusion_common::{Result, exec_err, internal_err};

use super::read::{CALL_ID, MASK};
use crate::call_window::CallIds;
use crate::constants::Constants;
use crate::function::{Function, Kind, Param};
use crate::list_function::{ListFunction, declared, udf};
use crate::number_lists::{Lists, NOT_FINITE, NotFinite, UNSELECTED, Unselected, lists_of, number_list};

/// `token_steps`.
pub(crate) const TOKEN_STEPS: Function = Function {
    name: "token_steps",
    family: "token_credit",
    version: 1,
    kind: Kind::Scalar(|| udf(DEFINITION)),
    params: &[
        MASK,
        Param::required("starts", "double[]", "Position of the first token of each step, in order."),
        Param::required("numbers", "double[]", "The number of each step."),
        CALL_ID,
        UNSELECTED,
        NOT_FINITE,
    ],
    returns: "double[]",
    doc: "Returns a list in which every selected token has the number of the step it lies in.",
    definition: "\
Step i reaches from position `starts[i]` to the token before `starts[i + 1]`, the last one to the end. Tokens before the first step have no number: null.\n\
\n\
- Null where the mask, starts or numbers is null; a null value is null at the tokens of its step.\n\
- Starts and numbers of different lengths, starts that are null, negative, no integers or do not rise are errors that name the call. A start behind the \
end of the call has no tokens.",
    source: None,
    slt: include_str!("token_steps.slt"),
};

const DEFINITION: ListFunction =
    ListFunction { function: &TOKEN_STEPS, columns: 4, output: number_list, evaluate, types: declared };

fn evaluate(columns: &[ArrayRef], rows: usize, constants: &Constants) -> Result<ArrayRef> {
    let name = TOKEN_STEPS.name;
    let [mask, starts, values, call_ids] = columns else {
        return internal_err!("{name} of {} columns", columns.len());
    };
    if mask.as_list_opt::<i32>().is_none() {
        return internal_err!("{name} of {}", mask.data_type());
    }
    let elsewhere = Unselected::of(constants)?.value(0.0);
    let not_finite = NotFinite::of(constants)?;
    let ids = CallIds::of(call_ids)?;
    let (mask, starts, values) =
        (Lists::of("mask", mask)?, Lists::of("starts", starts)?, Lists::of("numbers", values)?);
    let mut lengths = Vec::with_capacity(rows);
    let mut items = Vec::new();
    for row in 0..rows {
        let (Some(length), Some(steps), Some(known)) = (mask.length(row), starts.length(row), values.length(row))
        else {
            lengths.push(None);
            continue;
        };
        if steps != known {
            return exec_err!("{name}: call {} has {steps} starts and {known} numbers", ids.show(row));
        }
        let all = vec![true; steps];
        let (mut selected, mut firsts, mut numbers) = (vec![], vec![], vec![]);
        mask.select(row, length, &mut selected);
        for (list, out) in [(&starts, &mut firsts), (&values, &mut numbers)] {
            list.numbers(row, &all, not_finite, out).or_else(|fault| fault.error(name, &ids.show(row)))?;
        }
        let rises = firsts.windows(2).all(|pair| pair[0] < pair[1]);
        if !rises || firsts.iter().any(|start| start.is_nan() || *start < 0.0 || start.fract() != 0.0) {
            return exec_err!("{name}: the starts of call {} are no rising positions", ids.show(row));
        }
        lengths.push(Some(length));
        let (mut step, mut value) = (0, f64::NAN);
        for (at, is_selected) in selected.iter().enumerate() {
            #[expect(clippy::cast_precision_loss, reason = "no call has 2^53 tokens")]
            while step < steps && firsts[step] <= at as f64 {
                value = numbers[step];
                step += 1;
            }
            items.push(if *is_selected { value } else { elsewhere });
        }
    }
    lists_of(&lengths, items)
}
