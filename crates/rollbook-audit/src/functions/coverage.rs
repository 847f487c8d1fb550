//! Spans that lie outside, and tokens that no span holds.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, BooleanArray, Int32Array, Int32Builder};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::Result;
use datafusion::logical_expr::ScalarUDF;

use super::lists::{
    any_struct, fields, index, int, int_field, integers, is_sampled, item, list, list_of_structs, lists, mask, structs,
};
use super::row_function::RowFunction;

pub(super) fn span_outside() -> ScalarUDF {
    let arguments = vec![list(any_struct()), DataType::Int32];
    RowFunction::udf("span_outside", arguments, DataType::Int32, |arrays, rows| {
        let (spans, totals) = (lists(arrays, 0)?, integers(arrays, 1)?);
        let mut found = Int32Builder::with_capacity(rows);
        for row in 0..rows {
            let outside = match (item(spans, row), index(&totals, row)) {
                (Some(items), Some(total)) => first_outside(&items, total)?,
                _ => None,
            };
            found.append_option(outside);
        }
        Ok(Arc::new(found.finish()) as ArrayRef)
    })
}

/// A span without a length holds what follows its start, so it needs a token there unless there is none at all.
fn first_outside(items: &ArrayRef, total: usize) -> Result<Option<i32>> {
    let items = structs(items)?;
    let has_length = items.column_by_name("length").is_some();
    let (starts, lengths) = (int_field(items, "start")?, int_field(items, "length")?);
    let outside = (0..items.len()).find(|&at| {
        let Some(start) = index(&starts, at) else {
            return starts.is_valid(at);
        };
        if has_length {
            index(&lengths, at).map_or(lengths.is_valid(at), |length| start + length > total)
        } else {
            start >= total.max(1)
        }
    });
    Ok(outside.map(|at| starts.value(at)))
}

fn run_fields() -> [(&'static str, DataType); 2] {
    [("position", DataType::Int32), ("length", DataType::Int32)]
}

pub(super) fn uncovered_spans() -> ScalarUDF {
    let arguments = vec![DataType::Int32, list(DataType::Boolean), list(any_struct())];
    let returns = list(DataType::Struct(fields(&run_fields())));
    RowFunction::udf("uncovered_spans", arguments, returns, |arrays, rows| {
        let (lengths, masks, spans) = (integers(arrays, 0)?, lists(arrays, 1)?, lists(arrays, 2)?);
        let (mut counts, mut positions, mut runs) = (Vec::new(), Vec::new(), Vec::new());
        for row in 0..rows {
            let found = match index(&lengths, row) {
                Some(length) => uncovered(length, mask(masks, row)?.as_ref(), item(spans, row).as_ref())?,
                None => Vec::new(),
            };
            counts.push(found.len());
            for (position, length) in found {
                positions.push(int(position));
                runs.push(int(length));
            }
        }
        let columns: Vec<ArrayRef> = vec![Arc::new(Int32Array::from(positions)), Arc::new(Int32Array::from(runs))];
        list_of_structs(counts, fields(&run_fields()), columns)
    })
}

fn uncovered(length: usize, mask: Option<&BooleanArray>, spans: Option<&ArrayRef>) -> Result<Vec<(usize, usize)>> {
    let mut open: Vec<bool> = (0..length).map(|at| is_sampled(mask, at)).collect();
    if let Some(spans) = spans {
        let spans = structs(spans)?;
        let (starts, lengths) = (int_field(spans, "start")?, int_field(spans, "length")?);
        for at in 0..spans.len() {
            // No position: the whole call; no length: to its end.
            let start = index(&starts, at).unwrap_or(0).min(length);
            let end = index(&lengths, at).map_or(length, |run| (start + run).min(length));
            if let Some(covered) = open.get_mut(start..end) {
                covered.fill(false);
            }
        }
    }
    Ok(runs_of(&open))
}

/// Runs of true: start and length.
pub(super) fn runs_of(flags: &[bool]) -> Vec<(usize, usize)> {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for (at, _) in flags.iter().enumerate().filter(|(_, flag)| **flag) {
        match runs.last_mut() {
            Some((start, length)) if *start + *length == at => *length += 1,
            _ => runs.push((at, 1)),
        }
    }
    runs
}
