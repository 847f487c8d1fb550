//! Placeholders of media in a prompt: their number, their ids, and whose they are from call to call.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, Int32Array, Int32Builder, StringArray, StringBuilder};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Int32Type};
use datafusion::common::Result;
use datafusion::logical_expr::ScalarUDF;

use super::lists::{
    any_struct, fields, index, int, int_field, integers, item, list, list_of_structs, lists, structs, text_field,
};
use super::row_function::RowFunction;

/// Patches along one side that one placeholder may stand for.
const MERGED: i64 = 8;

fn fault_fields() -> [(&'static str, DataType); 5] {
    [
        ("kind", DataType::Utf8),
        ("position", DataType::Int32),
        ("length", DataType::Int32),
        ("expected", DataType::Utf8),
        ("observed", DataType::Utf8),
    ]
}

/// Placeholders that stand for one medium.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Span {
    start: usize,
    length: usize,
    modality: Option<String>,
    grid: Vec<i32>,
    digest: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Fault {
    kind: &'static str,
    position: usize,
    length: usize,
    expected: String,
    observed: String,
}

/// `media_faults`: spans of another length than their grid, over pad ids, over each other, or with more of their
/// placeholders beside them.
pub(super) fn media_faults() -> ScalarUDF {
    let arguments = vec![list(any_struct()), list(DataType::Int32), DataType::Int32];
    let returns = list(DataType::Struct(fields(&fault_fields())));
    RowFunction::udf("media_faults", arguments, returns, |arrays, rows| {
        let (spans, prompts, pads) = (lists(arrays, 0)?, lists(arrays, 1)?, integers(arrays, 2)?);
        let mut out = Faults::default();
        for row in 0..rows {
            let Some(items) = item(spans, row) else {
                out.add(Vec::new());
                continue;
            };
            let prompt: Option<Int32Array> = match item(prompts, row) {
                Some(items) => Some(cast(&items, &DataType::Int32)?.as_primitive::<Int32Type>().clone()),
                None => None,
            };
            let prompt: &[i32] = prompt.as_ref().map_or(&[], |prompt| prompt.values());
            let pad = pads.is_valid(row).then(|| pads.value(row));
            out.add(faults(&read(&items)?, prompt, pad));
        }
        out.finish()
    })
}

/// `media_changes`: spans among the tokens shared with the parent that are not the parent's, and media whose number of
/// placeholders changed.
pub(super) fn media_changes() -> ScalarUDF {
    let arguments = vec![list(any_struct()), list(any_struct()), DataType::Int32];
    let returns = list(DataType::Struct(fields(&fault_fields())));
    RowFunction::udf("media_changes", arguments, returns, |arrays, rows| {
        let (spans, parents, shared) = (lists(arrays, 0)?, lists(arrays, 1)?, integers(arrays, 2)?);
        let mut out = Faults::default();
        for row in 0..rows {
            let found = match (item(spans, row), item(parents, row), index(&shared, row)) {
                (Some(own), Some(parent), Some(shared)) => changes(&read(&own)?, &read(&parent)?, shared),
                _ => Vec::new(),
            };
            out.add(found);
        }
        out.finish()
    })
}

fn read(items: &ArrayRef) -> Result<Vec<Span>> {
    let items = structs(items)?;
    let (starts, lengths) = (int_field(items, "start")?, int_field(items, "length")?);
    let digests: StringArray = text_field(items, "digest")?;
    let modalities: StringArray = text_field(items, "modality")?;
    let grids = items.column_by_name("grid").and_then(|grids| grids.as_list_opt::<i32>());
    let mut spans = Vec::with_capacity(items.len());
    for at in (0..items.len()).filter(|at| items.is_valid(*at)) {
        let (Some(start), Some(length)) = (index(&starts, at), index(&lengths, at)) else {
            continue;
        };
        let grid = match grids.and_then(|grids| item(grids, at)) {
            Some(sides) => cast(&sides, &DataType::Int32)?.as_primitive::<Int32Type>().values().to_vec(),
            None => Vec::new(),
        };
        let digest = digests.is_valid(at).then(|| digests.value(at).to_owned());
        let modality = modalities.is_valid(at).then(|| modalities.value(at).to_owned());
        spans.push(Span { start, length, modality, grid, digest });
    }
    spans.sort_by_key(|span| span.start);
    Ok(spans)
}

fn faults(spans: &[Span], prompt: &[i32], pad: Option<i32>) -> Vec<Fault> {
    let mut found = unlike(spans);
    let mut end = 0;
    let covered = |at: usize| spans.iter().any(|span| (span.start..span.start + span.length).contains(&at));
    for span in spans {
        let mut fault = |kind, position, length, expected: String, observed: String| {
            found.push(Fault { kind, position, length, expected, observed });
        };
        if span.start < end {
            fault("overlap", span.start, span.length, format!("a start from {end} on"), span.start.to_string());
        }
        end = end.max(span.start + span.length);
        if !is_count_right(&span.grid, span.length) {
            let of_grid = span.grid.iter().map(ToString::to_string).collect::<Vec<_>>().join(" x ");
            fault(
                "count",
                span.start,
                span.length,
                format!("the placeholders of a grid {of_grid}"),
                span.length.to_string(),
            );
        }
        let ids = prompt.get(span.start..span.start + span.length).unwrap_or_default();
        if let Some(at) = ids.iter().position(|id| Some(*id) == pad) {
            let run = ids.iter().skip(at).take_while(|id| Some(**id) == pad).count();
            fault("pad", span.start + at, run, "a placeholder".to_owned(), "the pad id".to_owned());
            continue;
        }
        if let Some(to) = moved(span, ids, prompt, &covered) {
            fault("moved", span.start, span.length, format!("a start at {to}"), span.start.to_string());
            continue;
        }
        // Only where one id fills the span is its neighbor of the same id surely a placeholder, too.
        let Some(placeholder) = ids.first().filter(|first| ids.iter().all(|id| id == *first)) else {
            continue;
        };
        let is_more = |at: &usize| prompt.get(*at) == Some(placeholder) && !covered(*at);
        let before = (0..span.start).rev().take_while(is_more).count();
        let after = (span.start + span.length..prompt.len()).take_while(is_more).count();
        if before + after > 0 {
            let total = before + span.length + after;
            fault("run", span.start - before, total, span.length.to_string(), total.to_string());
        }
    }
    found
}

/// Spans of one grid and modality in one prompt that have not one number of placeholders: fewer agree with each of these than with the
/// others, or it comes later.
fn unlike(spans: &[Span]) -> Vec<Fault> {
    let alike =
        |one: &Span, other: &Span| one.grid == other.grid && one.modality == other.modality && !one.grid.is_empty();
    let votes = |span: &Span| spans.iter().filter(|other| alike(span, other) && other.length == span.length).count();
    let mut found = Vec::new();
    for span in spans.iter().filter(|span| is_count_right(&span.grid, span.length)) {
        let of_grid = spans.iter().filter(|other| alike(span, other) && is_count_right(&other.grid, other.length));
        let Some(usual) = of_grid.max_by_key(|other| (votes(other), std::cmp::Reverse(other.start))) else {
            continue;
        };
        if usual.length != span.length {
            let expected = format!("{}, as the one at {} of the same grid has", usual.length, usual.start);
            let observed = span.length.to_string();
            found.push(Fault { kind: "unlike", position: span.start, length: span.length, expected, observed });
        }
    }
    found
}

/// Where a span should start that one id fills but for its last tokens, while that id goes on for as many tokens before it; or the
/// other way round.
fn moved(span: &Span, ids: &[i32], prompt: &[i32], covered: &dyn Fn(usize) -> bool) -> Option<usize> {
    let is_free = |at: usize, id: i32| prompt.get(at) == Some(&id) && !covered(at);
    let (first, last) = (*ids.first()?, *ids.last()?);
    let own = |id: i32| ids.iter().filter(|other| **other == id).count();
    let (head, tail) = (own(first), own(last));
    let begins = ids.iter().take(head).all(|id| *id == first);
    let ends = ids.iter().rev().take(tail).all(|id| *id == last);
    let (missing_before, missing_after) = (ids.len() - head, ids.len() - tail);
    let before = (0..span.start).rev().take_while(|at| is_free(*at, first)).count();
    if begins && missing_before > 0 && head > missing_before && before == missing_before {
        return Some(span.start - before);
    }
    let after = (span.start + span.length..prompt.len()).take_while(|at| is_free(*at, last)).count();
    (ends && missing_after > 0 && tail > missing_after && after == missing_after).then_some(span.start + after)
}

/// Whether placeholders can stand for a grid of patches: one for each, for each square of them, or also one at each row's end.
fn is_count_right(grid: &[i32], length: usize) -> bool {
    let sides: Vec<i64> = grid.iter().map(|side| i64::from(*side)).collect();
    let Ok(length) = i64::try_from(length) else { return false };
    if sides.is_empty() || sides.iter().any(|side| *side <= 0) {
        return true;
    }
    let Some(patches) = sides.iter().try_fold(1_i64, |product, side| product.checked_mul(*side)) else {
        return true;
    };
    (1..=MERGED).any(|merged| {
        let by_row = match sides.as_slice() {
            [.., height, width] if *width > 1 && height % merged == 0 && width % merged == 0 => {
                patches / (merged * merged) + patches / width / merged == length
            }
            _ => false,
        };
        by_row || length.checked_mul(merged * merged) == Some(patches)
    })
}

fn changes(own: &[Span], parent: &[Span], shared: usize) -> Vec<Fault> {
    let mut found = Vec::new();
    let told = |digest: &Option<String>| digest.clone().unwrap_or_else(|| "a medium".to_owned());
    for span in own.iter().filter(|span| span.start < shared) {
        let (kind, expected, observed) = match parent.iter().find(|other| other.start == span.start) {
            Some(other) if other.digest.is_some() && span.digest.is_some() && other.digest != span.digest => {
                ("digest", told(&other.digest), told(&span.digest))
            }
            // What a grid contradicts is told by itself.
            Some(other) if other.length != span.length && is_count_right(&span.grid, span.length) => {
                ("count", other.length.to_string(), span.length.to_string())
            }
            None if span.start + span.length <= shared => ("added", "none".to_owned(), told(&span.digest)),
            _ => continue,
        };
        found.push(Fault { kind, position: span.start, length: span.length, expected, observed });
    }
    let lost = parent.iter().filter(|other| other.start + other.length <= shared);
    for other in lost.filter(|other| !own.iter().any(|span| span.start == other.start)) {
        let (expected, observed) = (told(&other.digest), "none".to_owned());
        found.push(Fault { kind: "lost", position: other.start, length: other.length, expected, observed });
    }
    found
}

#[derive(Default)]
struct Faults {
    counts: Vec<usize>,
    kinds: StringBuilder,
    positions: Int32Builder,
    lengths: Int32Builder,
    expected: StringBuilder,
    observed: StringBuilder,
}

impl Faults {
    fn add(&mut self, found: Vec<Fault>) {
        self.counts.push(found.len());
        for fault in found {
            self.kinds.append_value(fault.kind);
            self.positions.append_value(int(fault.position));
            self.lengths.append_value(int(fault.length));
            self.expected.append_value(fault.expected);
            self.observed.append_value(fault.observed);
        }
    }

    fn finish(mut self) -> Result<ArrayRef> {
        let columns: Vec<ArrayRef> = vec![
            Arc::new(self.kinds.finish()) as ArrayRef,
            Arc::new(self.positions.finish()),
            Arc::new(self.lengths.finish()),
            Arc::new(self.expected.finish()),
            Arc::new(self.observed.finish()),
        ];
        list_of_structs(self.counts, fields(&fault_fields()), columns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(start: usize, length: usize, grid: &[i32], digest: &str) -> Span {
        Span {
            start,
            length,
            modality: None,
            grid: grid.to_vec(),
            digest: (!digest.is_empty()).then(|| digest.to_owned()),
        }
    }

    fn seen(found: &[Fault]) -> Vec<(&'static str, usize, usize)> {
        found.iter().map(|fault| (fault.kind, fault.position, fault.length)).collect()
    }

    #[test]
    fn a_grid_has_a_placeholder_for_each_patch_or_square_of_patches_and_perhaps_a_row_end() {
        for (grid, length, right) in [
            (vec![1, 1, 3], 3, true),
            (vec![1, 1, 3], 5, false),
            (vec![1, 36, 24], 216, true),
            (vec![2, 4, 4], 8, true),
            (vec![3, 4], 15, true),
            (vec![3, 4], 16, false),
            (vec![], 7, true),
        ] {
            assert_eq!(is_count_right(&grid, length), right, "{grid:?} {length}");
        }
    }

    #[test]
    fn pads_overlaps_and_placeholders_beside_a_span_are_told() {
        assert_eq!(seen(&faults(&[span(0, 1, &[], "")], &[0, 0, 9, 7], Some(0))), [("pad", 0, 1)]);
        assert_eq!(seen(&faults(&[span(1, 3, &[1, 1, 3], "")], &[1, 9, 9, 9, 9, 9, 2], None)), [("run", 1, 5)]);
        let two = [span(0, 2, &[], ""), span(1, 2, &[], "")];
        assert_eq!(seen(&faults(&two, &[9, 9, 9], None)), [("overlap", 1, 2)]);
        let neighbors = [span(0, 2, &[], ""), span(2, 2, &[], "")];
        assert_eq!(faults(&neighbors, &[9, 9, 9, 9, 5], None), []);
    }

    #[test]
    fn a_span_beside_its_placeholders_is_moved() {
        let prompt = [1, 7, 9, 9, 9, 9, 8, 6];
        assert_eq!(seen(&faults(&[span(3, 4, &[], "")], &prompt, None)), [("moved", 3, 4)]);
        assert_eq!(seen(&faults(&[span(1, 4, &[], "")], &prompt, None)), [("moved", 1, 4)]);
        assert_eq!(faults(&[span(2, 4, &[], "")], &prompt, None), []);
        // A span that takes in the marks around its placeholders.
        assert_eq!(faults(&[span(1, 6, &[], "")], &prompt, None), []);
    }

    #[test]
    fn equal_grids_in_one_prompt_have_equally_many_placeholders() {
        let three = [span(0, 4, &[1, 4, 4], ""), span(10, 1, &[1, 4, 4], ""), span(20, 4, &[1, 4, 4], "")];
        assert_eq!(seen(&faults(&three, &[], None)), [("unlike", 10, 1)]);
        assert_eq!(seen(&faults(&three[..2], &[], None)), [("unlike", 10, 1)]);
        assert_eq!(faults(&[span(0, 4, &[1, 4, 4], ""), span(9, 16, &[1, 8, 8], "")], &[], None), []);
    }

    #[test]
    fn another_medium_at_the_same_ids_is_a_change() {
        let parent = [span(1, 2, &[], "a"), span(5, 2, &[], "b")];
        let own = [span(1, 2, &[], "x"), span(9, 2, &[], "c")];
        assert_eq!(seen(&changes(&own, &parent, 8)), [("digest", 1, 2), ("lost", 5, 2)]);
        assert_eq!(seen(&changes(&[span(1, 4, &[], "a")], &parent, 3)), [("count", 1, 4)]);
        assert_eq!(changes(&parent, &parent, 8), []);
        assert_eq!(seen(&changes(&parent, &parent[..1], 8)), [("added", 5, 2)]);
    }
}
