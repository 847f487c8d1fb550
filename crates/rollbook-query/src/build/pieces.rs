//! One pass over the run's calls: a verdict on every output token, pieces of the planned calls, exclusions of the rest.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, LazyLock};

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanBuilder, Float64Builder, Int32Builder, ListBuilder, RecordBatch, StringBuilder,
    UInt32Array, UInt32Builder,
};
use arrow::compute::{cast, take};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, UInt32Type};

use crate::build::credit::{CallCredit, Credits};
use crate::build::key_of;
use crate::build::objective::TrainedTokens;
use crate::build::plan::Plan;
use crate::build::verdict::{CallColumns, CallVerdict, Reason, Run, column, list};
use crate::error::{Error, Result};
use crate::quarantine::Quarantine;
use crate::recipe::{list_of, table, table_batch, times};

/// What assembly needs of a planned call; `number` is its place in the plan and so in the sorted order.
///
/// `prompt` is null where the prompt of a later call holds it.
pub(super) static PIECES: LazyLock<SchemaRef> = LazyLock::new(|| {
    let field = |name: &str, data_type| Field::new(name, data_type, true);
    Arc::new(Schema::new(vec![
        Field::new("number", DataType::UInt32, false),
        field("group_id", DataType::Utf8),
        field("advantage", DataType::Float64),
        field("prompt", list_of(DataType::Int32, false)),
        field("output", list_of(DataType::Int32, false)),
        field("logprobs", list_of(DataType::Float32, true)),
        field("trained", list_of(DataType::Boolean, true)),
    ]))
});

/// What the pass knows from before.
pub(super) struct Pass<'a> {
    pub(super) run_id: &'a str,
    pub(super) build_id: &'a str,
    pub(super) derivation_id: &'a str,
    pub(super) created_at: i64,
    pub(super) plan: &'a Plan,
    pub(super) credits: &'a Credits,
    pub(super) doubled: &'a HashSet<u128>,
    /// Rollouts that are not for training.
    pub(super) skipped: &'a HashSet<u128>,
    pub(super) quarantine: &'a Quarantine,
    pub(super) accept_assumed: bool,
    pub(super) trained: TrainedTokens,
    /// Tokens left out, by reason.
    pub(super) excluded: BTreeMap<String, u64>,
}

impl Pass<'_> {
    /// Takes a batch of calls; returns pieces and exclusions, where it has any.
    pub(super) fn take(&mut self, batch: &RecordBatch) -> Result<(Option<RecordBatch>, Option<RecordBatch>)> {
        let calls = CallColumns::new(batch)?;
        let prompts = list(batch, "prompt_token_ids")?;
        let mut pieces = Pieces::default();
        let mut exclusions = Exclusions::default();
        for row in 0..batch.num_rows() {
            if calls.call_id.is_null(row) || calls.rollout_id.is_null(row) {
                continue;
            }
            let (call, rollout) = (calls.call_id.value(row), calls.rollout_id.value(row));
            let number = self.plan.number(call);
            if number.is_none() && self.skipped.contains(&key_of(rollout)) {
                continue;
            }
            let credit = self.credits.of(rollout, call);
            let is_doubled = self.doubled.contains(&key_of(call));
            let mut verdict = CallVerdict::new(credit.err(), is_doubled, number.is_some());
            if let Ok(CallCredit::Tokens { count, gaps }) = credit {
                let tokens = calls.output_tokens(row);
                // Of an id that several calls have, it cannot be told whose the values are.
                if count as usize != tokens && calls.output.is_valid(row) && !is_doubled {
                    return Err(Error::invalid(format!(
                        "credit {} has {count} values for rollout {rollout}, call {call}, which has {tokens} output tokens",
                        self.credits.name
                    )));
                }
                verdict = verdict.with_gaps(gaps, self.credits.missing(rollout));
            }
            if self.quarantine.has_call(rollout, call) {
                verdict = CallVerdict::quarantined();
            }
            let runs = calls.verdicts(row, self.accept_assumed, verdict);
            self.count(&runs);
            exclusions.push(row, &runs);
            if let Some(number) = number {
                self.count_trained(number, &runs);
                let needs_prompt = self.plan.needs_prompt(number);
                let advantage = match credit {
                    Ok(CallCredit::Value(value)) => Some(value),
                    // Values of single tokens come by a sort of their own.
                    Ok(CallCredit::Tokens { .. }) | Err(_) => None,
                };
                pieces.push(row, number, needs_prompt, calls.logprobs(row).is_some(), advantage, &runs);
            }
        }
        let pieces = pieces.finish(batch, &calls, &prompts)?;
        let exclusions = exclusions.finish(self, &calls)?;
        Ok((pieces, exclusions))
    }

    fn count_trained(&mut self, number: u32, runs: &[Run]) {
        let (_, sequence) = self.plan.sequence_of(number);
        let tokens = runs.iter().filter(|run| run.reason.is_none()).map(|run| run.length).sum();
        self.trained.add(sequence.row, sequence.rollout, tokens);
    }

    fn count(&mut self, runs: &[Run]) {
        for run in runs {
            if let Some(reason) = run.reason {
                let name = reason.text(self.credits.reasons());
                match self.excluded.get_mut(name) {
                    Some(count) => *count += u64::from(run.length),
                    None => drop(self.excluded.insert(name.to_owned(), u64::from(run.length))),
                }
            }
        }
    }
}

