//! Trained tokens of a row that no call's output accounts for, and the order in which a row's calls follow each other.

use std::collections::BTreeMap;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, BooleanArray, Int32Builder, StringArray, StringBuilder};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::Result;
use datafusion::logical_expr::ScalarUDF;

use super::coverage::runs_of;
use super::lists::{
    any_struct, bits, bool_field, fields, index, int, int_field, integers, is_set, item, list, list_of_structs, lists,
    mask, structs, text_field, true_runs,
};
use super::row_function::RowFunction;
use super::segments::{Row, Source};

fn stray_fields() -> [(&'static str, DataType); 5] {
    [
        ("source", DataType::Utf8),
        ("rollout_id", DataType::Utf8),
        ("call_id", DataType::Utf8),
        ("row_start", DataType::Int32),
        ("length", DataType::Int32),
    ]
}

/// A run of trained tokens that is no named call's output.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Stray {
    source: Option<String>,
    rollout: Option<String>,
    call: Option<String>,
    start: usize,
    length: usize,
}

/// `stray_spans`: runs of trained tokens whose segment is no output, or names no call and offset, or that have no
/// segment (source null).
pub(super) fn stray_spans() -> ScalarUDF {
    let arguments = vec![DataType::Int32, list(any_struct()), list(DataType::Boolean)];
    let returns = list(DataType::Struct(fields(&stray_fields())));
    RowFunction::udf("stray_spans", arguments, returns, |arrays, rows| {
        let (tokens, segments, masks) = (integers(arrays, 0)?, lists(arrays, 1)?, lists(arrays, 2)?);
        let (mut sources, mut rollouts, mut calls) = (StringBuilder::new(), StringBuilder::new(), StringBuilder::new());
        let (mut starts, mut lengths) = (Int32Builder::new(), Int32Builder::new());
        let mut counts = Vec::with_capacity(rows);
        for row in 0..rows {
            let found = match item(segments, row) {
                Some(items) => strays(index(&tokens, row), &items, mask(masks, row)?)?,
                None => Vec::new(),
            };
            counts.push(found.len());
            for stray in found {
                sources.append_option(stray.source);
                rollouts.append_option(stray.rollout);
                calls.append_option(stray.call);
                starts.append_value(int(stray.start));
                lengths.append_value(int(stray.length));
            }
        }
        let columns: Vec<ArrayRef> = vec![
            Arc::new(sources.finish()),
            Arc::new(rollouts.finish()),
            Arc::new(calls.finish()),
            Arc::new(starts.finish()) as ArrayRef,
            Arc::new(lengths.finish()),
        ];
        list_of_structs(counts, fields(&stray_fields()), columns)
    })
}

fn strays(tokens: Option<usize>, items: &ArrayRef, mask: Option<BooleanArray>) -> Result<Vec<Stray>> {
    let items = structs(items)?;
    let (starts, lengths) = (int_field(items, "start")?, int_field(items, "length")?);
    let (origins, trained) = (int_field(items, "source_start")?, bool_field(items, "trained")?);
    let (rollouts, calls) = (text_field(items, "rollout_id")?, text_field(items, "call_id")?);
    let sources = text_field(items, "source")?;
    let text = |texts: &StringArray, at: usize| texts.is_valid(at).then(|| texts.value(at).to_owned());
    let mut places: Vec<(usize, usize, usize)> = (0..items.len())
        .filter(|at| items.is_valid(*at))
        .filter_map(|at| Some((index(&starts, at)?, index(&lengths, at)?, at)))
        .collect();
    places.sort_unstable();
    let end = places.iter().map(|(start, length, _)| start + length).max().unwrap_or(0);
    // A mask of another length than the row says nothing of which token it means: what the segments say stands.
    let width = tokens.unwrap_or(end);
    let mask = mask.filter(|mask| mask.len() == width || mask.len() == end).map(|mask| bits(&mask));
    let mut found = Vec::new();
    let (mut held, mut open) = (0, Vec::new());
    for (start, length, at) in places {
        if let Some(mask) = mask.as_ref().filter(|_| length > 0) {
            open.extend(true_runs(mask, held..start.max(held)));
        }
        held = held.max(start + length);
        let is_output = sources.is_valid(at) && sources.value(at) == "output";
        if is_output && calls.is_valid(at) && index(&origins, at).is_some() {
            continue;
        }
        let runs: Vec<(usize, usize)> = match &mask {
            Some(mask) => true_runs(mask, start..start + length).collect(),
            None if is_set(&trained, at) && length > 0 => vec![(start, length)],
            None => Vec::new(),
        };
        found.extend(runs.into_iter().map(|(start, length)| Stray {
            source: text(&sources, at),
            rollout: text(&rollouts, at),
            call: text(&calls, at),
            start,
            length,
        }));
    }
    if let Some(mask) = &mask {
        open.extend(true_runs(mask, held..mask.len()));
    }
    found.extend(open.into_iter().map(|(start, length)| Stray {
        source: None,
        rollout: None,
        call: None,
        start,
        length,
    }));
    Ok(found)
}

