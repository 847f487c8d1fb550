//! What is known of planned calls without their tokens, and what must hold of it before a row is made.

use arrow::array::{Array, RecordBatch, StringArray};

use crate::build::plan::{Plan, RowKey};
use crate::build::verdict::{integer, is_usable, text};
use crate::error::Result;

/// Narrow facts of one call.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Facts {
    is_seen: bool,
    pub(super) prompt_len: usize,
    pub(super) output_len: usize,
    /// Tokens shared with the context of the call before it in the sequence, where the record says.
    prefix: Option<usize>,
    /// Whether they are that whole context.
    pub(super) is_proven: bool,
}

impl Facts {
    /// Tokens of prompt and output.
    fn context(&self) -> usize {
        self.prompt_len + self.output_len
    }
}

/// The columns that [`Plan::learn`] reads.
pub(super) const COLUMNS: &[&str] = &[
    "call_id",
    "rollout_id",
    "parent_call_id",
    "parent_prefix_len",
    "prompt_exactness",
    "output_exactness",
    "prompt_len",
    "output_len",
];

impl Plan {
    /// Takes the facts of planned calls from a batch of [`COLUMNS`].
    pub(super) fn learn(&mut self, batch: &RecordBatch, accept_assumed: bool) -> Result<()> {
        let (call_ids, rollout_ids) = (text(batch, "call_id")?, text(batch, "rollout_id")?);
        let parents = text(batch, "parent_call_id")?;
        let (prompts, outputs) = (text(batch, "prompt_exactness")?, text(batch, "output_exactness")?);
        let (prompt_len, output_len) = (integer(batch, "prompt_len")?, integer(batch, "output_len")?);
        let prefix_len = integer(batch, "parent_prefix_len")?;
        for row in 0..batch.num_rows() {
            if call_ids.is_null(row) {
                continue;
            }
            let call = call_ids.value(row);
            let Some(number) = self.number(call) else {
                continue;
            };
            let planned = self.rollout_id(self.sequence_of(number).1.rollout);
            let actual = if rollout_ids.is_null(row) { "none" } else { rollout_ids.value(row) };
            if planned != actual {
                return Err(self.wrong(format!("call {call} belongs to rollout {actual}, not to {planned}")));
            }
            if self.facts[number as usize].is_seen {
                return Err(self.wrong(format!(
                    "the run has several calls with the id {call} (rollout {actual}): it cannot be told which to train"
                )));
            }
            let is_exact = is_usable(&prompts, row, accept_assumed) && is_usable(&outputs, row, accept_assumed);
            if !is_exact || prompt_len.is_null(row) || output_len.is_null(row) {
                return Err(self.wrong(format!(
                    "call {call} of rollout {actual} cannot be trained on: its prompt is {}, its output {}",
                    exactness(&prompts, row),
                    exactness(&outputs, row)
                )));
            }
            let follows_parent = parents.is_valid(row) && self.is_before(number, parents.value(row));
            let prefix = (follows_parent && prefix_len.is_valid(row)).then(|| length(prefix_len.value(row)));
            self.facts[number as usize] = Facts {
                is_seen: true,
                prompt_len: length(prompt_len.value(row)),
                output_len: length(output_len.value(row)),
                prefix,
                is_proven: false,
            };
        }
        Ok(())
    }

    fn is_before(&self, call: u32, parent: &str) -> bool {
        let (sequence, _) = self.sequence_of(call);
        call > self.calls_of(sequence).start && self.call_id(call - 1) == parent
    }

    /// Checks the whole plan once the facts are in: every call exists and extends the one before it as far as lengths
    /// can tell, and every row holds its sequences.
    pub(super) fn settle(&mut self, max_tokens: u32) -> Result<()> {
        for call in 0..self.call_count() {
            if !self.facts[call as usize].is_seen {
                return Err(self.wrong(format!("the run has no call {}", self.call_id(call))));
            }
        }
        let mut row: Option<(RowKey, usize)> = None;
        for index in 0..self.sequence_count() {
            let sequence = self.sequence(index);
            let calls = self.calls_of(index);
            for call in calls.clone().skip(1) {
                self.settle_call(call)?;
            }
            let last = calls.end - 1;
            let tokens = self.facts[last as usize].context();
            if tokens > max_tokens as usize {
                return Err(self.wrong(format!(
                    "rollout {}, call {}: a sequence of {tokens} tokens does not fit into max-tokens {max_tokens}",
                    self.rollout_id(sequence.rollout),
                    self.call_id(last)
                )));
            }
            let before = row.filter(|(key, _)| *key == sequence.row).map_or(0, |(_, tokens)| tokens);
            if before + tokens > max_tokens as usize {
                return Err(self.wrong(format!(
                    "{} holds {} tokens, which do not fit into max-tokens {max_tokens}",
                    sequence.row,
                    before + tokens
                )));
            }
            row = Some((sequence.row, before + tokens));
        }
        Ok(())
    }

    fn settle_call(&mut self, call: u32) -> Result<()> {
        let context = self.facts[call as usize - 1].context();
        let facts = &mut self.facts[call as usize];
        facts.is_proven = facts.prefix == Some(context);
        let shared = facts.prefix.unwrap_or(context).min(facts.prompt_len);
        if facts.is_proven || shared >= context {
            return Ok(());
        }
        Err(self.no_extension(call, shared))
    }

    /// The error for a call whose prompt does not begin with the context of the call before it in its sequence.
    pub(super) fn no_extension(&self, call: u32, shared: usize) -> crate::error::Error {
        let (_, sequence) = self.sequence_of(call);
        self.wrong(format!(
            "rollout {}: the prompt of call {} does not extend call {}: they share {shared} of its {} tokens",
            self.rollout_id(sequence.rollout),
            self.call_id(call),
            self.call_id(call - 1),
            self.facts[call as usize - 1].context()
        ))
    }
}

fn length(value: i32) -> usize {
    usize::try_from(value).unwrap_or(0)
}

/// The word of a call's stream, with what would make it usable.
fn exactness(words: &StringArray, row: usize) -> String {
    match if words.is_null(row) { "assumed" } else { words.value(row) } {
        "assumed" => "assumed (taken only where assumed tokens are accepted)".to_owned(),
        word => word.to_owned(),
    }
}
