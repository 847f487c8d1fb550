//! Where each policy version begins in an output, and how long it sampled.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Int32Array, Int64Array};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Int64Type};
use datafusion::common::Result;
use datafusion::logical_expr::ScalarUDF;

use super::lists::{
    any_struct, argument, bits, fields, index, int, int_field, integers, item, list, list_of_structs, lists, mask,
    structs, true_runs,
};
use super::row_function::RowFunction;

fn span_fields() -> [(&'static str, DataType); 3] {
    [("policy_version", DataType::Int64), ("start", DataType::Int32), ("length", DataType::Int32)]
}

/// Tokens that one version sampled; without a length they reach to the output's end, which is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Span {
    start: usize,
    version: Option<i64>,
    length: Option<usize>,
}

/// `version_spans(policy_version, policy_spans, sampled_mask, output_len)`: the stretches of an output by the version that
/// sampled them. The version of the first token stands at 0 unless a span does; a stretch of no token, without a version, or
/// of which the policy sampled nothing is left out.
pub(super) fn version_spans() -> ScalarUDF {
    let arguments = vec![DataType::Int64, list(any_struct()), list(DataType::Boolean), DataType::Int32];
    let returns = list(DataType::Struct(fields(&span_fields())));
    RowFunction::udf("version_spans", arguments, returns, |arrays, rows| {
        let first = cast(argument(arrays, 0)?, &DataType::Int64)?;
        let first = first.as_primitive::<Int64Type>();
        let (spans, masks, lengths) = (lists(arrays, 1)?, lists(arrays, 2)?, integers(arrays, 3)?);
        let (mut counts, mut all) = (Vec::with_capacity(rows), Vec::new());
        for row in 0..rows {
            let starts = match item(spans, row) {
                Some(items) => starts(&items)?,
                None => Vec::new(),
            };
            let first = first.is_valid(row).then(|| first.value(row));
            let found = found(first, starts, mask(masks, row)?.as_ref(), index(&lengths, row));
            counts.push(found.len());
            all.extend(found);
        }
        let columns: Vec<ArrayRef> = vec![
            Arc::new(all.iter().map(|span| span.version).collect::<Int64Array>()),
            Arc::new(all.iter().map(|span| Some(int(span.start))).collect::<Int32Array>()),
            Arc::new(all.iter().map(|span| span.length.map(int)).collect::<Int32Array>()),
        ];
        list_of_structs(counts, fields(&span_fields()), columns)
    })
}

fn starts(items: &ArrayRef) -> Result<Vec<(usize, Option<i64>)>> {
    let items = structs(items)?;
    let starts = int_field(items, "start")?;
    let versions = match items.column_by_name("policy_version") {
        Some(versions) => cast(versions, &DataType::Int64)?.as_primitive::<Int64Type>().clone(),
        None => Int64Array::new_null(items.len()),
    };
    let read = (0..items.len()).filter(|at| items.is_valid(*at));
    Ok(read.filter_map(|at| Some((index(&starts, at)?, versions.is_valid(at).then(|| versions.value(at))))).collect())
}

fn found(
    first: Option<i64>,
    mut starts: Vec<(usize, Option<i64>)>,
    mask: Option<&BooleanArray>,
    total: Option<usize>,
) -> Vec<Span> {
    if !starts.iter().any(|(start, _)| *start == 0) {
        starts.push((0, first));
    }
    // Of two at one place the one with the higher version stands, and the other has no token.
    starts.sort_unstable_by_key(|(start, version)| (*start, version.is_none(), *version));
    let ends = starts.iter().skip(1).map(|(start, _)| Some(*start)).chain([total]).collect::<Vec<_>>();
    let spans = starts.into_iter().zip(ends).map(|((start, version), end)| Span {
        start,
        version,
        length: end.map(|end| end.saturating_sub(start)),
    });
    let sampled = mask.map(bits);
    spans
        .filter(|span| {
            let end = span.length.map_or(usize::MAX, |length| span.start.saturating_add(length));
            span.version.is_some()
                && span.length.is_none_or(|length| length > 0)
                && sampled.as_ref().is_none_or(|sampled| true_runs(sampled, span.start..end).next().is_some())
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(
        first: Option<i64>,
        starts: &[(usize, Option<i64>)],
        mask: Option<Vec<bool>>,
        total: Option<usize>,
    ) -> Vec<(i64, usize, Option<usize>)> {
        let mask = mask.map(BooleanArray::from);
        let found = found(first, starts.to_vec(), mask.as_ref(), total);
        found.into_iter().map(|span| (span.version.unwrap(), span.start, span.length)).collect()
    }

    #[test]
    fn a_version_lasts_until_the_next_one_begins() {
        assert_eq!(of(Some(3), &[], None, Some(5)), [(3, 0, Some(5))]);
        assert_eq!(of(Some(3), &[(2, Some(4))], None, Some(5)), [(3, 0, Some(2)), (4, 2, Some(3))]);
        assert_eq!(of(Some(3), &[(2, Some(4)), (0, Some(5))], None, Some(5)), [(5, 0, Some(2)), (4, 2, Some(3))]);
    }

    #[test]
    fn what_is_unknown_or_empty_is_left_out() {
        assert_eq!(of(None, &[], None, Some(5)), []);
        assert_eq!(of(None, &[(2, Some(4))], None, Some(5)), [(4, 2, Some(3))]);
        assert_eq!(of(Some(3), &[], None, Some(0)), []);
        assert_eq!(of(Some(3), &[], None, None), [(3, 0, None)]);
        assert_eq!(of(Some(3), &[(9, Some(4))], None, Some(5)), [(3, 0, Some(9))]);
    }

    #[test]
    fn what_the_policy_did_not_sample_has_no_version() {
        assert_eq!(of(Some(3), &[(2, Some(4))], Some(vec![false, false, true]), Some(3)), [(4, 2, Some(1))]);
        assert_eq!(of(Some(3), &[], Some(vec![false, false]), None), []);
    }
}
