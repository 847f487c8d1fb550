//! What the samples of a build made of a call's output.

use datafusion::arrow::array::{Array, ArrayRef, AsArray, Float64Array, Int64Array, ListArray, StructArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Int64Type};
use datafusion::common::Result;

use super::chunk::{Run, field, flag_at, item, value_at};

/// One segment of a sample that holds a stretch of a call's output.
pub(super) struct Piece {
    start: usize,
    length: usize,
    trained: Option<bool>,
    lists: StructArray,
    index: usize,
}

impl Piece {
    fn list(&self, name: &str) -> Result<Option<ArrayRef>> {
        Ok(item(field(&self.lists, name)?.as_list::<i32>(), self.index))
    }

    /// Joins its numbers to those of a run's tokens.
    pub(super) fn numbers(
        &self,
        name: &str,
        run: &Run,
        values: &mut [Option<f64>],
        join: &impl Fn(f64, f64) -> f64,
    ) -> Result<()> {
        let Some(numbers) = self.list(name)? else {
            return Ok(());
        };
        let numbers = cast(&numbers, &DataType::Float64)?;
        let numbers: &Float64Array = numbers.as_primitive();
        for at in self.positions(run) {
            let new = value_at(numbers, at - self.start);
            if let (Some(slot), Some(new)) = (values.get_mut(at - run.from), new) {
                *slot = Some(slot.map_or(new, |old| join(old, new)));
            }
        }
        Ok(())
    }

    /// Marks the tokens of a run that it trains: the row's mask says so, or without one the segment.
    pub(super) fn mark_trained(&self, run: &Run, values: &mut [bool]) -> Result<()> {
        let mask = self.list("mask")?;
        let mask = mask.as_ref().and_then(|mask| mask.as_boolean_opt());
        for at in self.positions(run) {
            let masked = mask.map(|mask| flag_at(mask, at - self.start).unwrap_or(false));
            if let Some(slot) = values.get_mut(at - run.from) {
                *slot |= self.trained.unwrap_or(true) && masked.or(self.trained).unwrap_or(false);
            }
        }
        Ok(())
    }

    /// The positions it shares with a run.
    fn positions(&self, run: &Run) -> std::ops::Range<usize> {
        let from = run.from.max(self.start);
        from..run.to.min(self.start + self.length).max(from)
    }
}

/// Reads the pieces of one call.
pub(super) fn pieces(lists: &ListArray, row: usize) -> Result<Vec<Piece>> {
    let Some(array) = item(lists, row) else {
        return Ok(Vec::new());
    };
    let all = array.as_struct();
    let number = |name: &str| -> Result<ArrayRef> { Ok(cast(field(all, name)?, &DataType::Int64)?) };
    let (starts, lengths) = (number("start")?, number("length")?);
    let (starts, lengths) = (starts.as_primitive::<Int64Type>(), lengths.as_primitive::<Int64Type>());
    let trained = field(all, "trained")?.as_boolean();
    let mut found = Vec::new();
    for index in 0..all.len() {
        let place = |array: &Int64Array| value_at(array, index).and_then(|value| usize::try_from(value).ok());
        if let (Some(start), Some(length)) = (place(starts), place(lengths)) {
            found.push(Piece { start, length, trained: flag_at(trained, index), lists: all.clone(), index });
        }
    }
    Ok(found)
}
