//! What became of each token that a call sampled.
//!
//! ```text
//! sampled output   0 1 2 3 4 5 6        trained in a row   [1, 4)        excused   [3, 6) overlong
//!                  ? t t t o o ?        t trained (3 as well: a row says so), o excused, ? neither
//! ```

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, BooleanArray, Int32Array, Int64Array, StringArray};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::Result;
use datafusion::logical_expr::ScalarUDF;

use super::coverage::runs_of;
use super::lists::{
    any_struct, fields, index, int, int_field, integers, is_sampled, item, list, list_of_structs, lists, mask, structs,
    text_field,
};
use super::row_function::RowFunction;

fn fate_fields() -> [(&'static str, DataType); 3] {
    [("fate", DataType::Utf8), ("reason", DataType::Utf8), ("tokens", DataType::Int64)]
}

/// `token_fates(output_len, sampled_mask, trained, excused)`: how many of a call's sampled tokens trained (`trained`), are
/// excused (`excluded`, with the reason) or neither (`unaccounted`). A token that both trains and is excused trained.
pub(super) fn token_fates() -> ScalarUDF {
    let arguments = vec![DataType::Int32, list(DataType::Boolean), list(any_struct()), list(any_struct())];
    let returns = list(DataType::Struct(fields(&fate_fields())));
    RowFunction::udf("token_fates", arguments, returns, |arrays, rows| {
        let (outputs, masks) = (integers(arrays, 0)?, lists(arrays, 1)?);
        let (trained, excused) = (lists(arrays, 2)?, lists(arrays, 3)?);
        let (mut counts, mut fates, mut reasons, mut tokens) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for row in 0..rows {
            let length = index(&outputs, row).unwrap_or(0);
            let (trained, excused) = (spans(item(trained, row), length)?, spans(item(excused, row), length)?);
            let found = fates_of(length, mask(masks, row)?.as_ref(), &trained, &excused);
            counts.push(found.len());
            for (fate, reason, count) in found {
                fates.push(fate);
                reasons.push(reason);
                tokens.push(count);
            }
        }
        let columns: Vec<ArrayRef> = vec![
            Arc::new(StringArray::from(fates)),
            Arc::new(StringArray::from(reasons)) as ArrayRef,
            Arc::new(Int64Array::from(tokens)),
        ];
        list_of_structs(counts, fields(&fate_fields()), columns)
    })
}

/// A run of output tokens, with what is said of it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Span {
    start: usize,
    end: usize,
    reason: Option<String>,
}

/// Spans within an output: without a position the whole of it, without a length to its end.
fn spans(items: Option<ArrayRef>, length: usize) -> Result<Vec<Span>> {
    let Some(items) = items else {
        return Ok(Vec::new());
    };
    let items = structs(&items)?;
    let (starts, lengths) = (int_field(items, "start")?, int_field(items, "length")?);
    let reasons = text_field(items, "reason")?;
    let mut read = Vec::with_capacity(items.len());
    for at in (0..items.len()).filter(|at| items.is_valid(*at)) {
        let start = index(&starts, at).unwrap_or(0).min(length);
        let end = index(&lengths, at).map_or(length, |run| (start + run).min(length));
        read.push(Span { start, end, reason: reasons.is_valid(at).then(|| reasons.value(at).to_owned()) });
    }
    Ok(read)
}

fn fates_of(
    length: usize,
    sampled: Option<&BooleanArray>,
    trained: &[Span],
    excused: &[Span],
) -> Vec<(&'static str, Option<String>, i64)> {
    // 0: neither; 1: trained; 2 + n: excused by span n.
    let mut fate = vec![0_usize; length];
    for (place, span) in excused.iter().enumerate().rev() {
        fate.get_mut(span.start..span.end).unwrap_or_default().fill(place + 2);
    }
    for span in trained {
        fate.get_mut(span.start..span.end).unwrap_or_default().fill(1);
    }
    let mut counts: Vec<(&'static str, Option<String>, i64)> = Vec::new();
    for (_, fate) in fate.into_iter().enumerate().filter(|(at, _)| is_sampled(sampled, *at)) {
        let named = match fate {
            0 => ("unaccounted", None),
            1 => ("trained", None),
            place => ("excluded", excused.get(place - 2).and_then(|span| span.reason.clone())),
        };
        match counts.iter_mut().find(|(name, reason, _)| *name == named.0 && *reason == named.1) {
            Some((_, _, count)) => *count += 1,
            None => counts.push((named.0, named.1, 1)),
        }
    }
    counts
}

/// `shared_spans(one, other)`: runs of tokens that a span of each list holds.
pub(super) fn shared_spans() -> ScalarUDF {
    let run = [("position", DataType::Int32), ("length", DataType::Int32), ("reason", DataType::Utf8)];
    let arguments = vec![DataType::Int32, list(any_struct()), list(any_struct())];
    let returns = list(DataType::Struct(fields(&run)));
    RowFunction::udf("shared_spans", arguments, returns, |arrays, rows| {
        let run = [("position", DataType::Int32), ("length", DataType::Int32), ("reason", DataType::Utf8)];
        let (outputs, ones, others) = (integers(arrays, 0)?, lists(arrays, 1)?, lists(arrays, 2)?);
        let (mut counts, mut positions, mut lengths, mut reasons) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for row in 0..rows {
            let length = index(&outputs, row).unwrap_or(0);
            let (one, other) = (spans(item(ones, row), length)?, spans(item(others, row), length)?);
            let found = shared(length, &one, &other);
            counts.push(found.len());
            for (start, run, reason) in found {
                positions.push(int(start));
                lengths.push(int(run));
                reasons.push(reason);
            }
        }
        let columns: Vec<ArrayRef> = vec![
            Arc::new(Int32Array::from(positions)),
            Arc::new(Int32Array::from(lengths)) as ArrayRef,
            Arc::new(StringArray::from(reasons)),
        ];
        list_of_structs(counts, fields(&run), columns)
    })
}

fn shared(length: usize, one: &[Span], other: &[Span]) -> Vec<(usize, usize, Option<String>)> {
    if one.is_empty() || other.is_empty() {
        return Vec::new();
    }
    let mut held = vec![false; length];
    for span in one {
        held.get_mut(span.start..span.end).unwrap_or_default().fill(true);
    }
    let mut found = Vec::new();
    for span in other {
        let flags = held.get(span.start..span.end).unwrap_or_default();
        found.extend(runs_of(flags).into_iter().map(|(at, run)| (span.start + at, run, span.reason.clone())));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(start: usize, end: usize, reason: &str) -> Span {
        Span { start, end, reason: (!reason.is_empty()).then(|| reason.to_owned()) }
    }

    #[test]
    fn every_sampled_token_has_one_fate() {
        let sampled = BooleanArray::from(vec![true, true, true, true, true, true, true, false]);
        let found = fates_of(8, Some(&sampled), &[span(1, 4, "")], &[span(3, 6, "overlong")]);
        let overlong = Some("overlong".to_owned());
        assert_eq!(found, [("unaccounted", None, 2), ("trained", None, 3), ("excluded", overlong.clone(), 2)]);
        assert_eq!(shared(8, &[span(1, 4, "")], &[span(3, 6, "overlong")]), [(3, 1, overlong)]);
    }
}
