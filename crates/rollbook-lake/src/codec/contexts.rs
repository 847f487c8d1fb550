//! What a reader holds of stored rows: who is whose base, and shares of the batches' own memory.
//!
//! A context is never built whole. It is a chain of pieces, each a range of a suffix or an output where Arrow has it:
//!
//! ```text
//!   row 2 = base row 1, first 3 | suffix      pieces of its prompt: row 0 [0..3]  row 2 [0..1]
//! ```

use arrow::array::{Array, Int32Array, ListArray, RecordBatch, StringArray};
use arrow::buffer::ScalarBuffer;

use super::chain::{Link, NO_BASE, Piece, pieces};
use super::columns::{Tokens, integer_at, integers, required, text_at, text_lists, texts};
use super::fault::{Fault, Result};
use super::request::template;

/// The stored columns that decoding reads.
pub(super) struct Stored {
    run_id: Option<StringArray>,
    rollout_id: Option<StringArray>,
    index: Int32Array,
    base_index: Option<Int32Array>,
    prompts: Option<Prompts>,
    requests: Option<Requests>,
}

struct Prompts {
    base_len: Int32Array,
    suffix: Tokens,
    output: Option<Tokens>,
    prompt_len: Option<Int32Array>,
}

struct Requests {
    base_len: Int32Array,
    suffix: Option<(ListArray, StringArray)>,
    request: Option<StringArray>,
}

impl Stored {
    pub(super) fn read(batch: &RecordBatch, want_prompts: bool, want_requests: bool) -> Result<Self> {
        let index = required(integers(batch, "stored_index")?, "stored_index")?;
        let base_index = integers(batch, "base_index")?;
        let prompts = want_prompts.then(|| Prompts::read(batch)).transpose()?;
        let requests = want_requests.then(|| Requests::read(batch)).transpose()?;
        let (run_id, rollout_id) = (texts(batch, "run_id")?, texts(batch, "rollout_id")?);
        Ok(Self { run_id, rollout_id, index, base_index, prompts, requests })
    }

    pub(super) fn request(&self, row: usize) -> Option<&str> {
        text_at(self.requests.as_ref()?.request.as_ref(), row)
    }

    pub(super) fn corrupt(&self, row: usize, reason: &'static str) -> Fault {
        let name = |column: Option<&StringArray>| text_at(column, row).unwrap_or("null").to_owned();
        let (run, rollout) = (name(self.run_id.as_ref()), name(self.rollout_id.as_ref()));
        Fault::Corrupt { run, rollout, stored_index: self.index.value(row).into(), reason }
    }
}

impl Prompts {
    fn read(batch: &RecordBatch) -> Result<Self> {
        Ok(Self {
            base_len: required(integers(batch, "base_len")?, "base_len")?,
            suffix: required(Tokens::read(batch, "prompt_suffix")?, "prompt_suffix")?,
            output: Tokens::read(batch, "output_token_ids")?,
            prompt_len: integers(batch, "prompt_len")?,
        })
    }
}

impl Requests {
    fn read(batch: &RecordBatch) -> Result<Self> {
        Ok(Self {
            base_len: required(integers(batch, "messages_base_len")?, "messages_base_len")?,
            suffix: text_lists(batch, "messages_suffix")?,
            request: texts(batch, "request")?,
        })
    }
}

/// One row of the rollout in hand.
#[derive(Debug)]
pub(super) struct Row {
    stored_index: i32,
    pub(super) is_known: bool,
    pub(super) suffix: ScalarBuffer<i32>,
    pub(super) output: ScalarBuffer<i32>,
    /// The messages that are new; none where the request is whole.
    messages: Option<StringArray>,
}

/// A row that has been checked and measured, not yet added.
pub(super) struct Candidate {
    row: Row,
    first: usize,
    tokens: Link,
    messages: Link,
    opens: Option<(Option<String>, Option<String>)>,
    /// Length of the prompt.
    pub(super) prompt_len: usize,
    /// Bytes of the whole request.
    pub(super) request_bytes: usize,
}

/// The rows read so far, of which those of the rollout in hand (`first..`) can be bases.
#[derive(Debug, Default)]
pub(super) struct Contexts {
    rows: Vec<Row>,
    tokens: Vec<Link>,
    messages: Vec<Link>,
    first: usize,
    rollout: (Option<String>, Option<String>),
    scratch: Vec<Piece>,
}

