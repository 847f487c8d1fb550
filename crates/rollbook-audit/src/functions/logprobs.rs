//! Faults, digest and sum of a call's logprobs.

use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, BooleanBuilder, Float32Array, Float64Builder, Int32Array, StringArray,
    StringBuilder,
};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Float32Type};
use datafusion::common::Result;
use datafusion::logical_expr::ScalarUDF;
use rollbook_schema::digest::bytes_digest;

use super::lists::{fields, index, int, integers, is_sampled, item, list, list_of_structs, lists, mask};
use super::row_function::RowFunction;

/// A logprob above this cannot come from rounding in float.
const ABOVE: f32 = 1e-6;
/// No sampler draws a token from here on down, at any temperature in use: it is a sentinel, such as -999, -9999 or -1e10.
const SENTINEL: f32 = -500.0;
/// Values of a run that its text repeats.
const SHOWN: usize = 6;

fn fault_fields() -> [(&'static str, DataType); 3] {
    [("position", DataType::Int32), ("length", DataType::Int32), ("observed", DataType::Utf8)]
}

pub(super) fn logprob_faults() -> ScalarUDF {
    let arguments = vec![DataType::Int32, list(DataType::Boolean), list(DataType::Float32)];
    let returns = list(DataType::Struct(fields(&fault_fields())));
    RowFunction::udf("logprob_faults", arguments, returns, |arrays, rows| {
        let (lengths, masks, values) = (integers(arrays, 0)?, lists(arrays, 1)?, lists(arrays, 2)?);
        let (mut counts, mut positions, mut runs, mut texts) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for row in 0..rows {
            let found = match (index(&lengths, row), floats(item(values, row))?) {
                (Some(length), Some(values)) => faults(length, mask(masks, row)?.as_ref(), &values),
                _ => Vec::new(),
            };
            counts.push(found.len());
            for (position, length, text) in found {
                positions.push(int(position));
                runs.push(int(length));
                texts.push(text);
            }
        }
        let columns: Vec<ArrayRef> = vec![
            Arc::new(Int32Array::from(positions)),
            Arc::new(Int32Array::from(runs)),
            Arc::new(StringArray::from(texts)),
        ];
        list_of_structs(counts, fields(&fault_fields()), columns)
    })
}

/// Equal for equal lists: nulls and NaNs are values, and the two zeros are one.
pub(super) fn digest_of(values: &Float32Array) -> String {
    let mut bytes = vec![0; values.len() * 5];
    for (at, (place, value)) in bytes.as_chunks_mut::<5>().0.iter_mut().zip(values.values()).enumerate() {
        if values.is_null(at) {
            continue;
        }
        let bits = if value.is_nan() {
            f32::NAN.to_bits()
        } else if *value == 0.0 {
            0
        } else {
            value.to_bits()
        };
        let [a, b, c, d] = bits.to_le_bytes();
        *place = [1, a, b, c, d];
    }
    bytes_digest(&bytes)
}

pub(super) fn floats(items: Option<ArrayRef>) -> Result<Option<Float32Array>> {
    let Some(items) = items else {
        return Ok(None);
    };
    // Casting to the same type would still take the array apart and put it together again.
    match items.as_primitive_opt::<Float32Type>() {
        Some(floats) => Ok(Some(floats.clone())),
        None => Ok(Some(cast(&items, &DataType::Float32)?.as_primitive::<Float32Type>().clone())),
    }
}

/// Whether a value can be a sampled token's logprob.
fn is_logprob(value: f32) -> bool {
    // False for NaN and both infinities, too.
    value <= ABOVE && value > SENTINEL
}

/// `has_odd_logprob`: whether any value of a list can be no sampled token's logprob; nulls are not looked at.
pub(super) fn has_odd_logprob() -> ScalarUDF {
    RowFunction::udf("has_odd_logprob", vec![list(DataType::Float32)], DataType::Boolean, |arrays, rows| {
        let values = lists(arrays, 0)?;
        let mut found = BooleanBuilder::with_capacity(rows);
        for row in 0..rows {
            found.append_option(floats(item(values, row))?.map(|values| has_odd(&values)));
        }
        Ok(Arc::new(found.finish()) as ArrayRef)
    })
}

fn has_odd(values: &Float32Array) -> bool {
    // With what lies under nulls, and counted instead of searched for, so that the loop has no branch and takes several values a
    // step; what lies under nulls is seldom anything odd.
    let odd: u32 = values.values().iter().map(|value| u32::from(!is_logprob(*value))).sum();
    odd > 0 && values.iter().flatten().any(|value| !is_logprob(value))
}

/// Runs of sampled tokens whose logprob is null, NaN, infinite, positive or a sentinel: start, length, what stands there.
fn faults(length: usize, mask: Option<&BooleanArray>, values: &Float32Array) -> Vec<(usize, usize, String)> {
    let mut runs: Vec<(usize, usize, String)> = Vec::new();
    if values.null_count() == 0 && !has_odd(values) {
        return runs;
    }
    for at in 0..length.min(values.len()) {
        if !is_sampled(mask, at) {
            continue;
        }
        let value = values.is_valid(at).then(|| values.value(at));
        if value.is_some_and(is_logprob) {
            continue;
        }
        let text = value.map_or_else(|| "null".to_owned(), |value| value.to_string());
        match runs.last_mut() {
            Some((start, run, texts)) if *start + *run == at => {
                *run += 1;
                if *run <= SHOWN {
                    texts.push_str(", ");
                    texts.push_str(&text);
                } else if *run == SHOWN + 1 {
                    texts.push_str(", …");
                }
            }
            _ => runs.push((at, 1, text)),
        }
    }
    runs
}

pub(super) fn logprob_digest() -> ScalarUDF {
    RowFunction::udf("logprob_digest", vec![list(DataType::Float32)], DataType::Utf8, |arrays, rows| {
        let values = lists(arrays, 0)?;
        let mut digests = StringBuilder::new();
        for row in 0..rows {
            let Some(values) = floats(item(values, row))? else {
                digests.append_null();
                continue;
            };
            digests.append_value(digest_of(&values));
        }
        Ok(Arc::new(digests.finish()) as ArrayRef)
    })
}

pub(super) fn logprob_sum() -> ScalarUDF {
    RowFunction::udf("logprob_sum", vec![list(DataType::Float32)], DataType::Float64, |arrays, rows| {
        let values = lists(arrays, 0)?;
        let mut sums = Float64Builder::with_capacity(rows);
        for row in 0..rows {
            let values = floats(item(values, row))?;
            sums.append_option(
                values.map(|values| {
                    values.iter().flatten().filter(|value| value.is_finite()).map(f64::from).sum::<f64>()
                }),
            );
        }
        Ok(Arc::new(sums.finish()) as ArrayRef)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_one_run_and_zero_is_a_logprob() {
        let values = Float32Array::from(vec![Some(-0.5), None, Some(f32::NAN), Some(0.0), Some(0.0625), Some(1e-7)]);
        let found = faults(6, None, &values);
        assert_eq!(found, [(1, 2, "null, NaN".to_owned()), (4, 1, "0.0625".to_owned())]);
    }

    #[test]
    fn a_sentinel_is_no_logprob() {
        let values = Float32Array::from(vec![Some(-9999.0), Some(-87.5), Some(-1e10)]);
        assert_eq!(faults(3, None, &values), [(0, 1, "-9999".to_owned()), (2, 1, "-10000000000".to_owned())]);
    }

    #[test]
    fn nulls_are_not_odd_and_what_is_no_number_is() {
        let odd = |values: Vec<Option<f32>>| has_odd(&Float32Array::from(values));
        assert!(!odd(vec![Some(-0.5), None, Some(0.0), Some(-499.0)]));
        for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1e10, -9999.0] {
            assert!(odd(vec![Some(-0.5), None, Some(value)]), "{value}");
        }
    }

    #[test]
    fn what_was_not_sampled_needs_no_logprob() {
        let values = Float32Array::from(vec![None, Some(f32::NEG_INFINITY)]);
        let mask = BooleanArray::from(vec![false, true]);
        assert_eq!(faults(2, Some(&mask), &values), [(1, 1, "-inf".to_owned())]);
    }
}
