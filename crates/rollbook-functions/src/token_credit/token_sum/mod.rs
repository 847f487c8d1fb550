//! `token_sum(numbers, others, call_id)`: two lists added, the second with a weight.

use arrow::array::ArrayRef;
use datafusion_common::{Result, exec_err, internal_err, plan_err};

use super::read::CALL_ID;
use crate::call_window::CallIds;
use crate::constants::Constants;
use crate::function::{Function, Kind, Param};
use crate::list_function::{ListFunction, declared, udf};
use crate::number_lists::{Lists, NotFinite, lists_of, number_list, shared_length};

/// `token_sum`.
pub(crate) const TOKEN_SUM: Function = Function {
    name: "token_sum",
    family: "token_credit",
    version: 1,
    kind: Kind::Scalar(|| udf(DEFINITION)),
    params: &[
        Param::required("numbers", "double[]", "A number of each token."),
        Param::required("others", "double[]", "Another number of each token."),
        CALL_ID,
        Param::optional("weight", "double", "1.0", "What the others are multiplied with."),
    ],
    returns: "double[]",
    doc: "Returns the sum of two lists, token by token, the second one weighted.",
    definition: "\
`numbers[t] + weight * others[t]`.\n\
\n\
- Null where either number is null; where one list is null every token of the other is.\n\
- NaN and infinities count as null: they may stand where no mask selects. A result beyond a double is an error that names the call.\n\
- Lists that differ in length are an error that names the call.",
    source: None,
    slt: include_str!("token_sum.slt"),
};

const DEFINITION: ListFunction =
    ListFunction { function: &TOKEN_SUM, columns: 3, output: number_list, evaluate, types: declared };

fn evaluate(columns: &[ArrayRef], rows: usize, constants: &Constants) -> Result<ArrayRef> {
    let name = TOKEN_SUM.name;
    let [values, others, call_ids] = columns else {
        return internal_err!("{name} of {} columns", columns.len());
    };
    let weight = constants.number("weight")?;
    if !weight.is_finite() {
        return plan_err!("{name}: weight must be finite, not {weight}");
    }
    let ids = CallIds::of(call_ids)?;
    let lists = [Lists::of("numbers", values)?, Lists::of("others", others)?];
    let mut lengths = Vec::with_capacity(rows);
    let mut items = Vec::new();
    let mut numbers = [Vec::new(), Vec::new()];
    for row in 0..rows {
        let length = shared_length(name, &ids.show(row), row, &[&lists[0], &lists[1]])?;
        lengths.push(length);
        let all = vec![true; length.unwrap_or(0)];
        for (list, numbers) in lists.iter().zip(&mut numbers) {
            numbers.clear();
            let read = list.numbers(row, &all, NotFinite::Missing, numbers);
            read.or_else(|fault| fault.error(name, &ids.show(row)))?;
        }
        for (position, (value, other)) in numbers[0].iter().zip(&numbers[1]).enumerate() {
            let sum = value + weight * other;
            if sum.is_infinite() {
                return exec_err!(
                    "{name}: the result for call {} at position {position} is beyond a double",
                    ids.show(row)
                );
            }
            items.push(sum);
        }
    }
    lists_of(&lengths, items)
}