impl Contexts {
    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    pub(super) fn row(&self, at: usize) -> &Row {
        &self.rows[at]
    }

    /// Link of the context of row `at`; the own items are its suffix, then its output.
    pub(super) fn link(&self, at: u32) -> Link {
        self.tokens[at as usize]
    }

    /// Checks the next stored row and measures what it stands for.
    pub(super) fn measure(&mut self, stored: &Stored, row: usize) -> Result<Candidate> {
        let index = integer_at(Some(&stored.index), row).filter(|index| *index >= 0);
        let index = index.ok_or_else(|| stored.corrupt(row, "a stored row has no number"))?;
        let name = (text_at(stored.run_id.as_ref(), row), text_at(stored.rollout_id.as_ref(), row));
        let is_other = (self.rollout.0.as_deref(), self.rollout.1.as_deref()) != name;
        let restarts = is_other || self.rows.last().is_none_or(|last| index <= last.stored_index);
        let first = if restarts { self.rows.len() } else { self.first };
        let base = match integer_at(stored.base_index.as_ref(), row) {
            Some(base) => {
                Some(self.find(first, base).ok_or_else(|| stored.corrupt(row, "the base is no earlier row"))?)
            }
            None => None,
        };
        let mut found = Candidate {
            row: Row {
                stored_index: index,
                is_known: false,
                suffix: ScalarBuffer::from(Vec::new()),
                output: ScalarBuffer::from(Vec::new()),
                messages: None,
            },
            first,
            tokens: Link::EMPTY,
            messages: Link::EMPTY,
            opens: is_other.then(|| (name.0.map(str::to_owned), name.1.map(str::to_owned))),
            prompt_len: 0,
            request_bytes: 0,
        };
        if let Some(prompts) = &stored.prompts {
            self.measure_prompt(&mut found, prompts, base, row).map_err(|reason| stored.corrupt(row, reason))?;
        }
        if let Some(requests) = &stored.requests {
            self.measure_request(&mut found, requests, base, row).map_err(|reason| stored.corrupt(row, reason))?;
        }
        Ok(found)
    }

    /// Adds a measured row.
    pub(super) fn add(&mut self, candidate: Candidate) {
        self.first = candidate.first;
        self.rollout = candidate.opens.unwrap_or_else(|| std::mem::take(&mut self.rollout));
        self.rows.push(candidate.row);
        self.tokens.push(candidate.tokens);
        self.messages.push(candidate.messages);
    }

    /// Lets go of the rows that can be nobody's base any more.
    pub(super) fn trim(&mut self) {
        let Ok(gone) = u32::try_from(self.first) else {
            return;
        };
        self.rows.drain(..self.first);
        self.tokens.drain(..self.first);
        self.messages.drain(..self.first);
        for link in self.tokens.iter_mut().chain(&mut self.messages) {
            link.base = if link.base == NO_BASE { NO_BASE } else { link.base - gone };
        }
        self.first = 0;
    }

    /// Builds the prompt of row `at` after what `prompt` holds.
    pub(super) fn append_prompt(&mut self, at: u32, prompt: &mut Vec<i32>) {
        let link = self.link(at);
        let mut found = std::mem::take(&mut self.scratch);
        pieces(&self.tokens, link.base, link.base_len, &mut found);
        for piece in found.iter().rev() {
            self.append_piece(*piece, prompt);
        }
        prompt.extend_from_slice(&self.rows[at as usize].suffix);
        self.scratch = found;
    }

    /// Appends a piece of the context of a row.
    pub(super) fn append_piece(&self, piece: Piece, tokens: &mut Vec<i32>) {
        let row = &self.rows[piece.at as usize];
        let suffix = row.suffix.len();
        tokens.extend_from_slice(&row.suffix[piece.from.min(suffix)..piece.to.min(suffix)]);
        tokens.extend_from_slice(&row.output[piece.from.max(suffix) - suffix..piece.to.max(suffix) - suffix]);
    }

    /// Calls `each` for every message of row `at`; gives false where its request is whole.
    pub(super) fn for_messages<'a>(&'a self, at: usize, found: &mut Vec<Piece>, mut each: impl FnMut(&'a str)) -> bool {
        let Some(own) = &self.rows[at].messages else {
            return false;
        };
        let link = self.messages[at];
        pieces(&self.messages, link.base, link.base_len, found);
        for piece in found.iter().rev() {
            let messages = self.rows[piece.at as usize].messages.as_ref();
            for index in piece.from..piece.to {
                messages.map(|messages| messages.value(index)).into_iter().for_each(&mut each);
            }
        }
        (0..own.len()).for_each(|index| each(own.value(index)));
        true
    }