fn link_fields() -> [(&'static str, DataType); 4] {
    [
        ("rollout_id", DataType::Utf8),
        ("call_id", DataType::Utf8),
        ("previous_call_id", DataType::Utf8),
        ("row_start", DataType::Int32),
    ]
}

/// A call that trains in a sequence after another call's output.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Link {
    rollout: Option<String>,
    call: String,
    previous: String,
    row_start: usize,
}

/// `row_links`: the calls that train in a row after another call's output, with that call.
pub(super) fn row_links() -> ScalarUDF {
    let arguments = vec![list(any_struct()), list(DataType::Boolean)];
    let returns = list(DataType::Struct(fields(&link_fields())));
    RowFunction::udf("row_links", arguments, returns, |arrays, rows| {
        let (segments, masks) = (lists(arrays, 0)?, lists(arrays, 1)?);
        let (mut rollouts, mut calls, mut before) = (StringBuilder::new(), StringBuilder::new(), StringBuilder::new());
        let mut starts = Int32Builder::new();
        let mut counts = Vec::with_capacity(rows);
        for row in 0..rows {
            let found = match item(segments, row) {
                Some(items) => links(&Row::read(&items, mask(masks, row)?)?),
                None => Vec::new(),
            };
            counts.push(found.len());
            for link in found {
                rollouts.append_option(link.rollout);
                calls.append_value(link.call);
                before.append_value(link.previous);
                starts.append_value(int(link.row_start));
            }
        }
        let columns: Vec<ArrayRef> = vec![
            Arc::new(rollouts.finish()),
            Arc::new(calls.finish()),
            Arc::new(before.finish()),
            Arc::new(starts.finish()) as ArrayRef,
        ];
        list_of_structs(counts, fields(&link_fields()), columns)
    })
}

/// Where a sequence has come to: the call whose output came last, and the call whose segments now stand.
#[derive(Debug, Default)]
struct Chain {
    last_output: Option<String>,
    /// A call, the row token at which its segments begin, and whose output came before it.
    current: Option<(String, usize, Option<String>)>,
}

fn links(row: &Row) -> Vec<Link> {
    let mut chains: BTreeMap<i32, Chain> = BTreeMap::new();
    let mut found: Vec<Link> = Vec::new();
    for segment in &row.segments {
        let Some(call) = &segment.call else { continue };
        let chain = chains.entry(segment.sequence).or_default();
        if chain.current.as_ref().is_none_or(|(current, ..)| current != call) {
            chain.current = Some((call.clone(), segment.start, chain.last_output.clone()));
        }
        if segment.source != Source::Output {
            continue;
        }
        chain.last_output = Some(call.clone());
        let trains = row.trained_count(segment) > 0;
        if let (Some((_, row_start, Some(previous))), true) = (&chain.current, trains)
            && previous != call
        {
            let link = Link {
                rollout: segment.rollout.clone(),
                call: call.clone(),
                previous: previous.clone(),
                row_start: *row_start,
            };
            if !found.contains(&link) {
                found.push(link);
            }
        }
    }
    found
}

pub(super) fn unsampled_spans() -> ScalarUDF {
    let arguments = vec![DataType::Int32, DataType::Int32, list(DataType::Boolean), list(DataType::Boolean)];
    let of = [("position", DataType::Int32), ("length", DataType::Int32), ("mask", DataType::Utf8)];
    let returns = list(DataType::Struct(fields(&of)));
    RowFunction::udf("unsampled_spans", arguments, returns, |arrays, rows| {
        let (starts, lengths) = (integers(arrays, 0)?, integers(arrays, 1)?);
        let (sampled, actions) = (lists(arrays, 2)?, lists(arrays, 3)?);
        let (mut positions, mut runs, mut names) = (Int32Builder::new(), Int32Builder::new(), StringBuilder::new());
        let mut counts = Vec::with_capacity(rows);
        for row in 0..rows {
            let found = match (index(&starts, row), index(&lengths, row)) {
                (Some(start), Some(length)) => {
                    unsampled(start, length, mask(sampled, row)?.as_ref(), mask(actions, row)?.as_ref())
                }
                _ => Vec::new(),
            };
            counts.push(found.len());
            for (position, length, name) in found {
                positions.append_value(int(position));
                runs.append_value(int(length));
                names.append_value(name);
            }
        }
        let columns: Vec<ArrayRef> =
            vec![Arc::new(positions.finish()) as ArrayRef, Arc::new(runs.finish()), Arc::new(names.finish())];
        let of = [("position", DataType::Int32), ("length", DataType::Int32), ("mask", DataType::Utf8)];
        list_of_structs(counts, fields(&of), columns)
    })
}

