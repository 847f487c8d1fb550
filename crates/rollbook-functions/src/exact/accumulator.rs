//! One exact sum as an accumulator: for queries without groups and, since values can be taken out again, for moving windows.

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::{DataType, Float64Type, Int64Type};
use datafusion_common::{Result, ScalarValue, internal_err};
use datafusion_expr::Accumulator;

use super::superaccumulator::Superaccumulator;
use super::udaf::Output;

/// An exact sum and what is to be made of it.
#[derive(Debug)]
pub(crate) struct ExactAccumulator {
    sum: Superaccumulator,
    output: Output,
}

impl ExactAccumulator {
    pub(crate) fn new(output: Output) -> Self {
        Self { sum: Superaccumulator::default(), output }
    }
}

/// Returns the only column of a call.
pub(crate) fn only(columns: &[ArrayRef]) -> Result<&ArrayRef> {
    match columns {
        [column] => Ok(column),
        other => internal_err!("an exact sum over {} columns", other.len()),
    }
}

impl Accumulator for ExactAccumulator {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let values = only(values)?;
        match values.data_type() {
            DataType::Int64 => {
                values.as_primitive::<Int64Type>().iter().flatten().for_each(|v| self.sum.add_integer(v));
            }
            DataType::Float64 => values.as_primitive::<Float64Type>().iter().flatten().for_each(|v| self.sum.add(v)),
            other => return internal_err!("an exact sum over {other}"),
        }
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let values = only(values)?;
        match values.data_type() {
            DataType::Int64 => {
                values.as_primitive::<Int64Type>().iter().flatten().for_each(|v| self.sum.remove_integer(v));
            }
            DataType::Float64 => values.as_primitive::<Float64Type>().iter().flatten().for_each(|v| self.sum.remove(v)),
            other => return internal_err!("an exact sum over {other}"),
        }
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        self.output.of(&self.sum)
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.sum.heap_size()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![ScalarValue::Binary(Some(self.sum.to_bytes()))])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        for state in only(states)?.as_binary::<i32>().iter().flatten() {
            let Some(sum) = Superaccumulator::from_bytes(state) else {
                return internal_err!("the state of an exact sum is damaged");
            };
            self.sum.merge(&sum);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{BinaryArray, Float64Array, Int64Array};
    use rstest::rstest;

    use super::*;

    fn column(values: &[Option<f64>]) -> Vec<ArrayRef> {
        vec![Arc::new(Float64Array::from(values.to_vec()))]
    }

    #[rstest]
    // math.fsum, and that over 3.
    #[case::nulls_are_left_out(&[Some(0.1), None, Some(0.2), Some(0.3)], Some(0.6), Some(0.199_999_999_999_999_98))]
    #[case::only_nulls(&[None, None], None, None)]
    #[case::empty(&[], None, None)]
    fn sum_and_mean(#[case] values: &[Option<f64>], #[case] sum: Option<f64>, #[case] mean: Option<f64>) {
        for (output, expected) in [(Output::Sum, sum), (Output::Mean, mean)] {
            let mut accumulator = ExactAccumulator::new(output);
            accumulator.update_batch(&column(values)).unwrap();
            assert_eq!(accumulator.evaluate().unwrap(), ScalarValue::Float64(expected));
        }
    }

    #[test]
    fn integers_sum_to_an_integer_and_overflow_is_an_error() {
        let mut accumulator = ExactAccumulator::new(Output::IntegerSum);
        accumulator.update_batch(&[Arc::new(Int64Array::from(vec![i64::MAX - 1, 1]))]).unwrap();
        assert_eq!(accumulator.evaluate().unwrap(), ScalarValue::Int64(Some(i64::MAX)));
        accumulator.update_batch(&[Arc::new(Int64Array::from(vec![1]))]).unwrap();
        assert!(accumulator.evaluate().unwrap_err().to_string().contains("no bigint"));
    }

    #[test]
    fn states_merge_to_the_same_bits_in_any_order() {
        let parts = [[Some(1e16), Some(1.0)], [Some(-1e16), Some(1e-8)], [None, Some(0.1)]];
        let states: Vec<_> = parts
            .iter()
            .map(|part| {
                let mut accumulator = ExactAccumulator::new(Output::Sum);
                accumulator.update_batch(&column(part)).unwrap();
                let ScalarValue::Binary(Some(state)) = accumulator.state().unwrap().remove(0) else {
                    panic!("no state")
                };
                state
            })
            .collect();
        // math.fsum([1e16, 1.0, -1e16, 1e-8, 0.1])
        for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0]] {
            let mut merged = ExactAccumulator::new(Output::Sum);
            let states: BinaryArray = order.iter().map(|at| Some(states[*at].as_slice())).collect();
            merged.merge_batch(&[Arc::new(states)]).unwrap();
            assert_eq!(merged.evaluate().unwrap(), ScalarValue::Float64(Some(1.100_000_01)));
        }
    }

    #[test]
    fn a_moving_window_forgets_what_left_it() {
        let mut accumulator = ExactAccumulator::new(Output::Sum);
        accumulator.update_batch(&column(&[Some(f64::NAN), Some(1e300), Some(0.5)])).unwrap();
        accumulator.retract_batch(&column(&[Some(f64::NAN), Some(1e300)])).unwrap();
        assert_eq!(accumulator.evaluate().unwrap(), ScalarValue::Float64(Some(0.5)));
        accumulator.retract_batch(&column(&[Some(0.5)])).unwrap();
        assert_eq!(accumulator.evaluate().unwrap(), ScalarValue::Float64(None));
    }
}
