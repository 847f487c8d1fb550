//! `exact_sum(value)`: the correctly rounded sum.

use super::udaf::ExactAggregate;
use crate::function::{Function, Kind, Param};

/// `exact_sum`.
pub(crate) const EXACT_SUM: Function = Function {
    name: "exact_sum",
    family: "exact",
    version: 1,
    kind: Kind::Aggregate(|| ExactAggregate::udaf(&EXACT_SUM, false)),
    params: &[Param::required("value", "double | bigint", "The numbers to sum.")],
    returns: "double | bigint",
    doc: "Returns the sum of all values as if computed without rounding, rounded once to the nearest double.",
    definition: "\
The same set of values gives the same bits in any order, on any number of threads and with any batch size. Recipes sum with it.\n\
\n\
- Nulls are left out; no value gives null. The sum of zeros is `0.0`, whatever their signs.\n\
- A NaN, or infinities of both signs, give NaN; infinities of one sign give that infinity. A sum beyond the doubles is infinite.\n\
- Integers give a bigint; a sum that is none is an error.\n\
- With `OVER (…)` it is a window function over any frame.",
    source: Some(
        "R. Neal, Fast exact summation using small and large superaccumulators, arXiv 1505.05571; equals Python's math.fsum",
    ),
    slt: include_str!("exact_sum.slt"),
};
