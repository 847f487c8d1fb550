//! Whether one list of logprobs is another one moved by a token.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Float64Array, Float64Builder, Int32Builder};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Float64Type};
use datafusion::common::Result;
use datafusion::logical_expr::ScalarUDF;

use super::lists::{fields, int, is_sampled, item, list, list_of_structs, lists, mask};
use super::row_function::RowFunction;

/// Values that agree within this are equal.
const EQUAL: f64 = 1e-4;
/// Lists that differ by less, token by token, are not moved.
const APART: f64 = 0.01;
/// Pairs from which on a likeness that is not exact counts.
const MANY: usize = 16;
/// How much nearer the moved list must be where it is not exact.
const NEARER: f64 = 5.0;

fn lag_fields() -> [(&'static str, DataType); 5] {
    [
        ("lag", DataType::Int32),
        ("position", DataType::Int32),
        ("tokens", DataType::Int32),
        ("apart", DataType::Float64),
        ("moved", DataType::Float64),
    ]
}

/// A list that is nearer to the other when it is moved.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Lag {
    lag: i32,
    position: usize,
    tokens: usize,
    apart: f64,
    moved: f64,
}

/// `logprob_lag`: the move by one token under which `other` is `values` over the masked tokens (at most one item), with the
/// mean distance as it stands and moved. Lag 1: the value of a token stands one place later in `values`.
pub(super) fn logprob_lag() -> ScalarUDF {
    let arguments = vec![list(DataType::Float64), list(DataType::Float64), list(DataType::Boolean)];
    let returns = list(DataType::Struct(fields(&lag_fields())));
    RowFunction::udf("logprob_lag", arguments, returns, |arrays, rows| {
        let (values, others, masks) = (lists(arrays, 0)?, lists(arrays, 1)?, lists(arrays, 2)?);
        let (mut lags, mut positions, mut tokens) = (Int32Builder::new(), Int32Builder::new(), Int32Builder::new());
        let (mut apart, mut moved) = (Float64Builder::new(), Float64Builder::new());
        let mut counts = Vec::with_capacity(rows);
        for row in 0..rows {
            let found = match (doubles(item(values, row))?, doubles(item(others, row))?) {
                (Some(values), Some(other)) => lag(&values, &other, mask(masks, row)?.as_ref()),
                _ => None,
            };
            counts.push(usize::from(found.is_some()));
            if let Some(found) = found {
                lags.append_value(found.lag);
                positions.append_value(int(found.position));
                tokens.append_value(int(found.tokens));
                apart.append_value(found.apart);
                moved.append_value(found.moved);
            }
        }
        let columns: Vec<ArrayRef> = vec![
            Arc::new(lags.finish()) as ArrayRef,
            Arc::new(positions.finish()),
            Arc::new(tokens.finish()),
            Arc::new(apart.finish()),
            Arc::new(moved.finish()),
        ];
        list_of_structs(counts, fields(&lag_fields()), columns)
    })
}

fn doubles(items: Option<ArrayRef>) -> Result<Option<Float64Array>> {
    match items {
        Some(items) => Ok(Some(cast(&items, &DataType::Float64)?.as_primitive::<Float64Type>().clone())),
        None => Ok(None),
    }
}

fn lag(values: &Float64Array, other: &Float64Array, mask: Option<&BooleanArray>) -> Option<Lag> {
    if values.len() != other.len() {
        return None;
    }
    let finite = |values: &Float64Array, at: usize| {
        (at < values.len() && values.is_valid(at)).then(|| values.value(at)).filter(|value| value.is_finite())
    };
    let distances = |lag: i32| -> Vec<(usize, f64, f64)> {
        let pair = |at: usize| {
            let from = at.checked_add_signed(isize::try_from(-lag).ok()?)?;
            let value = finite(values, at)?;
            Some((at, value, (value - finite(other, from)?).abs()))
        };
        (0..values.len()).filter(|at| is_sampled(mask, *at)).filter_map(pair).collect()
    };
    let mean = |pairs: &[(usize, f64, f64)]| pairs.iter().map(|pair| pair.2).sum::<f64>() / count(pairs.len());
    let here = distances(0);
    let (position, ..) = *here.first()?;
    let apart = mean(&here);
    if apart < APART {
        return None;
    }
    let nearest = |lag: i32| {
        let pairs = distances(lag);
        // Two pairs at least, and not of one value: a constant agrees with itself wherever it is moved.
        let differ = pairs.iter().any(|pair| pairs.first().is_some_and(|first| (pair.1 - first.1).abs() > EQUAL));
        let is_exact = pairs.len() >= 2 && pairs.len() * 2 >= here.len() && pairs.iter().all(|pair| pair.2 <= EQUAL);
        let is_near = pairs.len() >= MANY && mean(&pairs) * NEARER < apart;
        (differ && (is_exact || is_near)).then(|| Lag { lag, position, tokens: here.len(), apart, moved: mean(&pairs) })
    };
    [1, -1].into_iter().filter_map(nearest).min_by(|a, b| a.moved.total_cmp(&b.moved))
}

fn count(n: usize) -> f64 {
    f64::from(int(n.max(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[f64], other: &[f64]) -> Option<i32> {
        lag(&Float64Array::from(values.to_vec()), &Float64Array::from(other.to_vec()), None).map(|found| found.lag)
    }

    #[test]
    fn a_moved_list_is_told_with_its_direction() {
        assert_eq!(of(&[0.0, -0.1, -0.9, -0.2], &[-0.1, -0.9, -0.2, 0.0]), Some(1));
        assert_eq!(of(&[-0.1, -0.9, -0.2, 0.0], &[0.0, -0.1, -0.9, -0.2]), Some(-1));
    }

    #[test]
    fn equal_noisy_constant_and_unrelated_lists_are_not_moved() {
        assert_eq!(of(&[-0.1, -0.9, -0.2], &[-0.1, -0.9, -0.2]), None);
        assert_eq!(of(&[-0.1, -0.9, -0.2], &[-0.11, -0.88, -0.21]), None);
        assert_eq!(of(&[-0.5, -0.5, -0.5], &[-0.7, -0.7, -0.7]), None);
        assert_eq!(of(&[-0.1, -0.9, -0.2], &[-0.4, -0.3, -0.8]), None);
    }

    #[test]
    fn noise_on_many_tokens_does_not_hide_a_move() {
        let wave = |at: i32| -(f64::from((at * 7) % 11) / 10.0);
        let values: Vec<f64> = (0..40).map(wave).collect();
        let other: Vec<f64> = (0..40).map(|at| wave(at + 1) - 0.01).collect();
        assert_eq!(of(&values, &other), Some(1));
        let still: Vec<f64> = (0..40).map(|at| wave(at) - 0.02).collect();
        assert_eq!(of(&values, &still), None);
    }
}
