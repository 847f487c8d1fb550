//! The tokens of some calls, and of batches' columns.

use std::collections::HashMap;

use arrow::array::{Array, ArrayRef, AsArray, Int32Array, Int64Array, ListArray, RecordBatch, StringArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int32Type, Int64Type};
use futures::TryStreamExt;
use rollbook_query::{Error, Result, Session};

use super::quoted;

/// More names than this are not put into a filter; the rest of the run is read instead.
const NAMED: usize = 2000;

/// A call by run, rollout and id.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct CallKey {
    pub(super) run: String,
    pub(super) rollout: Option<String>,
    pub(super) call: String,
}

/// What a call saw and gave.
#[derive(Debug, Clone, Default)]
pub(super) struct CallTokens {
    pub(super) prompt: Vec<i32>,
    pub(super) output: Vec<i32>,
}

impl CallTokens {
    /// Prompt and the first `outputs` tokens of the output.
    pub(super) fn context(&self, outputs: usize) -> Vec<i32> {
        let mut tokens = self.prompt.clone();
        tokens.extend(self.output.iter().take(outputs));
        tokens
    }
}

/// Reads the tokens of calls; a key without a rollout finds the call in any.
pub(super) async fn tokens_of(session: &Session, keys: &[CallKey]) -> Result<HashMap<CallKey, CallTokens>> {
    let mut wanted: HashMap<(String, String), Vec<&CallKey>> = HashMap::new();
    for key in keys {
        wanted.entry((key.run.clone(), key.call.clone())).or_default().push(key);
    }
    let mut runs: Vec<&str> = keys.iter().map(|key| key.run.as_str()).collect();
    runs.sort_unstable();
    runs.dedup();
    let mut found = HashMap::new();
    for run in runs {
        let mut rows = session.stream(&scan(run, keys)).await?;
        while let Some(batch) = rows.try_next().await? {
            let (rollouts, calls) = (text(&batch, "rollout_id")?, text(&batch, "call_id")?);
            let (prompts, outputs) = (list(&batch, "prompt_token_ids")?, list(&batch, "output_token_ids")?);
            for row in (0..batch.num_rows()).filter(|row| calls.is_valid(*row)) {
                let Some(keys) = wanted.get(&(run.to_owned(), calls.value(row).to_owned())) else {
                    continue;
                };
                let rollout = rollouts.is_valid(row).then(|| rollouts.value(row));
                for key in keys.iter().filter(|key| key.rollout.is_none() || key.rollout.as_deref() == rollout) {
                    let tokens = CallTokens { prompt: ids(&prompts, row)?, output: ids(&outputs, row)? };
                    found.insert((*key).clone(), tokens);
                }
            }
        }
    }
    Ok(found)
}

fn scan(run: &str, keys: &[CallKey]) -> String {
    let mut sql = format!(
        "SELECT rollout_id, call_id, prompt_token_ids, output_token_ids FROM calls WHERE run_id = {}",
        quoted(run)
    );
    let own = || keys.iter().filter(|key| key.run == run);
    let rollouts: Option<std::collections::BTreeSet<&str>> = own().map(|key| key.rollout.as_deref()).collect();
    // Whole rollouts are read below the decoder, which needs their other calls; a call's name only helps above it.
    if let Some(rollouts) = rollouts.filter(|rollouts| rollouts.len() <= NAMED) {
        let names: Vec<String> = rollouts.into_iter().map(quoted).collect();
        sql = format!("{sql} AND rollout_id IN ({})", names.join(", "));
    }
    let calls: std::collections::BTreeSet<&str> = own().map(|key| key.call.as_str()).collect();
    if calls.len() <= NAMED {
        let names: Vec<String> = calls.into_iter().map(quoted).collect();
        sql = format!("{sql} AND call_id IN ({})", names.join(", "));
    }
    sql
}

/// A batch's column.
pub(super) fn column<'a>(batch: &'a RecordBatch, name: &str) -> Result<&'a ArrayRef> {
    batch.column_by_name(name).ok_or_else(|| Error::corrupt(format!("the scan lost column {name}")))
}

/// A batch's texts.
pub(super) fn text(batch: &RecordBatch, name: &str) -> Result<StringArray> {
    Ok(cast(column(batch, name)?, &DataType::Utf8)?.as_string::<i32>().clone())
}

/// A batch's integers.
pub(super) fn integers(batch: &RecordBatch, name: &str) -> Result<Int32Array> {
    Ok(cast(column(batch, name)?, &DataType::Int32)?.as_primitive::<Int32Type>().clone())
}

/// A batch's long integers.
pub(super) fn longs(batch: &RecordBatch, name: &str) -> Result<Int64Array> {
    Ok(cast(column(batch, name)?, &DataType::Int64)?.as_primitive::<Int64Type>().clone())
}

/// A batch's lists.
pub(super) fn list(batch: &RecordBatch, name: &str) -> Result<ListArray> {
    column(batch, name)?
        .as_list_opt::<i32>()
        .cloned()
        .ok_or_else(|| Error::corrupt(format!("column {name} holds no lists")))
}

/// A row's token ids, none where they are null.
pub(super) fn ids(lists: &ListArray, row: usize) -> Result<Vec<i32>> {
    if lists.is_null(row) {
        return Ok(Vec::new());
    }
    let items = cast(&lists.value(row), &DataType::Int32)?;
    Ok(items.as_primitive::<Int32Type>().values().to_vec())
}
