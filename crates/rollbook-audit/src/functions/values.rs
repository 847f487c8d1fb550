//! Values of a call's tokens: where they are, and which stand where nothing is sampled or trained.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, BooleanArray, BooleanBuilder, Float64Array, Float64Builder, Int32Array};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::Result;
use datafusion::logical_expr::ScalarUDF;

use super::lists::{
    bits, fields, index, int, integers, is_sampled, item, list, list_of_structs, lists, mask, true_runs,
};
use super::masks::stretches_hold;
use super::row_function::RowFunction;
use super::weights::doubles;

/// A run of neighbors that have a value other than 0.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Run {
    start: usize,
    length: usize,
    sum: f64,
}

fn run_fields() -> [(&'static str, DataType); 4] {
    [
        ("position", DataType::Int32),
        ("length", DataType::Int32),
        ("value", DataType::Float64),
        ("is_all", DataType::Boolean),
    ]
}

pub(super) fn valued_spans() -> ScalarUDF {
    let arguments = vec![list(DataType::Float64)];
    RowFunction::udf("valued_spans", arguments, list(DataType::Struct(fields(&run_fields()))), |arrays, rows| {
        let values = lists(arrays, 0)?;
        let mut found = Found::default();
        for row in 0..rows {
            let runs = doubles(item(values, row))?.map_or_else(Vec::new, |values| runs(&values, |_| true));
            found.push(&runs, true);
        }
        found.finish()
    })
}

pub(super) fn misplaced_values() -> ScalarUDF {
    let arguments = vec![list(DataType::Float64), list(DataType::Boolean), list(DataType::Boolean)];
    RowFunction::udf("misplaced_values", arguments, list(DataType::Struct(fields(&run_fields()))), |arrays, rows| {
        let (values, sampled, trained) = (lists(arrays, 0)?, lists(arrays, 1)?, lists(arrays, 2)?);
        let mut found = Found::default();
        for row in 0..rows {
            let (sampled, trained) = (mask(sampled, row)?, mask(trained, row)?);
            let items = item(values, row).filter(|items| !is_empty_outside(items, [&sampled, &trained]));
            let Some(values) = doubles(items)? else {
                found.push(&[], true);
                continue;
            };
            let holds = |at: usize| is_sampled(sampled.as_ref(), at) && is_sampled(trained.as_ref(), at);
            let outside = runs(&values, |at| !holds(at));
            found.push(&outside, !any(&values, holds));
        }
        found.finish()
    })
}

pub(super) fn trained_sum() -> ScalarUDF {
    let arguments = vec![list(DataType::Float64), list(DataType::Boolean), list(DataType::Boolean)];
    RowFunction::udf("trained_sum", arguments, DataType::Float64, |arrays, rows| {
        let (values, sampled, trained) = (lists(arrays, 0)?, lists(arrays, 1)?, lists(arrays, 2)?);
        let mut sums = Float64Builder::with_capacity(rows);
        for row in 0..rows {
            let (sampled, trained) = (mask(sampled, row)?, mask(trained, row)?);
            let holds = |at: usize| is_sampled(sampled.as_ref(), at) && is_sampled(trained.as_ref(), at);
            let values = doubles(item(values, row))?;
            sums.append_option(values.map(|values| {
                values.iter().enumerate().filter(|(at, _)| holds(*at)).filter_map(|(_, value)| value).sum::<f64>()
            }));
        }
        Ok(Arc::new(sums.finish()) as ArrayRef)
    })
}

pub(super) fn trained_count() -> ScalarUDF {
    let arguments = vec![DataType::Int32, list(DataType::Boolean), list(DataType::Boolean)];
    RowFunction::udf("trained_count", arguments, DataType::Int32, |arrays, rows| {
        let (lengths, sampled, trained) = (integers(arrays, 0)?, lists(arrays, 1)?, lists(arrays, 2)?);
        let mut counts = Vec::with_capacity(rows);
        for row in 0..rows {
            let (sampled, trained) = (mask(sampled, row)?, mask(trained, row)?);
            let holds = |at: &usize| is_sampled(sampled.as_ref(), *at) && is_sampled(trained.as_ref(), *at);
            counts.push(index(&lengths, row).map(|length| int((0..length).filter(holds).count())));
        }
        Ok(Arc::new(Int32Array::from(counts)) as ArrayRef)
    })
}

/// `any_true`: null where there is no mask.
pub(super) fn any_true() -> ScalarUDF {
    RowFunction::udf("any_true", vec![list(DataType::Boolean)], DataType::Boolean, |arrays, rows| {
        let masks = lists(arrays, 0)?;
        let has = |row| Ok(mask(masks, row)?.map(|mask| mask.has_true()));
        let found = (0..rows).map(has).collect::<Result<BooleanArray>>()?;
        Ok(Arc::new(found) as ArrayRef)
    })
}

/// Runs of values other than 0 at offsets that are wanted; null and NaN are no values.
fn runs(values: &Float64Array, wanted: impl Fn(usize) -> bool) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for (at, value) in values.iter().enumerate() {
        let Some(value) = value.filter(|value| *value != 0.0 && !value.is_nan() && wanted(at)) else {
            continue;
        };
        match runs.last_mut() {
            Some(run) if run.start + run.length == at => {
                run.length += 1;
                run.sum += value;
            }
            _ => runs.push(Run { start: at, length: 1, sum: value }),
        }
    }
    runs
}

