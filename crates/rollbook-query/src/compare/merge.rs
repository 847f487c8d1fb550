//! Two sorted streams of items become one of pairs.

use std::cmp::Ordering;

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::{Float64Type, UInt32Type, UInt64Type};
use datafusion::execution::SendableRecordBatchStream;
use futures::TryStreamExt;

use crate::compare::items::Key;
use crate::error::Result;

/// The numbers of one item: value and weight.
pub(super) type Values = [f64; 2];

/// An item with what each side has for it.
pub(super) type Pair = (Key, Option<Values>, Option<Values>);

/// Pairs the items of two sides.
pub(super) struct Merge {
    a: Cursor,
    b: Cursor,
}

impl Merge {
    pub(super) fn new(a: SendableRecordBatchStream, b: SendableRecordBatchStream) -> Self {
        Self { a: Cursor::new(a), b: Cursor::new(b) }
    }

    /// Returns the next key with the values of either side.
    pub(super) async fn next(&mut self) -> Result<Option<Pair>> {
        let order = match (self.a.key().await?, self.b.key().await?) {
            (None, None) => return Ok(None),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(a), Some(b)) => a.cmp(&b),
        };
        let a = if order.is_le() { self.a.take().await? } else { None };
        let b = if order.is_ge() { self.b.take().await? } else { None };
        let key = a.or(b).map(|(key, _)| key);
        Ok(key.map(|key| (key, a.map(|item| item.1), b.map(|item| item.1))))
    }
}

/// One side.
struct Cursor {
    stream: SendableRecordBatchStream,
    batch: Option<RecordBatch>,
    row: usize,
}

impl Cursor {
    fn new(stream: SendableRecordBatchStream) -> Self {
        Self { stream, batch: None, row: 0 }
    }

    /// The key of the next item.
    async fn key(&mut self) -> Result<Option<Key>> {
        while self.batch.as_ref().is_none_or(|batch| self.row >= batch.num_rows()) {
            self.row = 0;
            self.batch = self.stream.try_next().await?;
            if self.batch.is_none() {
                return Ok(None);
            }
        }
        Ok(self.batch.as_ref().map(|batch| key_of_row(batch, self.row)))
    }

    /// Takes the next item. Of items with one key the first value counts, and all their weights: a token that trains in
    /// several rows weighs in each.
    async fn take(&mut self) -> Result<Option<(Key, Values)>> {
        let Some(key) = self.key().await? else {
            return Ok(None);
        };
        let mut taken: Option<Values> = None;
        while self.key().await? == Some(key) {
            let Some(batch) = &self.batch else {
                break;
            };
            let number = |column: usize| batch.column(column).as_primitive::<Float64Type>().value(self.row);
            taken = Some(match taken {
                None => [number(5), number(6)],
                Some([value, weight]) => [value, weight + number(6)],
            });
            self.row += 1;
        }
        Ok(taken.map(|values| (key, values)))
    }
}

fn key_of_row(batch: &RecordBatch, row: usize) -> Key {
    let half = |column: usize| u128::from(batch.column(column).as_primitive::<UInt64Type>().value(row));
    Key {
        rollout: (half(0) << 64) | half(1),
        call: (half(2) << 64) | half(3),
        position: batch.column(4).as_primitive::<UInt32Type>().value(row),
    }
}
