//! One call of a credit window: which arguments are columns, which rule the constants make, and its evaluation over groups.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Float64Array, StringArray};
use arrow::buffer::{BooleanBuffer, NullBuffer};
use arrow::datatypes::{Float64Type, Int64Type};
use datafusion_common::{Result, ScalarValue, exec_err, internal_err};
use datafusion_expr::WindowUDF;

use super::groups::{Columns, Groups, Members, NO_MEMBER, members};
use super::kernel::{Fault, Group, Outcome, credits};
use super::rule::{Name, Reading, Rule};
use super::spread::{Counted, Scaled, ScaledMoments};
use super::window::{CreditWindow, function};
use crate::constants::Constants;

/// Names of the arguments that are columns. Some have a default, which is then the same for every row.
const COLUMNS: [&str; 7] = ["value", "rollout_id", "votes", "weight", "length", "is_greedy", "position"];

/// Returns whether an argument of a credit window may differ from row to row.
pub(super) fn is_column(name: Name, position: usize) -> bool {
    function(name).params.get(position).is_some_and(|param| COLUMNS.contains(&param.name))
}

/// A call of a credit window with its constants read.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GroupWindow {
    name: Name,
    rule: Rule,
}

impl GroupWindow {
    /// Reads a call of so many arguments; `None` where the function is no credit window. `constant` gives the value of an argument that is no
    /// column.
    pub fn of(
        udwf: &WindowUDF,
        arguments: usize,
        constant: impl Fn(usize) -> Result<ScalarValue>,
    ) -> Result<Option<Self>> {
        let Some(window) = udwf.inner().downcast_ref::<CreditWindow>() else {
            return Ok(None);
        };
        let name = window.name();
        let value =
            |position: usize| if is_column(name, position) { Ok(ScalarValue::Null) } else { constant(position) };
        let constants = (0..arguments).map(value).collect::<Result<_>>()?;
        Self::new(name, &Constants::new(function(name), 0, constants)?).map(Some)
    }

    pub(super) fn new(name: Name, constants: &Constants) -> Result<Self> {
        Ok(Self { name, rule: Rule::of(name, constants)? })
    }

    /// Returns whether the argument at a position is a column.
    pub fn is_column(&self, position: usize) -> bool {
        is_column(self.name, position)
    }
}

/// Evaluates several calls, each over its columns: those of [`GroupWindow::is_column`] in the order of the arguments. The members of the groups
/// are collected once for all calls that read the same columns alike.
pub fn evaluate_groups(calls: &[(GroupWindow, Vec<ArrayRef>)], groups: &Groups) -> Result<Vec<ArrayRef>> {
    let mut results: Vec<ArrayRef> = Vec::with_capacity(calls.len());
    let mut shared: Vec<(Columns, Reading, Members)> = Vec::new();
    for (call, columns) in calls {
        let columns = named(call.name, columns)?;
        let is_alike = |known: &(Columns, Reading, Members)| known.1 == call.rule.reading && known.0.are(&columns);
        let at = match shared.iter().position(is_alike) {
            Some(at) => at,
            None => {
                let members = members(function(call.name).name, &columns, groups, call.rule.reading)?;
                shared.push((columns, call.rule.reading, members));
                shared.len() - 1
            }
        };
        results.push(Arc::new(call.evaluate(&columns, &shared[at].2, groups)?));
    }
    Ok(results)
}

/// Returns the names of the columns that a function has beside value and id.
fn optional(name: Name) -> impl Iterator<Item = &'static str> {
    let params = function(name).params.iter().skip(2);
    params.map(|param| param.name).filter(|name| COLUMNS.contains(name))
}

