//! Whether segments tile their row, sequence after sequence.

use std::collections::BTreeSet;

use datafusion::arrow::array::{AsArray, Int32Array};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Int32Type};
use datafusion::logical_expr::ScalarUDF;

use super::faults::{Fault, Faults, fault_list};
use super::lists::{any_struct, index, integers, item, list, lists};
use super::outline::{Outline, Part};
use super::row_function::RowFunction;

/// `tiling_faults(segments, total, cu_seqlens)`.
pub(super) fn tiling_faults() -> ScalarUDF {
    let arguments = vec![list(any_struct()), DataType::Int32, list(DataType::Int32)];
    RowFunction::udf("tiling_faults", arguments, fault_list(), |arrays, rows| {
        let (segments, totals, borders) = (lists(arrays, 0)?, integers(arrays, 1)?, lists(arrays, 2)?);
        let mut faults = Faults::default();
        for row in 0..rows {
            let Some(items) = item(segments, row) else {
                faults.add_row(Vec::new());
                continue;
            };
            let outline = Outline::read(&items)?;
            let mut found = tiling(&outline, index(&totals, row));
            found.extend(sequences(&outline));
            if let Some(borders) = item(borders, row) {
                let borders = cast(&borders, &DataType::Int32)?;
                found.extend(attention(&outline, borders.as_primitive::<Int32Type>()));
            }
            faults.add_row(found);
        }
        faults.finish()
    })
}

fn fault(part: Option<&Part<'_>>, position: usize, length: usize, expected: String, observed: String) -> Fault {
    Fault {
        position,
        length,
        rollout: part.and_then(|part| part.rollout).map(str::to_owned),
        call: part.and_then(|part| part.call).map(str::to_owned),
        message: format!("row token {position}: {observed}, where {expected}"),
        expected,
        observed,
    }
}

/// Gaps, overlaps and what lies beyond the row.
fn tiling(outline: &Outline, total: Option<usize>) -> Vec<Fault> {
    let mut found = Vec::new();
    let mut end = 0;
    for part in outline.parts() {
        let (Some(start), Some(length)) = (part.start, part.length) else {
            let expected = "each segment has a start and a length of 0 or more".to_owned();
            found.push(fault(Some(&part), end, 0, expected, "a segment has none".to_owned()));
            continue;
        };
        let expected = || format!("the next segment starts at {end}");
        if start > end {
            found.push(fault(Some(&part), end, start - end, expected(), format!("it starts at {start}: a gap")));
        } else if start < end {
            let shared = (end - start).min(length.max(1));
            found.push(fault(Some(&part), start, shared, expected(), format!("it starts at {start}: an overlap")));
        }
        if part.origin.is_some_and(|origin| origin < 0) {
            let expected = "a source_start is 0 or more".to_owned();
            found.push(fault(Some(&part), start, length, expected, "it is negative".to_owned()));
        }
        if let Some(other) = part.source.filter(|source| !SOURCES.contains(source)) {
            let expected = format!("a source is one of {}", SOURCES.join(", "));
            found.push(fault(Some(&part), start, length, expected, format!("it is {other}")));
        }
        end = end.max(start + length);
    }
    if let Some(total) = total.filter(|total| *total != end) {
        let (position, length) = (end.min(total), end.abs_diff(total));
        let expected = format!("the segments end with the row at {total}");
        found.push(fault(None, position, length, expected, format!("they end at {end}")));
    }
    found
}

const SOURCES: [&str; 4] = ["prompt", "output", "boundary", "pad"];

/// A sequence in two pieces.
fn sequences(outline: &Outline) -> Vec<Fault> {
    let mut found = Vec::new();
    let (mut seen, mut last) = (BTreeSet::new(), None);
    for (part, _) in outline.sequences() {
        let (Some(sequence), false) = (part.sequence, part.is_pad()) else {
            continue;
        };
        if last == Some(sequence) {
            continue;
        }
        if !seen.insert(sequence) {
            let range = part.range();
            let expected = format!("sequence {sequence} is one piece");
            found.push(fault(Some(&part), range.start, range.len(), expected, "it begins again".to_owned()));
        }
        last = Some(sequence);
    }
    found
}

/// The tokens behind the last border, which no attention reaches.
fn unattended(parts: &[(Part<'_>, bool)], last: usize, end: usize) -> Fault {
    let part = parts.iter().find(|(part, _)| part.range().contains(&last)).map(|(part, _)| part);
    let expected = format!("the last border is {end} or behind it");
    fault(part, last, end - last, expected, format!("attention ends at {last}"))
}

/// Borders that attention was cut at, against those of the segments; behind the last token of a sequence anything may be.
fn attention(outline: &Outline, given: &Int32Array) -> Option<Fault> {
    let parts = outline.sequences();
    let end = parts.iter().filter(|(part, _)| !part.is_pad()).map(|(part, _)| part.range().end).max().unwrap_or(0);
    // Padding before the first token may be a sequence of its own, or part of the first.
    let first = parts.iter().find(|(part, _)| !part.is_pad()).map_or(0, |(part, _)| part.range().start);
    let own: Vec<usize> = parts.iter().filter(|(_, begins)| *begins).map(|(part, _)| part.range().start).collect();
    let within = |border: &usize| *border > first && *border < end;
    let own: Vec<usize> = own.into_iter().filter(within).collect();
    let given: Vec<usize> = given.iter().flatten().filter_map(|border| usize::try_from(border).ok()).collect();
    let last = given.iter().max().copied().unwrap_or(end);
    let given: Vec<usize> = given.into_iter().filter(within).collect();
    if own == given && last < end {
        return Some(unattended(&parts, last, end));
    }
    if own == given {
        return None;
    }
    let same = own.iter().zip(&given).take_while(|(own, given)| own == given).count();
    let position = own.get(same).into_iter().chain(given.get(same)).min().copied().unwrap_or(first);
    let part = parts.iter().find(|(part, _)| part.range().contains(&position)).map(|(part, _)| part);
    let text = |borders: &[usize]| {
        let all: Vec<String> = [first].iter().chain(borders).chain([&end]).map(ToString::to_string).collect();
        all.join(", ")
    };
    let length = end - position;
    Some(Fault {
        position,
        length,
        rollout: part.and_then(|part| part.rollout).map(str::to_owned),
        call: part.and_then(|part| part.call).map(str::to_owned),
        expected: text(&own),
        observed: text(&given),
        message: format!(
            "attention was cut at {} where the row's sequences are cut at {}: tokens see another sequence",
            text(&given),
            text(&own)
        ),
    })
}
