//! Stored rows back to logical calls, streaming over whole rollouts.

use std::sync::Arc;

use arrow::array::{ArrayRef, ListArray, RecordBatch, StringArray, StringBuilder};
use arrow::buffer::NullBuffer;
use arrow::datatypes::DataType;

use super::chain::Piece;
use super::contexts::{Contexts, Stored};
use super::fault::{Fault, Result};
use super::physical::{assemble, item_field, shown_schema, token_lists};
use super::request::template;

/// Most tokens in one list column, and most bytes in one string column: their offsets are int32.
const OFFSET_MAX: usize = i32::MAX as usize;

/// Rows rebuilt by a [`Decoder`].
#[derive(Debug, Clone)]
pub struct Decoded {
    /// The rows in the order of the logical schema: without physical columns, with whole prompts and requests if wanted.
    pub batch: RecordBatch,
    /// The whole prompts, if wanted; also column `prompt_token_ids` of the batch.
    pub prompt_token_ids: Option<ListArray>,
    /// The whole requests, if wanted; also column `request` of the batch.
    pub request: Option<StringArray>,
}

/// Rebuilds prompts and requests from stored rows that come in file order.
///
/// The decoder keeps the rows of the current rollout as shares of the batches' memory, and builds a prompt only into
/// the batch it returns. A row of another rollout, or whose `stored_index` does not rise, starts afresh.
#[derive(Debug)]
pub struct Decoder {
    want_prompts: bool,
    want_requests: bool,
    contexts: Contexts,
    found: Vec<Piece>,
}

/// A piece of a prompt: of a row's context, or of what the batch at hand already holds.
enum Source {
    Row(Piece),
    Batch { at: usize, len: usize },
}

impl Decoder {
    /// Creates a decoder that rebuilds `prompt_token_ids`, `request`, or both.
    pub fn new(want_prompts: bool, want_requests: bool) -> Self {
        Self { want_prompts, want_requests, contexts: Contexts::default(), found: Vec::new() }
    }

