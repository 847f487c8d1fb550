//! Exact sums of many groups at once.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BinaryBuilder, BooleanArray};
use arrow::datatypes::{DataType, Float64Type, Int64Type};
use datafusion_common::{Result, ScalarValue, internal_err};
use datafusion_expr::{EmitTo, GroupsAccumulator};

use super::accumulator::only;
use super::superaccumulator::Superaccumulator;
use super::udaf::Output;

/// One exact sum for each group.
#[derive(Debug)]
pub(crate) struct ExactGroups {
    sums: Vec<Superaccumulator>,
    /// Bytes that the sums hold beside themselves, kept up to date because `size` is asked after every batch.
    heap: usize,
    output: Output,
}

impl ExactGroups {
    pub(crate) fn new(output: Output) -> Self {
        Self { sums: Vec::new(), heap: 0, output }
    }

    fn change(&mut self, group: usize, change: impl FnOnce(&mut Superaccumulator)) -> Result<()> {
        let Some(sum) = self.sums.get_mut(group) else {
            return internal_err!("group {group} is unknown");
        };
        let before = sum.heap_size();
        change(sum);
        self.heap += sum.heap_size().saturating_sub(before);
        Ok(())
    }

    fn take(&mut self, emit_to: EmitTo) -> Vec<Superaccumulator> {
        let taken = emit_to.take_needed(&mut self.sums);
        self.heap = self.heap.saturating_sub(taken.iter().map(Superaccumulator::heap_size).sum());
        taken
    }
}

/// Returns whether a row counts: its value is not null and the filter, if there is one, is true.
fn counts(values: &dyn Array, filter: Option<&BooleanArray>, row: usize) -> bool {
    values.is_valid(row) && filter.is_none_or(|filter| filter.is_valid(row) && filter.value(row))
}

/// Adds the value of a row to a sum.
fn add(sum: &mut Superaccumulator, values: &dyn Array, row: usize) {
    match values.data_type() {
        DataType::Int64 => sum.add_integer(values.as_primitive::<Int64Type>().value(row)),
        _ => sum.add(values.as_primitive::<Float64Type>().value(row)),
    }
}

fn checked(columns: &[ArrayRef]) -> Result<&ArrayRef> {
    let values = only(columns)?;
    match values.data_type() {
        DataType::Int64 | DataType::Float64 => Ok(values),
        other => internal_err!("an exact sum over {other}"),
    }
}

impl GroupsAccumulator for ExactGroups {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        opt_filter: Option<&BooleanArray>,
        total_num_groups: usize,
    ) -> Result<()> {
        let values = checked(values)?;
        self.sums.resize_with(total_num_groups.max(self.sums.len()), Superaccumulator::default);
        for (row, group) in group_indices.iter().enumerate() {
            if counts(values, opt_filter, row) {
                self.change(*group, |sum| add(sum, values, row))?;
            }
        }
        Ok(())
    }

    fn merge_batch(&mut self, values: &[ArrayRef], group_indices: &[usize], total_num_groups: usize) -> Result<()> {
        let states = only(values)?.as_binary::<i32>();
        self.sums.resize_with(total_num_groups.max(self.sums.len()), Superaccumulator::default);
        for (group, state) in group_indices.iter().zip(states) {
            let Some(state) = state else { continue };
            let Some(part) = Superaccumulator::from_bytes(state) else {
                return internal_err!("the state of an exact sum is damaged");
            };
            self.change(*group, |sum| sum.merge(&part))?;
        }
        Ok(())
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let output = self.output;
        let results = self.take(emit_to).iter().map(|sum| output.of(sum)).collect::<Result<Vec<_>>>()?;
        if results.is_empty() {
            return output.of(&Superaccumulator::default())?.to_array_of_size(0);
        }
        ScalarValue::iter_to_array(results)
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        let mut states = BinaryBuilder::new();
        self.take(emit_to).iter().for_each(|sum| states.append_value(sum.to_bytes()));
        Ok(vec![Arc::new(states.finish())])
    }

    fn convert_to_state(&self, values: &[ArrayRef], opt_filter: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        let values = checked(values)?;
        let mut states = BinaryBuilder::new();
        for row in 0..values.len() {
            if counts(values, opt_filter, row) {
                let mut sum = Superaccumulator::default();
                add(&mut sum, values, row);
                states.append_value(sum.to_bytes());
            } else {
                states.append_null();
            }
        }
        Ok(vec![Arc::new(states.finish())])
    }

    fn size(&self) -> usize {
        self.sums.capacity() * size_of::<Superaccumulator>() + self.heap
    }
}

#[cfg(test)]
mod tests {
    #![expect(
        clippy::float_cmp,
        clippy::manual_midpoint,
        reason = "the sums are exact, and the expected values say how"
    )]

    use arrow::array::Float64Array;

    use super::*;

    fn columns() -> (Vec<ArrayRef>, Vec<usize>) {
        let values = Float64Array::from(vec![Some(1e16), Some(0.1), Some(1.0), None, Some(-1e16), Some(0.2)]);
        (vec![Arc::new(values)], vec![0, 1, 0, 1, 0, 1])
    }

    // By hand: group 0 is 1e16 + 1 - 1e16, group 1 is 0.1 + 0.2, group 2 has no rows.
    fn expected() -> Float64Array {
        Float64Array::from(vec![Some(1.0), Some(0.1 + 0.2), None])
    }

    #[test]
    fn groups_are_summed_apart() {
        let (values, groups) = columns();
        let mut sums = ExactGroups::new(Output::Sum);
        sums.update_batch(&values, &groups, None, 3).unwrap();
        assert!(sums.size() > 0);
        assert_eq!(sums.evaluate(EmitTo::All).unwrap().as_primitive(), &expected());
    }

    #[test]
    fn states_of_single_rows_merge_to_the_same() {
        let (values, groups) = columns();
        let mut sums = ExactGroups::new(Output::Sum);
        let states = sums.convert_to_state(&values, None).unwrap();
        sums.merge_batch(&states, &groups, 3).unwrap();
        let states = sums.state(EmitTo::All).unwrap();
        sums.merge_batch(&states, &[2, 1, 0], 3).unwrap();
        let reversed = sums.evaluate(EmitTo::All).unwrap();
        let reversed: Vec<_> = reversed.as_primitive::<Float64Type>().iter().collect();
        assert_eq!(reversed, [None, Some(0.1 + 0.2), Some(1.0)]);
    }

    #[test]
    fn a_filter_leaves_rows_out_and_first_groups_leave_early() {
        let (values, groups) = columns();
        let mut sums = ExactGroups::new(Output::Mean);
        let filter = BooleanArray::from(vec![Some(false), Some(true), Some(true), Some(true), None, Some(true)]);
        sums.update_batch(&values, &groups, Some(&filter), 2).unwrap();
        let first = sums.evaluate(EmitTo::First(1)).unwrap();
        assert_eq!(first.as_primitive::<Float64Type>().value(0), 1.0);
        let second = sums.evaluate(EmitTo::All).unwrap();
        assert_eq!(second.as_primitive::<Float64Type>().value(0), (0.1 + 0.2) / 2.0);
        assert_eq!(sums.evaluate(EmitTo::All).unwrap().len(), 0);
    }
}
