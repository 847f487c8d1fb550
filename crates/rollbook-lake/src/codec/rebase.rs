//! Joining what several epochs or imports wrote of one rollout into one sequence with the best bases.

use arrow::array::{ArrayRef, Int32Array, RecordBatch, StringArray, UInt32Array};
use arrow::compute::{concat_batches, take_record_batch};
use rollbook_schema::digest::{hex_digest, token_digest};

use super::columns::{Tokens, integer_at, integers, text_at, texts};
use super::contexts::{Contexts, Stored};
use super::fault::{Fault, Result};
use super::physical::{Columns, assemble, digests, stored_schema};
use super::rollout::{Call, Rollout};

/// Re-bases the stored rows of one rollout in canonical order, with every `parent_prefix_len` that can be known.
///
/// Rows come epoch after epoch, each with `stored_index` rising. Canonical order is by `call_index`, nulls last, rows of
/// equal index as given. A parent may come after its child; a doubled call id means the first row that has it. Prompts
/// are built one at a time, so the memory needed is that of the rows as stored and of one prompt.
pub fn rebase_rollout(rows: &[RecordBatch]) -> crate::Result<RecordBatch> {
    Ok(rebase(rows)?)
}

fn rebase(rows: &[RecordBatch]) -> Result<RecordBatch> {
    let rows = match rows {
        [] => RecordBatch::new_empty(stored_schema()),
        [rows] => rows.clone(),
        [first, ..] => concat_batches(&first.schema(), rows)?,
    };
    let (contexts, order) = (read_contexts(&rows)?, canonical_order(&rows)?);
    let sorted = if order.is_sorted() { rows } else { take_record_batch(&rows, &UInt32Array::from(order.clone()))? };
    let columns = Rebase::read(&sorted)?.run(contexts, &order)?;
    assemble(&sorted, &[], columns, &stored_schema(), true)
}

/// Reads all rows as given, each against the bases of its own epoch.
fn read_contexts(rows: &RecordBatch) -> Result<Contexts> {
    let stored = Stored::read(rows, true, rows.column_by_name("messages_base_len").is_some())?;
    let mut contexts = Contexts::default();
    for row in 0..rows.num_rows() {
        let candidate = contexts.measure(&stored, row)?;
        contexts.add(candidate);
    }
    Ok(contexts)
}

fn canonical_order(rows: &RecordBatch) -> Result<Vec<u32>> {
    let index = integers(rows, "call_index")?;
    let count = u32::try_from(rows.num_rows()).ok().ok_or(Fault::TooLarge("a rollout has more than 2^32 calls"))?;
    let mut order: Vec<u32> = (0..count).collect();
    order.sort_by_key(|row| canonical_key(integer_at(index.as_ref(), *row as usize)));
    Ok(order)
}

/// Sorts nulls last.
pub(super) fn canonical_key(call_index: Option<i32>) -> (bool, Option<i32>) {
    (call_index.is_none(), call_index)
}

/// The columns of the sorted rows that encoding them again reads.
struct Rebase {
    call_id: Option<StringArray>,
    call_index: Option<Int32Array>,
    parent_call_id: Option<StringArray>,
    output: Option<Tokens>,
    prompt_digest: Option<StringArray>,
    output_digest: Option<StringArray>,
}

impl Rebase {
    fn read(sorted: &RecordBatch) -> Result<Self> {
        Ok(Self {
            call_id: texts(sorted, "call_id")?,
            call_index: integers(sorted, "call_index")?,
            parent_call_id: texts(sorted, "parent_call_id")?,
            output: Tokens::read(sorted, "output_token_ids")?,
            prompt_digest: texts(sorted, "prompt_digest")?,
            output_digest: texts(sorted, "output_digest")?,
        })
    }

    /// Encodes the rows that lie at `order` in `contexts`.
    fn run(&self, mut contexts: Contexts, order: &[u32]) -> Result<Vec<(&'static str, ArrayRef)>> {
        let wants = |row: usize| text_at(self.prompt_digest.as_ref(), row).is_none();
        let hashing = (0..order.len()).any(|row| wants(row) && contexts.row(order[row] as usize).is_known);
        let mut rollout = Rollout::new(hashing);
        let mut columns = Columns::with_capacity(order.len());
        let (mut prompt_digests, mut output_digests) = (Vec::new(), Vec::new());
        let (mut prompt, mut found) = (Vec::new(), Vec::new());
        for (row, at) in order.iter().enumerate() {
            let is_known = contexts.row(*at as usize).is_known;
            prompt.clear();
            contexts.append_prompt(*at, &mut prompt);
            let mut messages = Vec::new();
            let is_split = contexts.for_messages(*at as usize, &mut found, |message| messages.push(message));
            let call = Call {
                id: text_at(self.call_id.as_ref(), row),
                index: integer_at(self.call_index.as_ref(), row),
                parent: text_at(self.parent_call_id.as_ref(), row),
                prompt: is_known.then_some(prompt.as_slice()),
                output: self.output.as_ref().and_then(|output| output.get(row)),
                messages: is_split.then_some(messages.as_slice()),
                wants_digest: wants(row),
            };
            let delta = rollout.push(&call)?;
            let stored_index = i32::try_from(row).ok().ok_or(Fault::TooLarge("a rollout has more than 2^31 calls"))?;
            columns.push(stored_index, 0, &call, &delta)?;
            prompt_digests.push(delta.prompt_digest.as_ref().map(hex_digest));
            let wants_output = text_at(self.output_digest.as_ref(), row).is_none();
            output_digests.push(call.output.filter(|_| wants_output).map(token_digest));
        }
        self.resolve_parents(&rollout, order.len(), &mut columns)?;
        let mut columns = columns.finish()?;
        columns.push(("prompt_digest", digests(self.prompt_digest.as_ref(), &prompt_digests)));
        columns.push(("output_digest", digests(self.output_digest.as_ref(), &output_digests)));
        Ok(columns)
    }

    /// Sets the prefix lengths of rows whose parent came after them.
    fn resolve_parents(&self, rollout: &Rollout, rows: usize, columns: &mut Columns) -> Result<()> {
        for row in 0..rows {
            let parent = text_at(self.parent_call_id.as_ref(), row).and_then(|parent| rollout.find(parent));
            let Some(parent) = parent.filter(|parent| *parent as usize > row) else {
                continue;
            };
            let number = u32::try_from(row).ok().ok_or(Fault::TooLarge("a rollout has more than 2^32 calls"))?;
            columns.set_parent_prefix_len(row, rollout.prefix_len(number, parent))?;
        }
        Ok(())
    }
}
