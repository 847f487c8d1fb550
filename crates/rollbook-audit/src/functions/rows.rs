//! A row's mask as it speaks of tokens, and the beginnings of a row's sequences.

use std::collections::BTreeSet;
use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Int32Builder, ListArray, StringArray, StringBuilder,
};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Field, Int32Type};
use datafusion::common::Result;
use datafusion::logical_expr::ScalarUDF;

use super::lists::{
    any_struct, argument, fields, index, int, int_field, item, list, list_of_structs, lists, structs, text_field,
};
use super::row_function::RowFunction;

/// The convention of masks over inputs.
const PREDICTS_NEXT: &str = "predicts_next";

/// `row_mask`: the mask with one item for the token at its place, whatever its convention.
pub(super) fn row_mask() -> ScalarUDF {
    let arguments = vec![list(DataType::Boolean), DataType::Utf8];
    RowFunction::udf("row_mask", arguments, list(DataType::Boolean), |arrays, rows| {
        let masks = lists(arrays, 0)?;
        let conventions = cast(argument(arrays, 1)?, &DataType::Utf8)?;
        let conventions = conventions.as_string::<i32>();
        let moves = |row: usize| conventions.is_valid(row) && conventions.value(row) == PREDICTS_NEXT;
        let values = cast(masks.values(), &DataType::Boolean)?;
        let values = if (0..rows).any(moves) { moved(masks, values.as_boolean(), moves) } else { values };
        let field = Arc::new(Field::new("element", DataType::Boolean, true));
        Ok(Arc::new(ListArray::try_new(field, masks.offsets().clone(), values, masks.nulls().cloned())?) as ArrayRef)
    })
}

/// The items of masks, those of some rows moved by one: items over inputs speak of the token after them, so that none speaks
/// of the first, and the last of none.
fn moved(masks: &ListArray, values: &BooleanArray, moves: impl Fn(usize) -> bool) -> ArrayRef {
    let mut items: Vec<Option<bool>> = values.iter().collect();
    for row in (0..masks.len()).filter(|row| moves(*row)) {
        let [start, end] =
            [masks.offsets()[row], masks.offsets()[row + 1]].map(|end| usize::try_from(end).unwrap_or(0));
        if let Some(items) = items.get_mut(start..end).filter(|items| !items.is_empty()) {
            items.rotate_right(1);
            items[0] = Some(false);
        }
    }
    Arc::new(BooleanArray::from(items))
}

fn start_fields() -> [(&'static str, DataType); 5] {
    [
        ("position", DataType::Int32),
        ("rollout_id", DataType::Utf8),
        ("call_id", DataType::Utf8),
        ("first_id", DataType::Int32),
        ("second_id", DataType::Int32),
    ]
}

/// `sequence_starts`: where a call's prompt begins a sequence of a row, with its first two ids.
pub(super) fn sequence_starts() -> ScalarUDF {
    let arguments = vec![list(DataType::Int32), list(any_struct())];
    let returns = list(DataType::Struct(fields(&start_fields())));
    RowFunction::udf("sequence_starts", arguments, returns, |arrays, rows| {
        let (tokens, segments) = (lists(arrays, 0)?, lists(arrays, 1)?);
        let (mut positions, mut firsts, mut seconds) = (Int32Builder::new(), Int32Builder::new(), Int32Builder::new());
        let (mut rollouts, mut calls) = (StringBuilder::new(), StringBuilder::new());
        let mut counts = Vec::with_capacity(rows);
        for row in 0..rows {
            let (Some(tokens), Some(items)) = (item(tokens, row), item(segments, row)) else {
                counts.push(0);
                continue;
            };
            let tokens = cast(&tokens, &DataType::Int32)?;
            let tokens = tokens.as_primitive::<Int32Type>().values();
            let found = starts(&items)?;
            counts.push(found.len());
            for start in found {
                positions.append_value(int(start.position));
                rollouts.append_option(start.rollout);
                calls.append_option(start.call);
                firsts.append_option(tokens.get(start.position).copied());
                seconds.append_option((start.length > 1).then(|| tokens.get(start.position + 1).copied()).flatten());
            }
        }
        let columns: Vec<ArrayRef> = vec![
            Arc::new(positions.finish()) as ArrayRef,
            Arc::new(rollouts.finish()),
            Arc::new(calls.finish()),
            Arc::new(firsts.finish()),
            Arc::new(seconds.finish()),
        ];
        list_of_structs(counts, fields(&start_fields()), columns)
    })
}

struct Start {
    position: usize,
    length: usize,
    rollout: Option<String>,
    call: Option<String>,
}

fn starts(items: &ArrayRef) -> Result<Vec<Start>> {
    let items = structs(items)?;
    let (starts, lengths) = (int_field(items, "start")?, int_field(items, "length")?);
    let (sequences, origins) = (int_field(items, "sequence_index")?, int_field(items, "source_start")?);
    let (rollouts, calls) = (text_field(items, "rollout_id")?, text_field(items, "call_id")?);
    let sources = text_field(items, "source")?;
    let mut places: Vec<(usize, usize, usize)> = (0..items.len())
        .filter(|at| items.is_valid(*at))
        .filter_map(|at| Some((index(&starts, at)?, index(&lengths, at)?, at)))
        .filter(|(_, length, _)| *length > 0)
        .collect();
    places.sort_unstable();
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    for (position, length, at) in places {
        let source = if sources.is_valid(at) { sources.value(at) } else { "" };
        // What pads or parts sequences is no token of one.
        if matches!(source, "boundary" | "pad") {
            continue;
        }
        let sequence = if sequences.is_valid(at) { sequences.value(at) } else { 0 };
        if seen.insert(sequence) && source == "prompt" && index(&origins, at) == Some(0) {
            let text = |texts: &StringArray| texts.is_valid(at).then(|| texts.value(at).to_owned());
            found.push(Start { position, length, rollout: text(&rollouts), call: text(&calls) });
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::{BooleanBuilder, ListBuilder};

    use super::*;

    #[test]
    fn a_mask_over_inputs_moves_by_one() {
        // ids 1 5 EOS: the input 1 predicts 5, 5 predicts EOS, EOS predicts nothing. The other rows stay.
        let item = |value: bool| Some(value);
        let rows: [Option<Vec<Option<bool>>>; 4] =
            [Some(vec![item(true), item(true), item(false)]), Some(vec![]), Some(vec![item(true), None]), None];
        let mut masks = ListBuilder::new(BooleanBuilder::new());
        rows.iter().for_each(|row| masks.append_option(row.clone()));
        let masks = masks.finish();
        let values = moved(&masks, masks.values().as_boolean(), |row| row < 2);
        assert_eq!(
            values.as_boolean(),
            &BooleanArray::from(vec![item(false), item(true), item(true), item(true), None])
        );
    }
}
