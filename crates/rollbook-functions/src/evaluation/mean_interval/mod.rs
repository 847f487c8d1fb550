//! `mean_interval(value)`: Student's interval of a mean.

use super::CONFIDENCE;
use super::udaf::{Evaluation, Name};
use crate::function::{Function, Kind, Param};

/// `mean_interval`.
pub(crate) const MEAN_INTERVAL: Function = Function {
    name: "mean_interval",
    family: "evaluation",
    version: 1,
    kind: Kind::Aggregate(|| Evaluation::udaf(Name::MeanInterval)),
    params: &[Param::required("value", "double", "The numbers, such as one pass_at_k a task."), CONFIDENCE],
    returns: "struct(low double, high double)",
    doc: "Returns Student's confidence interval of the mean of the values.",
    definition: "\
`mean - t * s / sqrt(n)` and `mean + t * s / sqrt(n)` with the sample standard deviation s and the quantile t of Student's distribution with n - 1 degrees of freedom. Over one estimate a \
task it is the interval of the evaluation's mean, tasks taken as drawn at random.\n\
\n\
- Nulls are left out; both ends are null for fewer than two values, or beyond the doubles. A NaN or an infinity is an error.\n\
- Sums are exact: no order of rows changes a bit. The values of a group are held in memory.",
    source: Some("Student, The probable error of a mean, 1908; Abramowitz and Stegun 26.7"),
    slt: include_str!("mean_interval.slt"),
};
