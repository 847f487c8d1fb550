//! Spans that lie outside, and tokens that no span holds.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, Int32Array, Int32Builder, ListArray, StructArray};
use datafusion::arrow::buffer::OffsetBuffer;
use datafusion::arrow::datatypes::{DataType, Field};
use datafusion::common::Result;
use datafusion::logical_expr::ScalarUDF;

use super::lists::{
    any_struct, bits, fields, index, int, int_field, integers, item, list, list_of_structs, lists, mask, structs,
    true_runs,
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

/// `true_spans`: the runs of true of a mask, null where there is no mask.
pub(super) fn true_spans() -> ScalarUDF {
    let of = [("start", DataType::Int32), ("length", DataType::Int32)];
    let returns = list(DataType::Struct(fields(&of)));
    RowFunction::udf("true_spans", vec![list(DataType::Boolean)], returns, |arrays, rows| {
        let masks = lists(arrays, 0)?;
        let (mut counts, mut starts, mut lengths) = (Vec::with_capacity(rows), Vec::new(), Vec::new());
        for row in 0..rows {
            let found = match mask(masks, row)? {
                Some(mask) => true_runs(&bits(&mask), 0..mask.len()).collect(),
                None => Vec::new(),
            };
            counts.push(found.len());
            for (start, length) in found {
                starts.push(int(start));
                lengths.push(int(length));
            }
        }
        let of = [("start", DataType::Int32), ("length", DataType::Int32)];
        let columns: Vec<ArrayRef> = vec![Arc::new(Int32Array::from(starts)), Arc::new(Int32Array::from(lengths))];
        let items = StructArray::try_new(fields(&of), columns, None)?;
        let field = Arc::new(Field::new("element", DataType::Struct(fields(&of)), true));
        let offsets = OffsetBuffer::from_lengths(counts);
        Ok(Arc::new(ListArray::try_new(field, offsets, Arc::new(items), masks.nulls().cloned())?) as ArrayRef)
    })
}

/// `uncovered_spans(output_len, sampled, spans)`: runs of tokens that are sampled, null meaning all, and that no span holds.
pub(super) fn uncovered_spans() -> ScalarUDF {
    let arguments = vec![DataType::Int32, list(any_struct()), list(any_struct())];
    let returns = list(DataType::Struct(fields(&run_fields())));
    RowFunction::udf("uncovered_spans", arguments, returns, |arrays, rows| {
        let (lengths, sampled, spans) = (integers(arrays, 0)?, lists(arrays, 1)?, lists(arrays, 2)?);
        let (mut counts, mut positions, mut runs) = (Vec::new(), Vec::new(), Vec::new());
        for row in 0..rows {
            let found = match index(&lengths, row) {
                Some(length) => uncovered(length, item(sampled, row).as_ref(), item(spans, row).as_ref())?,
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

fn uncovered(length: usize, sampled: Option<&ArrayRef>, spans: Option<&ArrayRef>) -> Result<Vec<(usize, usize)>> {
    let mut open = vec![sampled.is_none(); length];
    if let Some(sampled) = sampled {
        fill(&mut open, sampled, true)?;
    }
    if let Some(spans) = spans {
        fill(&mut open, spans, false)?;
    }
    Ok(runs_of(&open))
}

/// Sets the tokens of spans. No position: the whole call; no length: to its end.
fn fill(tokens: &mut [bool], spans: &ArrayRef, value: bool) -> Result<()> {
    let spans = structs(spans)?;
    let (starts, lengths) = (int_field(spans, "start")?, int_field(spans, "length")?);
    let total = tokens.len();
    for at in 0..spans.len() {
        let start = index(&starts, at).unwrap_or(0).min(total);
        let end = index(&lengths, at).map_or(total, |run| (start + run).min(total));
        if let Some(covered) = tokens.get_mut(start..end) {
            covered.fill(value);
        }
    }
    Ok(())
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