/// Whether nothing but zeros stands where a mask is false, by a look that many values take at once. A no may be wrong.
fn is_empty_outside(values: &ArrayRef, masks: [&Option<BooleanArray>; 2]) -> bool {
    masks.into_iter().flatten().all(|mask| {
        let bits = bits(mask);
        let runs: Vec<(usize, usize)> = true_runs(&bits, 0..bits.len()).collect();
        bits.len() == values.len() && stretches_hold(values, &runs, |_| true, |value| value == 0.0)
    })
}

fn any(values: &Float64Array, wanted: impl Fn(usize) -> bool) -> bool {
    values.iter().enumerate().any(|(at, value)| value.is_some_and(|value| value != 0.0) && wanted(at))
}

/// Rows of runs as they are found.
#[derive(Default)]
struct Found {
    counts: Vec<usize>,
    runs: Vec<Run>,
    is_all: BooleanBuilder,
}

impl Found {
    fn push(&mut self, runs: &[Run], is_all: bool) {
        self.counts.push(runs.len());
        self.runs.extend_from_slice(runs);
        for _ in runs {
            self.is_all.append_value(is_all);
        }
    }

    fn finish(mut self) -> Result<ArrayRef> {
        let integers = |value: fn(&Run) -> usize| -> ArrayRef {
            Arc::new(self.runs.iter().map(|run| Some(int(value(run)))).collect::<Int32Array>())
        };
        let flags: BooleanArray = self.is_all.finish();
        let columns: Vec<ArrayRef> = vec![
            integers(|run| run.start),
            integers(|run| run.length),
            Arc::new(self.runs.iter().map(|run| Some(run.sum)).collect::<Float64Array>()),
            Arc::new(flags),
        ];
        list_of_structs(self.counts, fields(&run_fields()), columns)
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::Float32Array;

    use super::*;

    #[test]
    fn neighbors_are_one_run_and_null_nan_and_zero_are_no_values() {
        let values = Float64Array::from(vec![Some(1.0), Some(-0.5), Some(0.0), None, Some(f64::NAN), Some(2.0)]);
        let found = runs(&values, |_| true);
        assert_eq!(found, [Run { start: 0, length: 2, sum: 0.5 }, Run { start: 5, length: 1, sum: 2.0 }]);
        assert_eq!(
            runs(&values, |at| at > 0),
            [Run { start: 1, length: 1, sum: -0.5 }, Run { start: 5, length: 1, sum: 2.0 }]
        );
    }

    #[test]
    fn zeros_where_a_mask_is_false_are_seen_at_once() {
        let mask = Some(BooleanArray::from(vec![Some(true), Some(false), None, Some(true), Some(false)]));
        let is_empty = |values: Vec<Option<f32>>| {
            is_empty_outside(&(Arc::new(Float32Array::from(values)) as ArrayRef), [&None, &mask])
        };
        assert!(is_empty(vec![Some(1.0), Some(0.0), Some(0.0), Some(f32::NAN), Some(0.0)]));
        assert!(is_empty(vec![Some(1.0), None, Some(0.0), Some(2.0), Some(0.0)]));
        for at in [1, 2, 4] {
            let mut values = vec![Some(0.0); 5];
            values[at] = Some(0.5);
            assert!(!is_empty(values), "{at}");
        }
        assert!(!is_empty(vec![Some(0.0); 4]));
    }

    #[test]
    fn whether_a_wanted_place_has_a_value() {
        let values = Float64Array::from(vec![Some(0.0), Some(1.0)]);
        assert!(any(&values, |_| true));
        assert!(!any(&values, |at| at == 0));
    }
}
