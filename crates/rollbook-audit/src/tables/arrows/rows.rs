//! One shape for all differences: the call, the place, and what stands there.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int32Array, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use rollbook_query::Result;

use crate::functions::int;

/// A call that something is said of.
#[derive(Debug, Clone, Default)]
pub(super) struct Call {
    pub(super) run: Option<String>,
    pub(super) step: Option<i64>,
    pub(super) group: Option<String>,
    pub(super) rollout: Option<String>,
    pub(super) call: Option<String>,
    pub(super) index: Option<i32>,
    /// Leading tokens shared with an earlier call; none where that is unknown.
    pub(super) inherited: Option<usize>,
}

/// What is said of it.
#[derive(Debug, Clone)]
pub(super) struct Said {
    pub(super) call: Call,
    /// text, tokens, marker, seam, `generation_prompt`, refused or failed.
    pub(super) kind: &'static str,
    pub(super) position: Option<usize>,
    pub(super) expected: Option<String>,
    pub(super) observed: Option<String>,
    pub(super) reason: Option<String>,
}

/// The columns of the tables.
pub(in crate::tables) fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("run_id", DataType::Utf8, true),
        Field::new("step", DataType::Int64, true),
        Field::new("group_id", DataType::Utf8, true),
        Field::new("rollout_id", DataType::Utf8, true),
        Field::new("call_id", DataType::Utf8, true),
        Field::new("call_index", DataType::Int32, true),
        Field::new("inherited", DataType::Int32, true),
        Field::new("kind", DataType::Utf8, true),
        Field::new("position", DataType::Int32, true),
        Field::new("expected", DataType::Utf8, true),
        Field::new("observed", DataType::Utf8, true),
        Field::new("reason", DataType::Utf8, true),
    ]))
}

pub(super) fn batch(said: &[Said]) -> Result<RecordBatch> {
    let text =
        |value: fn(&Said) -> Option<&str>| -> ArrayRef { Arc::new(said.iter().map(value).collect::<StringArray>()) };
    let number =
        |value: fn(&Said) -> Option<i32>| -> ArrayRef { Arc::new(said.iter().map(value).collect::<Int32Array>()) };
    let columns = vec![
        text(|said| said.call.run.as_deref()),
        Arc::new(said.iter().map(|said| said.call.step).collect::<Int64Array>()),
        text(|said| said.call.group.as_deref()),
        text(|said| said.call.rollout.as_deref()),
        text(|said| said.call.call.as_deref()),
        number(|said| said.call.index),
        number(|said| said.call.inherited.map(int)),
        text(|said| Some(said.kind)),
        number(|said| said.position.map(int)),
        text(|said| said.expected.as_deref()),
        text(|said| said.observed.as_deref()),
        text(|said| said.reason.as_deref()),
    ];
    Ok(RecordBatch::try_new(schema(), columns)?)
}
