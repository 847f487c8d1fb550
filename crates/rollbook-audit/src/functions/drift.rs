//! How far the trainer's logprobs lie from the rollout's, sequence by sequence of a packed row.
//!
//! A kernel that carries its state across the border of two sequences computes the first sequence of a row right and those behind
//! it wrong. No column says so; the trainer's own logprobs do.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, Float64Array, Int32Array, StringArray};
use datafusion::arrow::datatypes::DataType;
use datafusion::logical_expr::ScalarUDF;

use super::lists::{any_struct, fields, int, is_set, item, list, list_of_structs, lists, mask};
use super::outline::Outline;
use super::row_function::RowFunction;
use super::weights::doubles;

/// Compared tokens from which on a sequence says something.
const LEAST: usize = 4;

fn drift_fields() -> [(&'static str, DataType); 6] {
    [
        ("place", DataType::Int32),
        ("rollout_id", DataType::Utf8),
        ("call_id", DataType::Utf8),
        ("position", DataType::Int32),
        ("length", DataType::Int32),
        ("apart", DataType::Float64),
    ]
}

/// A sequence of a row: its place, whose it is, where it begins, compared tokens and their summed distance.
#[derive(Debug, Clone, PartialEq)]
struct Drift {
    place: i32,
    rollout: Option<String>,
    call: Option<String>,
    position: usize,
    tokens: usize,
    apart: f64,
}

/// `sequence_drifts(segments, action_mask, logprobs, trainer_logprobs)`: mean distance over the trained tokens of each sequence.
pub(super) fn sequence_drifts() -> ScalarUDF {
    let arguments = vec![list(any_struct()), list(DataType::Boolean), list(DataType::Float64), list(DataType::Float64)];
    let returns = list(DataType::Struct(fields(&drift_fields())));
    RowFunction::udf("sequence_drifts", arguments, returns, |arrays, rows| {
        let (segments, masks) = (lists(arrays, 0)?, lists(arrays, 1)?);
        let (given, computed) = (lists(arrays, 2)?, lists(arrays, 3)?);
        let (mut counts, mut all) = (Vec::with_capacity(rows), Vec::new());
        for row in 0..rows {
            let mask = mask(masks, row)?;
            let found = match (item(segments, row), doubles(item(given, row))?, doubles(item(computed, row))?) {
                (Some(items), Some(given), Some(computed)) if given.len() == computed.len() => {
                    let trains = |at: usize| mask.as_ref().is_none_or(|mask| is_set(mask, at));
                    drifts(&Outline::read(&items)?, &given, &computed, &trains)
                }
                _ => Vec::new(),
            };
            counts.push(found.len());
            all.extend(found);
        }
        let columns: Vec<ArrayRef> = vec![
            Arc::new(all.iter().map(|drift| Some(drift.place)).collect::<Int32Array>()),
            Arc::new(all.iter().map(|drift| drift.rollout.as_deref()).collect::<StringArray>()),
            Arc::new(all.iter().map(|drift| drift.call.as_deref()).collect::<StringArray>()),
            Arc::new(all.iter().map(|drift| Some(int(drift.position))).collect::<Int32Array>()),
            Arc::new(all.iter().map(|drift| Some(int(drift.tokens))).collect::<Int32Array>()),
            Arc::new(
                all.iter().map(|drift| Some(drift.apart / f64::from(int(drift.tokens)))).collect::<Float64Array>(),
            ),
        ];
        list_of_structs(counts, fields(&drift_fields()), columns)
    })
}

fn drifts(
    outline: &Outline,
    given: &Float64Array,
    computed: &Float64Array,
    trains: &dyn Fn(usize) -> bool,
) -> Vec<Drift> {
    let mut found: Vec<Drift> = Vec::new();
    for (part, begins) in outline.sequences() {
        if part.is_pad() {
            continue;
        }
        if begins || found.is_empty() {
            found.push(Drift {
                place: int(found.len()),
                rollout: part.rollout.map(str::to_owned),
                call: None,
                position: part.range().start,
                tokens: 0,
                apart: 0.0,
            });
        }
        let Some(drift) = found.last_mut() else {
            continue;
        };
        for at in part.range().filter(|at| part.source == Some("output") && *at < given.len() && trains(*at)) {
            let pair = (given.is_valid(at) && computed.is_valid(at)).then(|| given.value(at) - computed.value(at));
            if let Some(apart) = pair.filter(|apart| apart.is_finite()) {
                drift.call = drift.call.take().or_else(|| part.call.map(str::to_owned));
                drift.tokens += 1;
                drift.apart += apart.abs();
            }
        }
    }
    found.retain(|drift| drift.tokens >= LEAST);
    found
}
