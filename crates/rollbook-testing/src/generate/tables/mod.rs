//! Generated rollouts as record batches of the logical tables.

mod batch;

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, BooleanArray, Float32Array, Float64Array, Int32Array, Int64Array, ListArray, RecordBatch, StringArray,
    StructArray,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::datatypes::DataType;

use self::batch::{Batch, invalid};
use super::{Call, Options, Rollout, VOCAB_SIZE};
use crate::{Error, ErrorKind, Result};

const ENCODING_ID: &str = "generated-encoding";

/// Which columns a batch has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Columns {
    /// Those the generator fills, as a source in the exchange format would have them.
    Filled,
    /// All of the logical table, the others null, as importers hand them on.
    All,
}

/// The one row of `runs`.
///
/// # Errors
/// `Invalid` if the schema no longer has one of the columns; so for all functions here.
pub fn runs(options: &Options, columns: Columns) -> Result<RecordBatch> {
    let mut batch = Batch::new("runs")?;
    batch.texts("run_id", [&options.run_id]);
    batch.texts("name", ["generated run"]);
    batch.ints("expected_group_size", [i32::try_from(options.group_size).unwrap_or(i32::MAX)]);
    batch.ints("vocab_size", [VOCAB_SIZE]);
    batch.texts("logprobs_mode", ["raw"]);
    batch.longs("max_staleness", [1]);
    batch.put("allow_policy_mix", Arc::new(BooleanArray::from(vec![true])));
    batch.finish(columns)
}

/// A row of `policies` for every version that sampled anything.
///
/// # Errors
/// As [`runs`].
pub fn policies(options: &Options, columns: Columns) -> Result<RecordBatch> {
    // The last step may still see the weights of the step after it arrive.
    let versions: Vec<i64> = (1..=i64::try_from(options.steps()).unwrap_or(i64::MAX) + 1).collect();
    let mut batch = Batch::new("policies")?;
    batch.texts("run_id", versions.iter().map(|_| &options.run_id));
    batch.texts("policy_id", versions.iter().map(|_| "policy"));
    batch.texts("base_model", versions.iter().map(|_| "generated"));
    batch.longs("policy_version", versions.iter().copied());
    batch.longs("step", versions.iter().map(|version| version - 1));
    batch.finish(columns)
}

/// The one row of `encodings`.
///
/// # Errors
/// As [`runs`].
pub fn encodings(columns: Columns) -> Result<RecordBatch> {
    let mut batch = Batch::new("encodings")?;
    batch.texts("encoding_id", [ENCODING_ID]);
    batch.ints("vocab_size", [VOCAB_SIZE]);
    batch.finish(columns)
}

/// Rows of `rollouts`.
///
/// # Errors
/// As [`runs`].
pub fn rollouts(options: &Options, rollouts: &[Rollout], columns: Columns) -> Result<RecordBatch> {
    let each = || rollouts.iter();
    let versions = |rollout: &Rollout| -> Vec<i64> { rollout.calls.iter().map(last_version).collect() };
    let first = |rollout: &Rollout| rollout.calls.first().map(|call| call.policy_version);
    let mut batch = Batch::new("rollouts")?;
    batch.texts("run_id", each().map(|_| &options.run_id));
    batch.texts("rollout_id", each().map(rollout_id));
    batch.longs("step", each().map(|rollout| rollout.step));
    batch.texts("group_id", each().map(group_id));
    batch.texts("task_id", each().map(|rollout| format!("task-{:06}", rollout.group)));
    batch.texts("environment", each().map(|_| "repository"));
    batch.texts("harness", each().map(|_| "generated"));
    batch.texts("purpose", each().map(|_| "train"));
    batch.texts("status", each().map(|rollout| rollout.status));
    batch.put("policy_version_min", Arc::new(each().map(first).collect::<Int64Array>()));
    let newest = each().map(|rollout| versions(rollout).into_iter().max());
    batch.put("policy_version_max", Arc::new(newest.collect::<Int64Array>()));
    batch.longs("call_count", each().map(|rollout| i64::from(count(rollout.calls.len()))));
    batch.times("started_at", each().map(|rollout| rollout.started_at));
    batch.times("finished_at", each().map(|rollout| rollout.finished_at));
    batch.finish(columns)
}

