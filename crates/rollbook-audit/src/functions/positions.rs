//! Where each token stands in its sequence, and what trains at a sequence's first place.

use datafusion::arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Int32Array};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Int32Type};
use datafusion::common::Result;
use datafusion::logical_expr::ScalarUDF;

use super::faults::{Fault, Faults, fault_list, shown};
use super::lists::{any_struct, int, is_set, item, list, lists, mask};
use super::outline::{Outline, Part};
use super::row_function::RowFunction;

fn ids(items: Option<ArrayRef>) -> Result<Option<Int32Array>> {
    match items {
        Some(items) => Ok(Some(cast(&items, &DataType::Int32)?.as_primitive::<Int32Type>().clone())),
        None => Ok(None),
    }
}

/// `position_faults(segments, position_ids)`.
pub(super) fn position_faults() -> ScalarUDF {
    let arguments = vec![list(any_struct()), list(DataType::Int32)];
    RowFunction::udf("position_faults", arguments, fault_list(), |arrays, rows| {
        let (segments, positions) = (lists(arrays, 0)?, lists(arrays, 1)?);
        let mut faults = Faults::default();
        for row in 0..rows {
            let found = match (item(segments, row), ids(item(positions, row))?) {
                (Some(items), Some(positions)) => misplaced(&Outline::read(&items)?, &positions),
                _ => Vec::new(),
            };
            faults.add_row(found);
        }
        faults.finish()
    })
}

/// Runs of tokens whose position is not their place in their sequence; padding has no place.
fn misplaced(outline: &Outline, positions: &Int32Array) -> Vec<Fault> {
    let mut runs: Vec<(Part<'_>, usize, i32, usize)> = Vec::new();
    let (mut place, mut end) = (0, 0);
    for (part, begins) in outline.sequences() {
        if part.is_pad() {
            end = part.range().end;
            continue;
        }
        // A token that no segment names has its place all the same.
        place = if begins { 0 } else { place + int(part.range().start.saturating_sub(end)) };
        end = part.range().end;
        if let Some(given) = positions.values().get(part.range()).filter(|_| positions.null_count() == 0) {
            // Counted, so that the loop has no branch and takes several positions a step.
            let wrong: u32 = given.iter().zip(place..).map(|(given, place)| u32::from(*given != place)).sum();
            if wrong == 0 {
                place += int(given.len());
                continue;
            }
        }
        for at in part.range() {
            let is_right = at >= positions.len() || (positions.is_valid(at) && positions.value(at) == place);
            if !is_right {
                match runs.last_mut() {
                    Some((_, start, _, length)) if *start + *length == at && place != 0 => *length += 1,
                    _ => runs.push((part, at, place, 1)),
                }
            }
            place += 1;
        }
    }
    runs.into_iter().map(|(part, start, first, length)| at_place(&part, start, first, length, positions)).collect()
}

fn at_place(part: &Part<'_>, start: usize, first: i32, length: usize, positions: &Int32Array) -> Fault {
    let given = (start..start + length)
        .map(|at| if positions.is_valid(at) { positions.value(at).to_string() } else { "null".to_owned() });
    let expected = shown((0..length).map(|at| i64::from(first) + i64::try_from(at).unwrap_or(i64::MAX)));
    let observed = shown(given);
    Fault {
        position: start,
        length,
        rollout: part.rollout.map(str::to_owned),
        call: part.call.map(str::to_owned),
        message: format!(
            "{length} tokens from row token {start} on have the positions {observed}; in their sequence they stand at {expected}"
        ),
        expected,
        observed,
    }
}

/// `border_faults(segments, position_ids, action_mask)`.
pub(super) fn border_faults() -> ScalarUDF {
    let arguments = vec![list(any_struct()), list(DataType::Int32), list(DataType::Boolean)];
    RowFunction::udf("border_faults", arguments, fault_list(), |arrays, rows| {
        let (segments, positions, masks) = (lists(arrays, 0)?, lists(arrays, 1)?, lists(arrays, 2)?);
        let mut faults = Faults::default();
        for row in 0..rows {
            let mask = mask(masks, row)?;
            let found = match (item(segments, row), ids(item(positions, row))?) {
                (Some(items), _) => borders(&Outline::read(&items)?, mask.as_ref()),
                (None, Some(positions)) => resets(&positions, mask.as_ref()),
                (None, None) => Vec::new(),
            };
            faults.add_row(found);
        }
        faults.finish()
    })
}

/// First tokens of sequences that train after another sequence's tokens.
fn borders(outline: &Outline, mask: Option<&BooleanArray>) -> Vec<Fault> {
    let parts = outline.sequences();
    let first = parts.iter().find(|(part, _)| !part.is_pad()).map(|(part, _)| part.range().start);
    let starts = parts.iter().filter(|(part, begins)| *begins && Some(part.range().start) != first);
    let trains = |part: &Part<'_>, at: usize| mask.map_or(part.trained == Some(true), |mask| is_set(mask, at));
    starts
        .filter(|(part, _)| trains(part, part.range().start))
        .map(|(part, _)| at_border(part.range().start, part.rollout, part.call))
        .collect()
}

/// The same of a row that names no sequences: positions that begin again tell where one starts.
fn resets(positions: &Int32Array, mask: Option<&BooleanArray>) -> Vec<Fault> {
    let Some(mask) = mask.filter(|mask| mask.len() == positions.len()) else {
        return Vec::new();
    };
    // Zeros in a row are padding.
    let is_start = |at: usize| {
        let zero = |at: usize| positions.is_valid(at) && positions.value(at) == 0;
        zero(at) && positions.is_valid(at - 1) && positions.value(at - 1) > 0
    };
    (1..positions.len()).filter(|at| is_start(*at) && is_set(mask, *at)).map(|at| at_border(at, None, None)).collect()
}

fn at_border(at: usize, rollout: Option<&str>, call: Option<&str>) -> Fault {
    Fault {
        position: at,
        length: 1,
        rollout: rollout.map(str::to_owned),
        call: call.map(str::to_owned),
        expected: "context".to_owned(),
        observed: "trained".to_owned(),
        message: format!(
            "row token {at} is the first of its sequence and trains: what predicts it is the sequence before it"
        ),
    }
}
