//! Trainer rows that digests accuse, read with their tokens: what `rows` and `outputs` look at more closely.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Float32Array, Int32Array, Int64Array, ListArray, RecordBatch,
};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Float32Type};
use datafusion::execution::SendableRecordBatchStream;
use futures::stream::Fuse;
use futures::{StreamExt, TryStreamExt};
use rollbook_query::{Error, Result, Session};

use super::quoted;
use super::tokens::{column, ids, integers, list, longs, text};
use crate::functions::Row;

/// Tokens of rows held at once.
const HELD: usize = 16 << 20;
/// Names in one filter; more than these, and all rows are read.
pub(super) const NAMED: usize = 1000;

/// The accused calls of a build, by row index.
pub(super) type ByRow = BTreeMap<Option<i32>, BTreeSet<String>>;

/// Sorts suspects by run and build.
pub(super) fn accused(suspects: &[RecordBatch]) -> Result<BTreeMap<(String, Option<String>), ByRow>> {
    let mut accused: BTreeMap<(String, Option<String>), ByRow> = BTreeMap::new();
    for batch in suspects {
        let (runs, builds, calls) = (text(batch, "run_id")?, text(batch, "build_id")?, text(batch, "call_id")?);
        let indexes = integers(batch, "row_index")?;
        for row in 0..batch.num_rows() {
            let build = builds.is_valid(row).then(|| builds.value(row).to_owned());
            let index = indexes.is_valid(row).then(|| indexes.value(row));
            let by_row = accused.entry((runs.value(row).to_owned(), build)).or_default();
            by_row.entry(index).or_default().insert(calls.value(row).to_owned());
        }
    }
    Ok(accused)
}

/// The rows that are looked at: those of one build.
pub(super) struct Place<'a> {
    pub(super) session: &'a Session,
    pub(super) run: &'a str,
    pub(super) build: Option<&'a str>,
}

/// Where a row stands in its build.
#[derive(Clone, Copy)]
pub(super) struct RowKey {
    pub(super) step: Option<i64>,
    pub(super) epoch: Option<i32>,
    pub(super) micro_batch: Option<i32>,
    pub(super) rank: Option<i32>,
    pub(super) index: Option<i32>,
}

impl RowKey {
    /// The columns that hold a key in what is made here.
    pub(super) fn fields() -> Vec<Field> {
        let number = |name: &str| Field::new(name, DataType::Int32, true);
        vec![
            Field::new("step", DataType::Int64, true),
            number("epoch"),
            number("micro_batch"),
            number("rank"),
            number("row_index"),
        ]
    }

    /// Keys as those columns.
    pub(super) fn columns(keys: &[Self]) -> Vec<ArrayRef> {
        let number =
            |value: fn(&Self) -> Option<i32>| -> ArrayRef { Arc::new(keys.iter().map(value).collect::<Int32Array>()) };
        vec![
            Arc::new(keys.iter().map(|key| key.step).collect::<Int64Array>()),
            number(|key| key.epoch),
            number(|key| key.micro_batch),
            number(|key| key.rank),
            number(|key| key.index),
        ]
    }

    fn read(batch: &RecordBatch) -> Result<Vec<Self>> {
        let steps = longs(batch, "step")?;
        let numbers = ["epoch", "micro_batch", "rank", "row_index"];
        let [epochs, batches, ranks, indexes] = numbers.map(|name| integers(batch, name));
        let (epochs, batches, ranks, indexes) = (epochs?, batches?, ranks?, indexes?);
        let at = |numbers: &Int32Array, row: usize| numbers.is_valid(row).then(|| numbers.value(row));
        let key = |row| Self {
            step: steps.is_valid(row).then(|| steps.value(row)),
            epoch: at(&epochs, row),
            micro_batch: at(&batches, row),
            rank: at(&ranks, row),
            index: at(&indexes, row),
        };
        Ok((0..batch.num_rows()).map(key).collect())
    }
}

/// A row that holds an accused call.
pub(super) struct Held {
    pub(super) key: RowKey,
    pub(super) tokens: Vec<i32>,
    /// Where they were asked for, and are as many as the tokens.
    pub(super) logprobs: Option<Float32Array>,
    pub(super) row: Row,
}