/// Rows of `calls`, prompts whole.
///
/// # Errors
/// As [`runs`].
pub fn calls(options: &Options, rollout: &Rollout, range: Range<usize>, columns: Columns) -> Result<RecordBatch> {
    let indexes = || range.clone();
    let each = || rollout.calls[range.clone()].iter();
    let mut batch = Batch::new("calls")?;
    batch.texts("run_id", each().map(|_| &options.run_id));
    batch.longs("step", each().map(|_| rollout.step));
    batch.texts("group_id", each().map(|_| group_id(rollout)));
    batch.texts("rollout_id", each().map(|_| rollout_id(rollout)));
    batch.texts("call_id", indexes().map(|index| call_id(rollout, index)));
    batch.ints("call_index", indexes().map(count));
    let parents = each().map(|call| call.parent.map(|parent| call_id(rollout, parent)));
    batch.put("parent_call_id", Arc::new(parents.collect::<StringArray>()));
    let retries = |index: usize| rollout.calls[..=index].iter().filter(|call| call.attempt > 1).count();
    batch.ints("turn_index", indexes().map(|index| count(index - retries(index))));
    batch.ints("attempt", each().map(|call| call.attempt));
    batch.texts("kind", each().map(|_| "act"));
    let reasons = each().map(|call| call.transition.break_reason());
    batch.put("break_reason", Arc::new(reasons.collect::<StringArray>()));
    put_tokens(&mut batch, rollout, &range)?;
    batch.texts("policy_id", each().map(|_| "policy"));
    batch.longs("policy_version", each().map(|call| call.policy_version));
    put_policy_spans(&mut batch, &rollout.calls[range.clone()])?;
    batch.texts("encoding_id", each().map(|_| ENCODING_ID));
    batch.texts("model", each().map(|_| "generated"));
    batch.doubles("temperature", each().map(|_| 1.0));
    batch.longs("seed", each().map(|call| call.seed));
    batch.texts("finish_reason", each().map(|call| call.finish_reason));
    batch.ints("usage_prompt_tokens", each().map(|call| count(call.prompt_len())));
    batch.ints("usage_output_tokens", each().map(|call| count(call.output.len())));
    batch.times("started_at", each().map(|call| call.started_at));
    batch.times("finished_at", each().map(|call| call.finished_at));
    batch.finish(columns)
}

/// The rows of `calls` of one rollout in batches of about `tokens` prompt tokens, at least one call in each.
pub fn call_ranges(rollout: &Rollout, tokens: usize) -> Vec<Range<usize>> {
    let (mut ranges, mut start, mut held) = (Vec::new(), 0, 0);
    for (index, call) in rollout.calls.iter().enumerate() {
        if index > start && held + call.prompt_len() > tokens {
            ranges.push(start..index);
            (start, held) = (index, 0);
        }
        held += call.prompt_len();
    }
    if start < rollout.calls.len() {
        ranges.push(start..rollout.calls.len());
    }
    ranges
}

/// Rows of `environment_records`; what a tool returned lies in the prompts, its text is not made up.
///
/// # Errors
/// As [`runs`].
pub fn environment_records(options: &Options, rollouts: &[Rollout], columns: Columns) -> Result<RecordBatch> {
    let each = || rollouts.iter().flat_map(|rollout| rollout.tool_results.iter().map(move |result| (rollout, result)));
    let ids = rollouts.iter().flat_map(|rollout| {
        (0..rollout.tool_results.len()).map(|index| format!("{}-t{index:03}", rollout_id(rollout)))
    });
    let mut batch = Batch::new("environment_records")?;
    batch.texts("run_id", each().map(|_| &options.run_id));
    batch.longs("step", each().map(|(rollout, _)| rollout.step));
    batch.texts("group_id", each().map(|(rollout, _)| group_id(rollout)));
    batch.texts("rollout_id", each().map(|(rollout, _)| rollout_id(rollout)));
    batch.texts("record_id", ids);
    batch.texts("call_id", each().map(|(rollout, result)| call_id(rollout, result.call)));
    batch.ints("call_index", each().map(|(_, result)| count(result.call)));
    batch.texts("kind", each().map(|_| "tool_result"));
    batch.texts("name", each().map(|_| "shell"));
    batch.ints("token_count", each().map(|(_, result)| count(result.token_count)));
    let delivered = each().map(|(rollout, result)| {
        // A rollout that was cut off never delivered its last result.
        (result.delivered_to < rollout.calls.len()).then(|| call_id(rollout, result.delivered_to))
    });
    batch.put("delivered_call_id", Arc::new(delivered.collect::<StringArray>()));
    batch.put("is_error", Arc::new(each().map(|(_, result)| Some(result.is_error)).collect::<BooleanArray>()));
    batch.doubles("duration_ms", each().map(|(_, result)| result.duration_ms));
    batch.finish(columns)
}

