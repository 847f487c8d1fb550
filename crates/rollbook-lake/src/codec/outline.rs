//! Whether a rollout's stored rows are as good as they can be, judged without a token.

use std::collections::HashMap;

use arrow::array::{Int32Array, RecordBatch, StringArray};

use super::columns::{integer_at, integers, text_at, texts};
use super::fault::Result;
use super::rebase::canonical_key;

/// Returns whether [`rebase_rollout`](super::rebase_rollout) could find better bases or more prefix lengths in the
/// rows of one rollout.
///
/// It reads no tokens: rows qualify that are not numbered from 0 in canonical order, that lack a base though an earlier
/// known context may offer one, or whose `parent_prefix_len` is null though the parent is known here.
pub fn needs_rebase(rows: &[RecordBatch]) -> crate::Result<bool> {
    let tables = rows.iter().map(Outlines::read).collect::<Result<Vec<_>>>()?;
    let rows: Vec<Outline<'_>> = tables.iter().flat_map(Outlines::rows).collect();
    Ok(!is_numbered(&rows) || lacks_base(&rows) || lacks_prefix(&rows))
}

struct Outlines {
    call_id: Option<StringArray>,
    parent_call_id: Option<StringArray>,
    call_index: Option<Int32Array>,
    stored_index: Option<Int32Array>,
    base_index: Option<Int32Array>,
    prompt_len: Option<Int32Array>,
    output_len: Option<Int32Array>,
    parent_prefix_len: Option<Int32Array>,
    rows: usize,
}

/// One row, as far as its names and lengths tell.
struct Outline<'a> {
    call_id: Option<&'a str>,
    parent_call_id: Option<&'a str>,
    call_index: Option<i32>,
    stored_index: Option<i32>,
    base_index: Option<i32>,
    prompt_len: Option<i32>,
    output_len: Option<i32>,
    parent_prefix_len: Option<i32>,
}

impl Outlines {
    fn read(batch: &RecordBatch) -> Result<Self> {
        Ok(Self {
            call_id: texts(batch, "call_id")?,
            parent_call_id: texts(batch, "parent_call_id")?,
            call_index: integers(batch, "call_index")?,
            stored_index: integers(batch, "stored_index")?,
            base_index: integers(batch, "base_index")?,
            prompt_len: integers(batch, "prompt_len")?,
            output_len: integers(batch, "output_len")?,
            parent_prefix_len: integers(batch, "parent_prefix_len")?,
            rows: batch.num_rows(),
        })
    }

    fn rows(&self) -> impl Iterator<Item = Outline<'_>> {
        (0..self.rows).map(|row| Outline {
            call_id: text_at(self.call_id.as_ref(), row),
            parent_call_id: text_at(self.parent_call_id.as_ref(), row),
            call_index: integer_at(self.call_index.as_ref(), row),
            stored_index: integer_at(self.stored_index.as_ref(), row),
            base_index: integer_at(self.base_index.as_ref(), row),
            prompt_len: integer_at(self.prompt_len.as_ref(), row),
            output_len: integer_at(self.output_len.as_ref(), row),
            parent_prefix_len: integer_at(self.parent_prefix_len.as_ref(), row),
        })
    }
}

fn is_numbered(rows: &[Outline<'_>]) -> bool {
    let numbers = rows.iter().map(|row| row.stored_index);
    numbers.eq((0..).take(rows.len()).map(Some)) && rows.is_sorted_by_key(|row| canonical_key(row.call_index))
}

/// Whether a prompt has no base although a context came before it: its rollout's contexts had been forgotten, or the
/// two begin with different tokens.
fn lacks_base(rows: &[Outline<'_>]) -> bool {
    let mut contexts = 0;
    rows.iter().any(|row| {
        let lacks = contexts > 0 && row.prompt_len > Some(0) && row.base_index.is_none();
        contexts += i32::from(row.prompt_len.is_some() && (row.prompt_len > Some(0) || row.output_len > Some(0)));
        lacks
    })
}

/// Whether a prefix length is null though the prompt and the context it is measured against are known.
fn lacks_prefix(rows: &[Outline<'_>]) -> bool {
    let mut by_id = HashMap::new();
    for (place, row) in rows.iter().enumerate() {
        if let Some(id) = row.call_id {
            by_id.entry(id).or_insert(place);
        }
    }
    let mut before = None;
    rows.iter().enumerate().any(|(place, row)| {
        // Rows of one index follow the same call; rows without one follow each other.
        let previous = place.checked_sub(1);
        if row.call_index.is_none() || previous.is_some_and(|previous| rows[previous].call_index != row.call_index) {
            before = previous;
        }
        let parent = row.parent_call_id.map(|parent| by_id.get(parent).copied().filter(|parent| *parent != place));
        let other = parent.unwrap_or(before).map(|other| &rows[other]);
        let is_known = other.is_some_and(|other| other.prompt_len.is_some() && other.output_len.is_some());
        is_known && row.prompt_len.is_some() && row.parent_prefix_len.is_none()
    })
}
