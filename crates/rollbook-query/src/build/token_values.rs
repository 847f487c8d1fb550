//! Credits of single tokens on their way to the rows: sorted like the pieces of their calls, never all in memory.

use std::ops::Range;
use std::sync::{Arc, LazyLock};

use arrow::array::{Array, ArrayRef, AsArray, Float32Array, ListArray, RecordBatch, UInt32Array};
use arrow::compute::{cast, take};
use arrow::datatypes::{DataType, Field, Float32Type, Schema, SchemaRef, UInt32Type};
use datafusion::execution::SendableRecordBatchStream;
use futures::TryStreamExt;

use crate::error::{Error, Result};
use crate::external_sort::ExternalSort;
use crate::recipe::list_of;
use crate::session::Session;

/// The values of one planned call; `number` is its place in the plan.
static VALUES: LazyLock<SchemaRef> = LazyLock::new(|| {
    Arc::new(Schema::new(vec![
        Field::new("number", DataType::UInt32, false),
        Field::new("values", list_of(DataType::Float32, true), true),
    ]))
});

/// Starts the sort that brings values into the order of the plan, in batches of at most so many rows.
pub(super) fn start(session: &Session, rows: usize) -> Result<ExternalSort> {
    ExternalSort::in_session(session, &VALUES, &["number"], rows)
}

/// Makes a batch for the sort of some rows of a list column; `numbers` are their calls' places in the plan.
pub(super) fn batch(lists: &ListArray, rows: Vec<u32>, numbers: Vec<u32>) -> Result<RecordBatch> {
    let picked = take(lists, &UInt32Array::from(rows), None)?;
    let values = cast(&picked, VALUES.field(1).data_type())?;
    let numbers: ArrayRef = Arc::new(UInt32Array::from(numbers));
    Ok(RecordBatch::try_new(Arc::clone(&VALUES), vec![numbers, values])?)
}

/// Where a list has no value, as ranges of positions; the error is the position of a value that is no finite number.
pub(super) fn gaps(values: &Float32Array) -> Result<Vec<Range<u32>>, usize> {
    let mut gaps: Vec<Range<u32>> = Vec::new();
    for position in 0..values.len() {
        if values.is_valid(position) {
            if values.value(position).is_finite() {
                continue;
            }
            return Err(position);
        }
        let position = u32::try_from(position).unwrap_or(u32::MAX);
        match gaps.last_mut() {
            Some(last) if last.end == position => last.end = position.saturating_add(1),
            _ => gaps.push(position..position.saturating_add(1)),
        }
    }
    Ok(gaps)
}

/// The sorted values, handed out call by call.
pub(super) struct TokenValues {
    stream: Option<SendableRecordBatchStream>,
    batch: Option<RecordBatch>,
    row: usize,
}

impl TokenValues {
    /// Begins with the first call; without a stream there is no value at all.
    pub(super) fn new(stream: Option<SendableRecordBatchStream>) -> Self {
        Self { stream, batch: None, row: 0 }
    }

    /// Returns the values of a call; calls are asked for in the order of their numbers.
    pub(super) async fn of(&mut self, number: u32) -> Result<Option<Float32Array>> {
        let Some(stream) = &mut self.stream else {
            return Ok(None);
        };
        while self.batch.as_ref().is_none_or(|batch| self.row >= batch.num_rows()) {
            self.batch = stream.try_next().await?;
            self.row = 0;
            if self.batch.is_none() {
                return Ok(None);
            }
        }
        let Some(batch) = &self.batch else {
            return Ok(None);
        };
        let next = batch.column(0).as_primitive::<UInt32Type>().value(self.row);
        if next < number {
            return Err(Error::corrupt(format!("values of call {next} come where those of {number} are due")));
        }
        if next > number {
            return Ok(None);
        }
        let values = batch.column(1).as_list::<i32>().value(self.row).as_primitive::<Float32Type>().clone();
        self.row += 1;
        Ok(Some(values))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_the_runs_of_nulls_and_a_number_must_be_finite() {
        let gaps = |values: Vec<Option<f32>>| gaps(&Float32Array::from(values));
        assert_eq!(gaps(vec![None, None, Some(1.0), None]), Ok(vec![0..2, 3..4]));
        assert_eq!(gaps(vec![]), Ok(vec![]));
        assert_eq!(gaps(vec![Some(0.0), Some(f32::NAN)]), Err(1));
        assert_eq!(gaps(vec![Some(f32::NEG_INFINITY)]), Err(0));
    }
}