/// Runs of a span's offsets that a mask calls false; what lies beyond a mask's end is another check's question.
fn unsampled(
    start: usize,
    length: usize,
    sampled: Option<&BooleanArray>,
    actions: Option<&BooleanArray>,
) -> Vec<(usize, usize, &'static str)> {
    let denies = |mask: Option<&BooleanArray>, at: usize| {
        mask.is_some_and(|mask| at < mask.len() && mask.is_valid(at) && !mask.value(at))
    };
    let flags_of = |name: &'static str, flag: &dyn Fn(usize) -> bool| -> Vec<(usize, usize, &'static str)> {
        let flags: Vec<bool> = (start..start + length).map(flag).collect();
        runs_of(&flags).into_iter().map(|(offset, run)| (start + offset, run, name)).collect()
    };
    let mut found = flags_of("sampled_mask", &|at| denies(sampled, at));
    found.extend(flags_of("action_mask", &|at| denies(actions, at) && !denies(sampled, at)));
    found.sort_unstable();
    found
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::{Int32Array, StructArray};

    use super::*;

    /// Segments of (start, length, sequence, call, source), the offset in the call being 0.
    fn segments(of: &[(i32, i32, i32, Option<&str>, &str)]) -> ArrayRef {
        let numbers = |value: fn(&(i32, i32, i32, Option<&str>, &str)) -> i32| -> ArrayRef {
            Arc::new(of.iter().map(|one| Some(value(one))).collect::<Int32Array>())
        };
        let texts = |values: Vec<Option<&str>>| -> ArrayRef { Arc::new(StringArray::from(values)) };
        let columns = [
            ("start", DataType::Int32),
            ("length", DataType::Int32),
            ("sequence_index", DataType::Int32),
            ("source_start", DataType::Int32),
            ("call_id", DataType::Utf8),
            ("source", DataType::Utf8),
        ];
        let values = vec![
            numbers(|one| one.0),
            numbers(|one| one.1),
            numbers(|one| one.2),
            numbers(|_| 0),
            texts(of.iter().map(|one| one.3).collect()),
            texts(of.iter().map(|one| Some(one.4)).collect()),
        ];
        Arc::new(StructArray::try_new(fields(&columns), values, None).unwrap())
    }

    fn bits(of: &[u8]) -> Option<BooleanArray> {
        Some(of.iter().map(|bit| Some(*bit == 1)).collect())
    }

    #[test]
    fn what_is_no_named_output_is_a_stray_of_its_segment_or_of_none() {
        let items = segments(&[
            (0, 2, 0, Some("a"), "prompt"),
            (2, 2, 0, Some("a"), "output"),
            (4, 1, 0, None, "output"),
            (5, 1, 0, None, "pad"),
        ]);
        let found = strays(Some(8), &items, bits(&[0, 1, 1, 1, 1, 1, 0, 1])).unwrap();
        let seen: Vec<(Option<&str>, usize, usize)> =
            found.iter().map(|stray| (stray.source.as_deref(), stray.start, stray.length)).collect();
        assert_eq!(seen, [(Some("prompt"), 1, 1), (Some("output"), 4, 1), (Some("pad"), 5, 1), (None, 7, 1)]);
    }

    #[test]
    fn a_mask_of_another_length_accuses_nobody() {
        let items = segments(&[(0, 2, 0, Some("a"), "prompt"), (2, 2, 0, Some("a"), "output")]);
        assert_eq!(strays(Some(4), &items, bits(&[1, 1])).unwrap(), []);
    }

    #[test]
    fn a_link_stands_where_the_later_call_begins() {
        let items = segments(&[
            (0, 2, 0, Some("a"), "prompt"),
            (2, 1, 0, Some("a"), "output"),
            (3, 1, 0, Some("b"), "prompt"),
            (4, 2, 0, Some("b"), "output"),
            (6, 1, 1, Some("c"), "prompt"),
            (7, 1, 1, Some("c"), "output"),
        ]);
        let row = Row::read(&items, bits(&[0, 0, 1, 0, 1, 1, 0, 1])).unwrap();
        let seen: Vec<(String, String, usize)> =
            links(&row).into_iter().map(|link| (link.call, link.previous, link.row_start)).collect();
        assert_eq!(seen, [("b".to_owned(), "a".to_owned(), 3)]);
        let untrained = Row::read(&items, bits(&[0, 0, 1, 0, 0, 0, 0, 1])).unwrap();
        assert_eq!(links(&untrained), []);
    }

    #[test]
    fn a_false_of_either_mask_denies_and_the_end_of_a_mask_does_not() {
        let (sampled, actions) = (bits(&[1, 0, 0]), bits(&[1, 0, 1, 0]));
        let found = unsampled(0, 6, sampled.as_ref(), actions.as_ref());
        assert_eq!(found, [(1, 2, "sampled_mask"), (3, 1, "action_mask")]);
        assert_eq!(unsampled(2, 1, None, None), []);
    }
}
