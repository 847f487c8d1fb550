//! The advantages that a row's trained tokens have, against the credits of what they come from.

use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, Float64Array, Float64Builder, Int32Builder, ListBuilder, StringBuilder,
};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Float64Type};
use datafusion::common::Result;
use datafusion::logical_expr::ScalarUDF;

use super::faults::{Fault, Faults, fault_list, shown};
use super::lists::{any_struct, argument, fields, index, int, integers, item, list, list_of_structs, lists, mask};
use super::row_function::RowFunction;
use super::segments::{Row, Source};
use super::weights::doubles;

/// Stored advantages are floats; credits are doubles.
const TOLERANCE: f64 = 1e-6;

fn value_fields() -> [(&'static str, DataType); 7] {
    [
        ("rollout_id", DataType::Utf8),
        ("call_id", DataType::Utf8),
        ("start", DataType::Int32),
        ("length", DataType::Int32),
        ("row_start", DataType::Int32),
        ("advantage", DataType::Float64),
        ("advantages", list(DataType::Float64)),
    ]
}

/// `trained_advantages(segments, action_mask, advantages)`: runs of trained tokens of one segment; `start` is the output
/// offset of the first, null where the segment is of no output. Where all advantages of a run are one number, `advantage` is
/// that and `advantages` null: most credits are of a whole call, and lists of them would be as long as the row.
pub(super) fn trained_advantages() -> ScalarUDF {
    let arguments = vec![list(any_struct()), list(DataType::Boolean), list(DataType::Float64)];
    let returns = list(DataType::Struct(fields(&value_fields())));
    RowFunction::udf("trained_advantages", arguments, returns, |arrays, rows| {
        let (segments, masks, values) = (lists(arrays, 0)?, lists(arrays, 1)?, lists(arrays, 2)?);
        let mut runs = Runs::default();
        for row in 0..rows {
            let (Some(items), Some(values)) = (item(segments, row), doubles(item(values, row))?) else {
                runs.counts.push(0);
                continue;
            };
            runs.add(&Row::read(&items, mask(masks, row)?)?, &values);
        }
        runs.finish()
    })
}

#[derive(Default)]
struct Runs {
    counts: Vec<usize>,
    rollouts: StringBuilder,
    calls: StringBuilder,
    starts: Int32Builder,
    lengths: Int32Builder,
    places: Int32Builder,
    equal: Float64Builder,
    values: Vec<Option<Float64Array>>,
}

impl Runs {
    fn add(&mut self, row: &Row, values: &Float64Array) {
        let total = row.segments.iter().map(|segment| segment.start + segment.length).max().unwrap_or(0);
        let mut count = 0;
        for segment in row.segments.iter().filter(|_| values.len() == total) {
            let origin = segment.source_start.filter(|_| segment.source == Source::Output && segment.call.is_some());
            for (offset, length) in row.trained_runs(segment) {
                let first = segment.start + offset;
                self.rollouts.append_option(segment.rollout.as_deref());
                self.calls.append_option(segment.call.as_deref());
                self.starts.append_option(origin.map(|origin| int(origin + offset)));
                self.lengths.append_value(int(length));
                self.places.append_value(int(first));
                let run = values.slice(first, length);
                let equal = one_value(&run);
                self.equal.append_option(equal);
                self.values.push(equal.is_none().then_some(run));
                count += 1;
            }
        }
        self.counts.push(count);
    }

    fn finish(mut self) -> Result<ArrayRef> {
        let DataType::List(field) = list(DataType::Float64) else {
            return list_of_structs(Vec::new(), fields(&value_fields()), Vec::new());
        };
        let mut values = ListBuilder::new(Float64Builder::new()).with_field(field);
        self.values.into_iter().for_each(|run| values.append_option(run.as_ref().map(Float64Array::iter)));
        let columns: Vec<ArrayRef> = vec![
            Arc::new(self.rollouts.finish()),
            Arc::new(self.calls.finish()),
            Arc::new(self.starts.finish()) as ArrayRef,
            Arc::new(self.lengths.finish()),
            Arc::new(self.places.finish()),
            Arc::new(self.equal.finish()),
            Arc::new(values.finish()),
        ];
        list_of_structs(self.counts, fields(&value_fields()), columns)
    }
}

/// The number that all values are; none where one is null or no number.
fn one_value(values: &Float64Array) -> Option<f64> {
    let first = *values.values().first().filter(|_| values.null_count() == 0)?;
    let is_one = values.values().iter().fold(!first.is_nan(), |all, value| all & (value.to_bits() == first.to_bits()));
    is_one.then_some(first)
}

/// `credit_faults(advantage, advantages, length, row_start, start, value, token_values, scale)`: tokens of a run, as
/// `trained_advantages` gives it, whose advantage is not the credit times the scale. `value` is the credit of all tokens, `token_values` of each output token; neither: no token has
/// one, and none may train.
pub(super) fn credit_faults() -> ScalarUDF {
    let arguments = vec![
        DataType::Float64,
        list(DataType::Float64),
        DataType::Int32,
        DataType::Int32,
        DataType::Int32,
        DataType::Float64,
        list(DataType::Float64),
        DataType::Float64,
    ];
    RowFunction::udf("credit_faults", arguments, fault_list(), |arrays, rows| {
        let (equal, runs, lengths) = (numbers(arrays, 0)?, lists(arrays, 1)?, integers(arrays, 2)?);
        let (places, starts) = (integers(arrays, 3)?, integers(arrays, 4)?);
        let (values, tokens, scales) = (numbers(arrays, 5)?, lists(arrays, 6)?, numbers(arrays, 7)?);
        let mut faults = Faults::default();
        for row in 0..rows {
            let equal = equal.is_valid(row).then(|| equal.value(row));
            let credit = Credit {
                value: values.is_valid(row).then(|| values.value(row)),
                tokens: doubles(item(tokens, row))?,
                start: index(&starts, row),
                scale: if scales.is_valid(row) { scales.value(row) } else { 1.0 },
            };
            let run = match equal {
                // One token stands for all.
                Some(advantage) if credit.is_one() && credit.agrees(&vec![advantage].into(), 0) => None,
                Some(advantage) => Some(vec![advantage; index(&lengths, row).unwrap_or(0)].into()),
                None => doubles(item(runs, row))?,
            };
            let place = index(&places, row).unwrap_or(0);
            faults.add_row(run.map_or_else(Vec::new, |run| credit.faults(&run, place)));
        }
        faults.finish()
    })
}

fn numbers(arrays: &[ArrayRef], place: usize) -> Result<Float64Array> {
    Ok(cast(argument(arrays, place)?, &DataType::Float64)?.as_primitive::<Float64Type>().clone())
}

struct Credit {
    value: Option<f64>,
    tokens: Option<Float64Array>,
    start: Option<usize>,
    scale: f64,
}

impl Credit {
    /// Whether all tokens have one credit.
    fn is_one(&self) -> bool {
        self.tokens.is_none() || self.start.is_none()
    }

    /// The credit of the run's token at an offset.
    fn at(&self, offset: usize) -> Option<f64> {
        match (&self.tokens, self.start) {
            (Some(tokens), Some(start)) => {
                let at = start + offset;
                (at < tokens.len() && tokens.is_valid(at)).then(|| tokens.value(at))
            }
            _ => self.value,
        }
    }

    fn faults(&self, run: &Float64Array, place: usize) -> Vec<Fault> {
        let mut wrong: Vec<(usize, usize)> = Vec::new();
        for at in 0..run.len() {
            if self.agrees(run, at) {
                continue;
            }
            match wrong.last_mut() {
                Some((start, length)) if *start + *length == at => *length += 1,
                _ => wrong.push((at, 1)),
            }
        }
        wrong.into_iter().map(|(start, length)| self.fault(run, place, start, length)).collect()
    }

    fn agrees(&self, run: &Float64Array, at: usize) -> bool {
        let given = run.is_valid(at).then(|| run.value(at));
        match (self.at(at).map(|credit| credit * self.scale), given) {
            (Some(credit), Some(given)) => {
                // Equal infinities are equal; a NaN is not, whatever it is compared with.
                #[expect(clippy::float_cmp, reason = "the tolerance follows; this is for infinities")]
                let is_same = credit == given;
                is_same || (credit - given).abs() <= TOLERANCE * credit.abs().max(1.0)
            }
            // A token without an advantage is told by pack/mask_consistency; without a credit as well, nothing differs.
            (_, None) => true,
            (None, Some(_)) => false,
        }
    }

    fn fault(&self, run: &Float64Array, place: usize, start: usize, length: usize) -> Fault {
        let wanted =
            shown((start..start + length).map(|at| {
                self.at(at).map_or_else(|| "no credit".to_owned(), |credit| (credit * self.scale).to_string())
            }));
        let given = shown((start..start + length).map(|at| run.value(at)));
        Fault {
            position: place + start,
            length,
            message: format!(
                "{length} trained tokens from row token {} on have the advantage {given} where their credit gives {wanted}",
                place + start
            ),
            expected: wanted,
            observed: given,
            ..Fault::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(credit: &Credit, run: Vec<Option<f64>>) -> Vec<(usize, usize)> {
        credit.faults(&run.into(), 10).iter().map(|fault| (fault.position, fault.length)).collect()
    }

    #[test]
    fn a_float_of_a_double_is_equal_and_a_scale_is_applied() {
        let credit = Credit { value: Some(0.1), tokens: None, start: None, scale: 2.0 };
        assert!(found(&credit, vec![Some(f64::from(0.2_f32)), None]).is_empty());
        assert_eq!(found(&credit, vec![Some(0.2), Some(0.1), Some(f64::NAN)]), [(11, 2)]);
    }

    #[test]
    fn equal_advantages_are_one_value() {
        assert_eq!(one_value(&vec![Some(0.5), Some(0.5)].into()), Some(0.5));
        for values in [vec![Some(0.5), Some(0.25)], vec![Some(0.5), None], vec![Some(f64::NAN)], vec![]] {
            assert_eq!(one_value(&values.into()), None);
        }
    }

    #[test]
    fn token_credits_are_read_from_the_runs_offset_on() {
        let tokens = Some(vec![Some(1.0), Some(2.0), None].into());
        let credit = Credit { value: None, tokens, start: Some(1), scale: 1.0 };
        assert!(found(&credit, vec![Some(2.0)]).is_empty());
        assert_eq!(found(&credit, vec![Some(2.0), Some(0.0), Some(0.0)]), [(11, 2)]);
    }
}