    /// Place of the row with number `stored_index` among those of the rollout that starts at `first`.
    fn find(&self, first: usize, stored_index: i32) -> Option<u32> {
        let rows = self.rows.get(first..)?;
        let place = rows.binary_search_by_key(&stored_index, |row| row.stored_index).ok()?;
        u32::try_from(first + place).ok()
    }

    fn measure_prompt(
        &self,
        found: &mut Candidate,
        prompts: &Prompts,
        base: Option<u32>,
        row: usize,
    ) -> Result<(), &'static str> {
        let base_len = integer_at(Some(&prompts.base_len), row);
        let Some(suffix) = prompts.suffix.share(row) else {
            return if base_len.is_some() { Err("an unknown prompt has a base length") } else { Ok(()) };
        };
        let output = prompts.output.as_ref().and_then(|output| output.share(row));
        let (base, base_len) = match (base, base_len) {
            (None, None) => (NO_BASE, 0),
            (Some(base), Some(len)) => (base, usize::try_from(len).ok().ok_or("the base length is negative")?),
            _ => return Err("a base without its length, or a length without its base"),
        };
        if base_len > self.tokens.get(base as usize).map_or(0, Link::len) {
            return Err("the base length exceeds the base's context");
        }
        let prompt_len = base_len + suffix.len();
        let declared = integer_at(prompts.prompt_len.as_ref(), row);
        if declared.is_some_and(|declared| usize::try_from(declared) != Ok(prompt_len)) {
            return Err("the prompt length differs from that of the prompt rebuilt");
        }
        found.row.is_known = true;
        found.row.output = output.unwrap_or_else(|| ScalarBuffer::from(Vec::new()));
        found.tokens = Link::new(&self.tokens, base, base_len, suffix.len() + found.row.output.len());
        found.row.suffix = suffix;
        found.prompt_len = prompt_len;
        Ok(())
    }

    fn measure_request(
        &mut self,
        found: &mut Candidate,
        requests: &Requests,
        base: Option<u32>,
        row: usize,
    ) -> Result<(), &'static str> {
        let request = text_at(requests.request.as_ref(), row);
        found.request_bytes = request.map_or(0, str::len);
        let base_len = integer_at(Some(&requests.base_len), row);
        let suffix = requests.suffix.as_ref().filter(|(lists, _)| lists.is_valid(row));
        let Some((lists, items)) = suffix else {
            return if base_len.is_some() { Err("a whole request has a number of base messages") } else { Ok(()) };
        };
        request.and_then(template).ok_or("a request without messages has no place for them")?;
        let base_len = usize::try_from(base_len.unwrap_or(0)).ok().ok_or("the number of base messages is negative")?;
        let base = base.unwrap_or(NO_BASE);
        if base_len > self.messages.get(base as usize).map_or(0, Link::len) {
            return Err("the number of base messages exceeds the base's");
        }
        let (from, to) = (lists.value_offsets()[row], lists.value_offsets()[row + 1]);
        let range = (usize::try_from(from), usize::try_from(to - from));
        let (Ok(from), Ok(len)) = range else {
            return Err("the messages are out of place");
        };
        let own = items.slice(from, len);
        if own.null_count() > 0 {
            return Err("a message is null");
        }
        found.messages = Link::new(&self.messages, base, base_len, len);
        let shared = self.message_bytes(found.messages);
        found.request_bytes += shared + bytes(&own, 0, len) + (base_len + len).saturating_sub(1);
        found.row.messages = Some(own);
        Ok(())
    }

    /// Bytes of the messages that a link takes from its base.
    fn message_bytes(&mut self, link: Link) -> usize {
        let mut found = std::mem::take(&mut self.scratch);
        pieces(&self.messages, link.base, link.base_len, &mut found);
        let own =
            |piece: &Piece| self.rows[piece.at as usize].messages.as_ref().map(|own| bytes(own, piece.from, piece.to));
        let total = found.iter().filter_map(own).sum();
        self.scratch = found;
        total
    }
}

fn bytes(texts: &StringArray, from: usize, to: usize) -> usize {
    let offsets = texts.value_offsets();
    usize::try_from(offsets[to] - offsets[from]).unwrap_or(0)
}
