//! Calls as plain values, and the batches made of them.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Int32Array, ListArray, RecordBatch, StringArray, UInt32Array};
use arrow::compute::{concat_batches, take_record_batch};
use arrow::datatypes::Int32Type;

use crate::codec::{Decoder, Encoder};

/// A call as a test writes it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Case {
    pub(super) rollout: Option<String>,
    pub(super) id: Option<String>,
    pub(super) index: Option<i32>,
    pub(super) parent: Option<String>,
    pub(super) prompt: Option<Vec<i32>>,
    pub(super) output: Option<Vec<i32>>,
    pub(super) request: Option<String>,
}

impl Case {
    /// A call of rollout `r` with whole tokens.
    pub(super) fn new(id: &str, index: i32, prompt: &[i32], output: &[i32]) -> Self {
        Self {
            rollout: Some("r".to_owned()),
            id: Some(id.to_owned()),
            index: Some(index),
            prompt: Some(prompt.to_vec()),
            output: Some(output.to_vec()),
            ..Self::default()
        }
    }

    pub(super) fn parent(mut self, parent: &str) -> Self {
        self.parent = Some(parent.to_owned());
        self
    }

    pub(super) fn request(mut self, request: &str) -> Self {
        self.request = Some(request.to_owned());
        self
    }
}

fn tokens(lists: impl Iterator<Item = Option<Vec<i32>>>) -> ArrayRef {
    let lists = lists.map(|list| list.map(|list| list.into_iter().map(Some).collect::<Vec<_>>()));
    Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>(lists))
}

fn texts<'a>(texts: impl Iterator<Item = Option<&'a str>>) -> ArrayRef {
    Arc::new(texts.collect::<StringArray>())
}

/// The calls as an importer hands them over; column `marker` stands for those the codec does not know.
pub(super) fn logical(cases: &[Case]) -> RecordBatch {
    let marker: Int32Array =
        cases.iter().map(|case| case.prompt.as_ref().map(|p| p.iter().fold(7, |a, t| a ^ t))).collect();
    RecordBatch::try_from_iter_with_nullable([
        ("run_id", texts(cases.iter().map(|_| Some("run"))), true),
        ("rollout_id", texts(cases.iter().map(|case| case.rollout.as_deref())), true),
        ("call_id", texts(cases.iter().map(|case| case.id.as_deref())), true),
        ("call_index", Arc::new(cases.iter().map(|case| case.index).collect::<Int32Array>()) as ArrayRef, true),
        ("parent_call_id", texts(cases.iter().map(|case| case.parent.as_deref())), true),
        ("prompt_token_ids", tokens(cases.iter().map(|case| case.prompt.clone())), true),
        ("output_token_ids", tokens(cases.iter().map(|case| case.output.clone())), true),
        ("request", texts(cases.iter().map(|case| case.request.as_deref())), true),
        ("marker", Arc::new(marker) as ArrayRef, true),
    ])
    .unwrap()
}

/// Encodes the calls as one batch with room for all.
pub(super) fn encode(cases: &[Case]) -> RecordBatch {
    Encoder::new(usize::MAX).encode(&logical(cases)).unwrap()
}

pub(super) fn int(batch: &RecordBatch, name: &str) -> Vec<Option<i32>> {
    batch.column_by_name(name).unwrap().as_primitive::<Int32Type>().iter().collect()
}

pub(super) fn text(batch: &RecordBatch, name: &str) -> Vec<Option<String>> {
    let column = batch.column_by_name(name).unwrap();
    column.as_string::<i32>().iter().map(|text| text.map(str::to_owned)).collect()
}

pub(super) fn lists(batch: &RecordBatch, name: &str) -> Vec<Option<Vec<i32>>> {
    let column = batch.column_by_name(name).unwrap();
    let list = |list: ArrayRef| list.as_primitive::<Int32Type>().values().to_vec();
    column.as_list::<i32>().iter().map(|item| item.map(list)).collect()
}

/// The calls that a batch of rebuilt rows holds.
pub(super) fn cases(batch: &RecordBatch) -> Vec<Case> {
    let (rollout, id, parent) = (text(batch, "rollout_id"), text(batch, "call_id"), text(batch, "parent_call_id"));
    let (index, request) = (int(batch, "call_index"), text(batch, "request"));
    let (prompt, output) = (lists(batch, "prompt_token_ids"), lists(batch, "output_token_ids"));
    (0..batch.num_rows())
        .map(|row| Case {
            rollout: rollout[row].clone(),
            id: id[row].clone(),
            index: index[row],
            parent: parent[row].clone(),
            prompt: prompt[row].clone(),
            output: output[row].clone(),
            request: request[row].clone(),
        })
        .collect()
}

/// The rows of one rollout, in the order they have.
pub(super) fn only(batch: &RecordBatch, rollout: Option<&str>) -> RecordBatch {
    let found = text(batch, "rollout_id").into_iter().zip(0_u32..).filter(|(name, _)| name.as_deref() == rollout);
    take_record_batch(batch, &found.map(|(_, row)| row).collect::<UInt32Array>()).unwrap()
}

/// Rebuilds stored rows handed over `step` at a time, each batch cut into pieces of at most `max_bytes`.
pub(super) fn decode_by(stored: &RecordBatch, step: usize, max_bytes: usize) -> RecordBatch {
    let mut decoder = Decoder::new(true, true);
    let mut pieces = Vec::new();
    for from in (0..stored.num_rows()).step_by(step) {
        let batch = stored.slice(from, step.min(stored.num_rows() - from));
        let mut row = 0;
        while row < batch.num_rows() {
            let (decoded, next) = decoder.decode_up_to(&batch, row, max_bytes).unwrap();
            assert!(next > row && decoded.batch.num_rows() == next - row, "rows {row}..{next}");
            pieces.push(decoded.batch);
            row = next;
        }
    }
    match pieces.first() {
        Some(first) => concat_batches(&first.schema(), &pieces).unwrap(),
        None => decoder.decode(stored).unwrap().batch,
    }
}