/// Columns of [`PIECES`] for some rows of a batch; null indexes stand for lists that are not taken along.
#[derive(Default)]
struct Pieces {
    numbers: UInt32Builder,
    rows: UInt32Builder,
    prompt_rows: UInt32Builder,
    logprob_rows: UInt32Builder,
    advantages: Float64Builder,
    trained: Vec<Vec<Run>>,
}

impl Pieces {
    fn push(
        &mut self,
        row: usize,
        number: u32,
        needs_prompt: bool,
        has_logprobs: bool,
        advantage: Option<f64>,
        runs: &[Run],
    ) {
        let row = u32::try_from(row).unwrap_or(u32::MAX);
        self.numbers.append_value(number);
        self.rows.append_value(row);
        self.prompt_rows.append_option(needs_prompt.then_some(row));
        self.logprob_rows.append_option(has_logprobs.then_some(row));
        self.advantages.append_option(advantage);
        self.trained.push(runs.to_vec());
    }

    fn finish(mut self, batch: &RecordBatch, calls: &CallColumns, prompts: &dyn Array) -> Result<Option<RecordBatch>> {
        if self.trained.is_empty() {
            return Ok(None);
        }
        let field = Field::new("element", DataType::Boolean, true);
        let mut trained = ListBuilder::new(BooleanBuilder::new()).with_field(field);
        for runs in &self.trained {
            for run in runs {
                trained.values().append_n(run.length as usize, run.reason.is_none());
            }
            trained.append(true);
        }
        let rows = self.rows.finish();
        let picked = |array: &dyn Array, rows: &UInt32Array, name: &str| -> Result<ArrayRef> {
            Ok(cast(&take(array, rows, None)?, PIECES.field_with_name(name)?.data_type())?)
        };
        let columns: Vec<ArrayRef> = vec![
            Arc::new(self.numbers.finish()),
            picked(&calls.group_id, &rows, "group_id")?,
            Arc::new(self.advantages.finish()),
            picked(prompts, &self.prompt_rows.finish(), "prompt")?,
            picked(&calls.output, &rows, "output")?,
            picked(column(batch, "output_logprobs")?, &self.logprob_rows.finish(), "logprobs")?,
            Arc::new(trained.finish()),
        ];
        Ok(Some(RecordBatch::try_new(Arc::clone(&PIECES), columns)?))
    }
}

/// Rows of `exclusions` for some rows of a batch.
#[derive(Default)]
struct Exclusions {
    rows: UInt32Builder,
    positions: Int32Builder,
    lengths: Int32Builder,
    reasons: Vec<Reason>,
}

impl Exclusions {
    fn push(&mut self, row: usize, runs: &[Run]) {
        let integer = |value: u32| i32::try_from(value).unwrap_or(i32::MAX);
        for run in runs {
            if let Some(reason) = run.reason {
                self.rows.append_value(u32::try_from(row).unwrap_or(u32::MAX));
                self.positions.append_value(integer(run.start));
                self.lengths.append_value(integer(run.length));
                self.reasons.push(reason);
            }
        }
    }

    fn finish(mut self, pass: &Pass<'_>, calls: &CallColumns) -> Result<Option<RecordBatch>> {
        let count = self.reasons.len();
        if count == 0 {
            return Ok(None);
        }
        let rows = self.rows.finish();
        let mut reasons = StringBuilder::new();
        for reason in &self.reasons {
            reasons.append_value(reason.text(pass.credits.reasons()));
        }
        let columns: BTreeMap<&str, ArrayRef> = BTreeMap::from([
            ("run_id", repeated(pass.run_id, count)),
            ("step", take(&calls.step, &rows, None)?),
            ("group_id", take(&calls.group_id, &rows, None)?),
            ("rollout_id", take(&calls.rollout_id, &rows, None)?),
            ("call_id", take(&calls.call_id, &rows, None)?),
            ("build_id", repeated(pass.build_id, count)),
            ("position", Arc::new(self.positions.finish()) as ArrayRef),
            ("length", Arc::new(self.lengths.finish())),
            ("reason", Arc::new(reasons.finish())),
            ("derivation_id", repeated(pass.derivation_id, count)),
            ("created_at", times(pass.created_at, count)),
        ]);
        table_batch(table("exclusions")?, count, columns).map(Some)
    }
}

/// The number of the piece in row `index` of a batch of pieces.
pub(super) fn number_of(batch: &RecordBatch, index: usize) -> Result<u32> {
    Ok(column(batch, "number")?.as_primitive::<UInt32Type>().value(index))
}

/// A column of one text.
pub(super) fn repeated(text: &str, rows: usize) -> ArrayRef {
    Arc::new(arrow::array::StringArray::from(vec![text; rows]))
}