fn named(name: Name, columns: &[ArrayRef]) -> Result<Columns<'_>> {
    let function = function(name);
    let [values, rollout_ids, others @ ..] = columns else {
        return internal_err!("{} over {} columns", function.name, columns.len());
    };
    let (Some(values), Some(rollout_ids)) =
        (values.as_primitive_opt::<Float64Type>(), rollout_ids.as_string_opt::<i32>())
    else {
        return internal_err!("{} over {} and {}", function.name, values.data_type(), rollout_ids.data_type());
    };
    let mut named = Columns { values, rollout_ids, votes: None, weights: None, marks: None, positions: None };
    for (name, column) in optional(name).zip(others) {
        match name {
            // A vote or a weight of 1 for everybody is none.
            "votes" => {
                named.votes = column
                    .as_primitive_opt::<Int64Type>()
                    .filter(|votes| votes.null_count() > 0 || votes.values().iter().any(|votes| *votes != 1));
            }
            "is_greedy" => named.marks = column.as_boolean_opt(),
            "position" => named.positions = column.as_primitive_opt::<Int64Type>(),
            name => {
                let weights = column.as_primitive_opt::<Float64Type>().filter(|weights| {
                    weights.null_count() > 0
                        || weights.values().iter().any(|weight| weight.to_bits() != 1.0f64.to_bits())
                });
                named.weights = weights.map(|weights| (name, weights));
            }
        }
    }
    Ok(named)
}

impl GroupWindow {
    fn evaluate(&self, columns: &Columns, members: &Members, groups: &Groups) -> Result<Float64Array> {
        let mut by_row = vec![f64::NAN; groups.row_count()];
        let mut found = Vec::new();
        let mut start = 0;
        for ((rows, end), moments) in groups.iter().zip(&members.ends).zip(&members.moments) {
            found.clear();
            let group = group(members, *moments, start, *end);
            let outcome = match credits(group, &self.rule, &mut found) {
                Ok(outcome) => outcome,
                Err(fault) => return self.report(&fault, columns.rollout_ids, members, start, *end),
            };
            for row in rows {
                let at = *row as usize;
                by_row[at] = match (outcome, members.of_row[at]) {
                    (Outcome::All(value), _) => value,
                    (Outcome::Each, NO_MEMBER) => f64::NAN,
                    (Outcome::Each, member) => found[member as usize],
                };
            }
            start = *end;
        }
        let valid: BooleanBuffer = by_row.iter().map(|credit| !credit.is_nan()).collect();
        let nulls = NullBuffer::new(valid);
        let nulls = (nulls.null_count() > 0).then_some(nulls);
        Ok(Float64Array::new(by_row.into(), nulls))
    }

    fn report<T>(&self, fault: &Fault, ids: &StringArray, members: &Members, start: usize, end: usize) -> Result<T> {
        let function = function(self.name).name;
        let id = |member: usize| members.id(ids, start + member);
        match fault {
            Fault::Incomplete { members: found, group_size } => {
                let ids: Vec<&str> = (start..end).take(20).map(|member| members.id(ids, member)).collect();
                let more = if ids.len() < end - start { ", …" } else { "" };
                exec_err!("{function}: a group has {found} of {group_size} members: {}{more}", ids.join(", "))
            }
            Fault::Singleton { member } => {
                exec_err!("{function}: rollout {:?} is the only member of its group", id(*member))
            }
            Fault::NoGreedy => {
                exec_err!("{function}: the group of rollout {:?} has no greedy rollout", id(0))
            }
            Fault::Overflow { member } => {
                exec_err!("{function}: the credit of rollout {:?} is beyond a double", id(*member))
            }
        }
    }
}

fn group(members: &Members, moments: ScaledMoments, start: usize, end: usize) -> Group<'_> {
    let votes = members.votes.get(start..end).unwrap_or_default();
    let scaled = members.scaled().get(start..end).unwrap_or_default();
    Group {
        members: Counted { values: members.values.get(start..end).unwrap_or_default(), votes },
        scaled: Scaled { members: Counted { values: scaled, votes }, moments },
        weights: members.weights.get(start..end).unwrap_or_default(),
        marks: members.marks.get(start..end).unwrap_or_default(),
        positions: members.positions.get(start..end).unwrap_or_default(),
    }
}