impl Held {
    /// Whether a call of the row is accused.
    pub(super) fn is_accused(&self, accused: &ByRow, call: &str) -> bool {
        accused.get(&self.key.index).is_some_and(|calls| calls.contains(call))
    }
}

/// The accused rows of a build, some at a time.
pub(super) struct AccusedRows<'a> {
    accused: &'a ByRow,
    stream: Fuse<SendableRecordBatchStream>,
}

impl<'a> AccusedRows<'a> {
    /// Starts the one scan that reads them.
    pub(super) async fn open(place: &Place<'_>, accused: &'a ByRow, with_logprobs: bool) -> Result<Self> {
        let stream = place.session.stream(&scan(place, accused, with_logprobs)).await?;
        Ok(Self { accused, stream: stream.fuse() })
    }

    /// Returns the next rows, about as many as may be held at once; none at the end.
    pub(super) async fn next(&mut self) -> Result<Option<Vec<Held>>> {
        let (mut held, mut tokens) = (Vec::new(), 0);
        while tokens <= HELD {
            let Some(batch) = self.stream.try_next().await? else { break };
            for row in read(&batch)?.into_iter().filter(|row| self.accused.contains_key(&row.key.index)) {
                tokens += row.tokens.len();
                held.push(row);
            }
        }
        Ok((!held.is_empty()).then_some(held))
    }
}

fn scan(place: &Place<'_>, accused: &ByRow, with_logprobs: bool) -> String {
    let build =
        place.build.map_or_else(|| "build_id IS NULL".to_owned(), |build| format!("build_id = {}", quoted(build)));
    let named: Vec<String> = accused.keys().flatten().map(ToString::to_string).collect();
    let mut places = Vec::new();
    if named.len() > NAMED {
        places.push("true".to_owned());
    } else if !named.is_empty() {
        places.push(format!("row_index IN ({})", named.join(", ")));
    }
    if accused.contains_key(&None) {
        places.push("row_index IS NULL".to_owned());
    }
    format!(
        "SELECT step, epoch, micro_batch, rank, row_index, token_ids, {}segments, row_mask(action_mask, mask_convention) AS action_mask \
         FROM samples WHERE run_id = {} AND {build} AND ({}) AND segments IS NOT NULL AND token_ids IS NOT NULL \
         AND NOT coalesce(is_pad, false)",
        if with_logprobs { "logprobs, " } else { "" },
        quoted(place.run),
        places.join(" OR ")
    )
}

fn read(batch: &RecordBatch) -> Result<Vec<Held>> {
    let keys = RowKey::read(batch)?;
    let (tokens, segments) = (list(batch, "token_ids")?, list(batch, "segments")?);
    let logprobs = batch.column_by_name("logprobs").map(|_| list(batch, "logprobs")).transpose()?;
    let masks = column(batch, "action_mask")?;
    let masks = masks.as_list_opt::<i32>().ok_or_else(|| Error::corrupt("action_mask holds no lists"))?;
    let mut rows = Vec::with_capacity(batch.num_rows());
    for (row, key) in keys.into_iter().enumerate() {
        let mask: Option<BooleanArray> = if masks.is_valid(row) {
            Some(cast(&masks.value(row), &DataType::Boolean)?.as_boolean().clone())
        } else {
            None
        };
        let tokens = ids(&tokens, row)?;
        let logprobs = match &logprobs {
            Some(lists) => floats(lists, row)?.filter(|logprobs| logprobs.len() == tokens.len()),
            None => None,
        };
        rows.push(Held { key, logprobs, tokens, row: Row::read(&segments.value(row), mask)? });
    }
    Ok(rows)
}

/// The numbers of a row's list; none where it is null.
pub(super) fn floats(lists: &ListArray, row: usize) -> Result<Option<Float32Array>> {
    if lists.is_null(row) {
        return Ok(None);
    }
    Ok(Some(cast(&lists.value(row), &DataType::Float32)?.as_primitive::<Float32Type>().clone()))
}
