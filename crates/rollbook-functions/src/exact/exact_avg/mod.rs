//! `exact_avg(value)`: the correctly rounded sum over the number of values.

use super::udaf::ExactAggregate;
use crate::function::{Function, Kind, Param};

/// `exact_avg`.
pub(crate) const EXACT_AVG: Function = Function {
    name: "exact_avg",
    family: "exact",
    version: 1,
    kind: Kind::Aggregate(|| ExactAggregate::udaf(&EXACT_AVG, true)),
    params: &[Param::required("value", "double | bigint", "The numbers to average.")],
    returns: "double",
    doc: "Returns the mean of all values: their exact sum, rounded to the nearest double, over their number.",
    definition: "\
The same set of values gives the same bits in any order, on any number of threads and with any batch size. Recipes average with it.\n\
\n\
- Nulls are left out; no value gives null.\n\
- A NaN, or infinities of both signs, give NaN; infinities of one sign give that infinity. The mean is finite even where the sum of finite values lies beyond the doubles.\n\
- Integers are summed as integers.\n\
- With `OVER (…)` it is a window function over any frame.",
    source: Some("Python's math.fsum(values) / len(values)"),
    slt: include_str!("exact_avg.slt"),
};