/// Rows of `scores`: three verifiers a rollout.
///
/// # Errors
/// As [`runs`].
pub fn scores(options: &Options, rollouts: &[Rollout], columns: Columns) -> Result<RecordBatch> {
    let each = || rollouts.iter().flat_map(|rollout| rollout.scores.iter().map(move |score| (rollout, score)));
    let mut batch = Batch::new("scores")?;
    batch.texts("run_id", each().map(|_| &options.run_id));
    batch.longs("step", each().map(|(rollout, _)| rollout.step));
    batch.texts("group_id", each().map(|(rollout, _)| group_id(rollout)));
    batch.texts("rollout_id", each().map(|(rollout, _)| rollout_id(rollout)));
    batch.texts("score_id", each().map(|(rollout, score)| format!("{}-{}", rollout_id(rollout), score.verifier)));
    batch.texts("verifier", each().map(|(_, score)| score.verifier));
    batch.texts("verifier_version", each().map(|_| "1"));
    batch.put("value", Arc::new(each().map(|(_, score)| score.value).collect::<Float64Array>()));
    batch.put("is_valid", Arc::new(each().map(|(_, score)| Some(score.value.is_some())).collect::<BooleanArray>()));
    let errors = each().map(|(_, score)| score.value.is_none().then_some("timeout"));
    batch.put("error_type", Arc::new(errors.collect::<StringArray>()));
    batch.times("scored_at", each().map(|(rollout, _)| rollout.finished_at));
    batch.finish(columns)
}

/// The id of a rollout.
pub fn rollout_id(rollout: &Rollout) -> String {
    nth_rollout_id(rollout.index)
}

/// The id of a run's nth rollout, from 0 on.
pub fn nth_rollout_id(index: u64) -> String {
    format!("r{index:07}")
}

/// The id of a call of a rollout.
pub fn call_id(rollout: &Rollout, index: usize) -> String {
    format!("r{:07}-{index:03}", rollout.index)
}

fn group_id(rollout: &Rollout) -> String {
    format!("g{:06}", rollout.group)
}

fn last_version(call: &Call) -> i64 {
    call.policy_move.map_or(call.policy_version, |(_, version)| version)
}

fn count(length: usize) -> i32 {
    i32::try_from(length).unwrap_or(i32::MAX)
}

fn put_tokens(batch: &mut Batch, rollout: &Rollout, range: &Range<usize>) -> Result<()> {
    let each = || rollout.calls[range.clone()].iter();
    let engine = || each().map(|_| "engine");
    let mut prompts = vec![0; each().map(Call::prompt_len).sum()];
    let mut rest = &mut prompts[..];
    for index in range.clone() {
        let (prompt, after) = rest.split_at_mut(rollout.calls[index].prompt_len());
        rollout.fill(index, prompt);
        rest = after;
    }
    let prompts: ArrayRef = Arc::new(Int32Array::from(prompts));
    batch.lists("prompt_token_ids", each().map(Call::prompt_len), prompts)?;
    batch.texts("prompt_exactness", engine());
    let outputs: Int32Array = each().flat_map(|call| &call.output).copied().collect::<Vec<i32>>().into();
    batch.lists("output_token_ids", each().map(|call| call.output.len()), Arc::new(outputs))?;
    batch.texts("output_exactness", engine());
    let logprobs: Float32Array = each().flat_map(|call| &call.logprobs).copied().collect::<Vec<f32>>().into();
    batch.lists("output_logprobs", each().map(|call| call.logprobs.len()), Arc::new(logprobs))?;
    batch.texts("logprobs_source", engine());
    batch.texts("logprobs_mode", each().map(|_| "raw"));
    Ok(())
}

fn put_policy_spans(batch: &mut Batch, calls: &[Call]) -> Result<()> {
    let moved = || calls.iter().filter_map(|call| call.policy_move.map(|moved| (call, moved)));
    let starts: Int32Array = moved().flat_map(|(_, (start, _))| [0, count(start)]).collect::<Vec<i32>>().into();
    let versions: Int64Array =
        moved().flat_map(|(call, (_, version))| [call.policy_version, version]).collect::<Vec<i64>>().into();
    let item = batch.item("policy_spans")?;
    let DataType::Struct(fields) = item.data_type() else {
        return Err(Error::new(ErrorKind::Invalid, "policy_spans holds no structs"));
    };
    let columns = fields.iter().map(|field| -> ArrayRef {
        if field.name() == "start" { Arc::new(starts.clone()) } else { Arc::new(versions.clone()) }
    });
    let spans = StructArray::try_new(fields.clone(), columns.collect(), None).map_err(invalid)?;
    let lengths = calls.iter().map(|call| if call.policy_move.is_some() { 2 } else { 0 });
    let valid: NullBuffer = calls.iter().map(|call| call.policy_move.is_some()).collect::<Vec<bool>>().into();
    let list = ListArray::try_new(item, OffsetBuffer::from_lengths(lengths), Arc::new(spans), Some(valid));
    batch.put("policy_spans", Arc::new(list.map_err(invalid)?));
    Ok(())
}
