//! What each rollout of a row trains, and what its loss got.

use std::collections::BTreeMap;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, Float64Array, Float64Builder, Int64Builder, StringBuilder};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Float64Type};
use datafusion::common::Result;
use datafusion::logical_expr::ScalarUDF;

use super::lists::{any_struct, fields, item, list, list_of_structs, lists, mask};
use super::row_function::RowFunction;
use super::segments::Row;

fn weight_fields() -> [(&'static str, DataType); 3] {
    [("rollout_id", DataType::Utf8), ("tokens", DataType::Int64), ("weight", DataType::Float64)]
}

/// Tokens and weight of one rollout in one row; a weight that is unknown anywhere is unknown.
#[derive(Debug, Default, Clone, PartialEq)]
struct Share {
    tokens: i64,
    weight: f64,
    is_unknown: bool,
}

pub(super) fn span_weights() -> ScalarUDF {
    let arguments = vec![list(any_struct()), list(DataType::Boolean), list(DataType::Float64)];
    let returns = list(DataType::Struct(fields(&weight_fields())));
    RowFunction::udf("span_weights", arguments, returns, |arrays, rows| {
        let (segments, masks, weights) = (lists(arrays, 0)?, lists(arrays, 1)?, lists(arrays, 2)?);
        let (mut rollouts, mut tokens, mut sums) = (StringBuilder::new(), Int64Builder::new(), Float64Builder::new());
        let mut counts = Vec::with_capacity(rows);
        for row in 0..rows {
            let shares = match item(segments, row) {
                Some(items) => shares(&Row::read(&items, mask(masks, row)?)?, doubles(item(weights, row))?.as_ref()),
                None => BTreeMap::new(),
            };
            counts.push(shares.len());
            for (rollout, share) in shares {
                rollouts.append_option(rollout);
                tokens.append_value(share.tokens);
                sums.append_option((!share.is_unknown).then_some(share.weight));
            }
        }
        let columns: Vec<ArrayRef> =
            vec![Arc::new(rollouts.finish()), Arc::new(tokens.finish()) as ArrayRef, Arc::new(sums.finish())];
        list_of_structs(counts, fields(&weight_fields()), columns)
    })
}

/// A list's numbers, none where it is null.
pub(super) fn doubles(items: Option<ArrayRef>) -> Result<Option<Float64Array>> {
    match items {
        Some(items) => Ok(Some(cast(&items, &DataType::Float64)?.as_primitive::<Float64Type>().clone())),
        None => Ok(None),
    }
}

/// Adds in eight sums at once: one alone would wait for each addition before the next.
fn sum(weights: &[f64]) -> f64 {
    let (whole, rest) = weights.as_chunks::<8>();
    let mut sums = [0.0; 8];
    for chunk in whole {
        for (sum, weight) in sums.iter_mut().zip(chunk) {
            *sum += weight;
        }
    }
    sums.iter().chain(rest).sum()
}

fn shares(row: &Row, weights: Option<&Float64Array>) -> BTreeMap<Option<String>, Share> {
    let total = row.segments.iter().map(|segment| segment.start + segment.length).max().unwrap_or(0);
    let weights = weights.filter(|weights| weights.len() == total);
    let mut shares: BTreeMap<Option<String>, Share> = BTreeMap::new();
    for segment in &row.segments {
        let share = shares.entry(segment.rollout.clone()).or_default();
        let trained = row.trained_count(segment);
        share.tokens += i64::try_from(trained).unwrap_or(i64::MAX);
        match weights {
            // A weight on a token that does not train is a weight all the same.
            Some(weights) if weights.null_count() == 0 => {
                share.weight += sum(&weights.values()[segment.start..][..segment.length]);
            }
            Some(weights) => {
                for at in segment.start..segment.start + segment.length {
                    match weights.is_valid(at).then(|| weights.value(at)) {
                        Some(weight) => share.weight += weight,
                        None if row.trains(segment, at) => share.is_unknown = true,
                        None => {}
                    }
                }
            }
            None => share.is_unknown |= trained > 0,
        }
    }
    shares
}