    /// Returns the stored columns that a decoder with the same wishes reads.
    pub fn columns(want_prompts: bool, want_requests: bool) -> Vec<&'static str> {
        let mut names = vec!["run_id", "rollout_id", "stored_index", "base_index"];
        if want_prompts {
            names.extend(["base_len", "prompt_suffix", "prompt_len", "output_token_ids"]);
        }
        if want_requests {
            names.extend(["messages_base_len", "messages_suffix", "request"]);
        }
        names
    }

    /// Rebuilds all rows of a batch; fails where they do not fit one.
    pub fn decode(&mut self, physical: &RecordBatch) -> crate::Result<Decoded> {
        let (decoded, next) = self.decode_up_to(physical, 0, usize::MAX)?;
        if next < physical.num_rows() {
            let fault = "prompts or requests of a batch exceed 2^31 - 1 items; decode fewer rows at once";
            return Err(Fault::TooLarge(fault).into());
        }
        Ok(decoded)
    }

    /// Rebuilds rows from `from_row` on until prompts and requests together would exceed `max_bytes`, but at least one.
    ///
    /// Returns them with the row to go on from. Rows before `from_row` must have been decoded by this decoder.
    pub fn decode_up_to(
        &mut self,
        physical: &RecordBatch,
        from_row: usize,
        max_bytes: usize,
    ) -> crate::Result<(Decoded, usize)> {
        Ok(self.decode_rows(physical, from_row, max_bytes)?)
    }

    fn decode_rows(&mut self, physical: &RecordBatch, from: usize, max_bytes: usize) -> Result<(Decoded, usize)> {
        let stored = Stored::read(physical, self.want_prompts, self.want_requests)?;
        let start = self.contexts.len();
        let (mut next, mut tokens, mut text) = (from, 0, 0);
        while next < physical.num_rows() {
            let candidate = self.contexts.measure(&stored, next)?;
            let (more_tokens, more_text) = (tokens + candidate.prompt_len, text + candidate.request_bytes);
            let fits = more_tokens <= OFFSET_MAX && more_text <= OFFSET_MAX;
            if next > from && (!fits || more_tokens.saturating_mul(4).saturating_add(more_text) > max_bytes) {
                break;
            }
            if !fits {
                return Err(Fault::TooLarge("one prompt or request exceeds 2^31 - 1 items"));
            }
            self.contexts.add(candidate);
            (next, tokens, text) = (next + 1, more_tokens, more_text);
        }
        let rows = physical.slice(from.min(next), next - from.min(next));
        let prompts = if self.want_prompts { Some(self.prompts(start, tokens)?) } else { None };
        let requests = if self.want_requests { Some(self.requests(&stored, from, start, text)?) } else { None };
        self.contexts.trim();
        Ok((decoded(&rows, prompts, requests)?, next))
    }

    /// Builds the prompts of the rows from `start` on, `total` tokens in all.
    fn prompts(&mut self, start: usize, total: usize) -> Result<ListArray> {
        let rows = self.contexts.len() - start;
        let mut tokens = Vec::with_capacity(total);
        let mut offsets = Vec::with_capacity(rows + 1);
        offsets.push(0);
        let mut known = Vec::with_capacity(rows);
        let mut sources = Vec::new();
        for at in start..self.contexts.len() {
            self.sources(at, start, &offsets, &mut sources);
            for source in sources.drain(..).rev() {
                match source {
                    Source::Row(piece) => self.contexts.append_piece(piece, &mut tokens),
                    Source::Batch { at, len } => tokens.extend_from_within(at..at + len),
                }
            }
            let row = self.contexts.row(at);
            tokens.extend_from_slice(&row.suffix);
            known.push(row.is_known);
            // The rows were measured to fit.
            offsets.push(i32::try_from(tokens.len()).unwrap_or(i32::MAX));
        }
        let item = item_field(&shown_schema(), "prompt_token_ids", DataType::Int32);
        token_lists(item, tokens, offsets, NullBuffer::from(known))
    }

    /// Lists where the part of prompt `at` that its base gives can be copied from, the last piece first.
    ///
    /// A prompt that lies in the batch already is one piece, so that a long chain is walked once a batch.
    fn sources(&self, at: usize, start: usize, offsets: &[i32], sources: &mut Vec<Source>) {
        let link = self.contexts.link(u32::try_from(at).unwrap_or(u32::MAX));
        let (mut base, mut len) = (link.base, link.base_len);
        while len > 0 {
            let link = self.contexts.link(base);
            let placed = (base as usize).checked_sub(start).and_then(|place| offsets.get(place));
            if let Some(at) = placed.and_then(|offset| usize::try_from(*offset).ok()) {
                let suffix = self.contexts.row(base as usize).suffix.len();
                let prompt = link.base_len + suffix;
                if len > prompt {
                    sources.push(Source::Row(Piece { at: base, from: suffix, to: suffix + len - prompt }));
                }
                sources.push(Source::Batch { at, len: len.min(prompt) });
                return;
            }
            if len > link.base_len {
                sources.push(Source::Row(Piece { at: base, from: 0, to: len - link.base_len }));
                len = link.base_len;
            }
            base = link.base;
        }
    }

    /// Builds the requests of the rows from place `start` on, which are rows `from..` of the batch.
    fn requests(&mut self, stored: &Stored, from: usize, start: usize, total: usize) -> Result<StringArray> {
        let rows = self.contexts.len() - start;
        let mut requests = StringBuilder::with_capacity(rows, total);
        let mut text = String::new();
        for place in 0..rows {
            let request = stored.request(from + place);
            let mut messages = 0;
            text.clear();
            let each = |message: &str| {
                text.push_str(if messages == 0 { "[" } else { "," });
                text.push_str(message);
                messages += 1;
            };
            if !self.contexts.for_messages(start + place, &mut self.found, each) {
                requests.append_option(request);
                continue;
            }
            text.push_str(if messages == 0 { "[]" } else { "]" });
            let around = request.and_then(template);
            let (head, tail) = around.ok_or_else(|| stored.corrupt(from + place, "a request has no messages"))?;
            requests.append_value([head, &text, tail].concat());
        }
        Ok(requests.finish())
    }
}

/// Columns of the stored form alone, which no logical row has.
const PHYSICAL: [&str; 6] =
    ["stored_index", "base_index", "base_len", "prompt_suffix", "messages_base_len", "messages_suffix"];

fn decoded(rows: &RecordBatch, prompts: Option<ListArray>, requests: Option<StringArray>) -> Result<Decoded> {
    let mut columns: Vec<(&'static str, ArrayRef)> = Vec::new();
    columns.extend(prompts.clone().map(|prompts| ("prompt_token_ids", Arc::new(prompts) as ArrayRef)));
    columns.extend(requests.clone().map(|requests| ("request", Arc::new(requests) as ArrayRef)));
    let batch = assemble(rows, &PHYSICAL, columns, &shown_schema(), false)?;
    Ok(Decoded { batch, prompt_token_ids: prompts, request: requests })
}
