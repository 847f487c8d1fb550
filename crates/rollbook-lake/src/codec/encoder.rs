//! Logical calls in any order to stored rows, in bounded memory.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use arrow::array::{Array, AsArray, Int32Array, RecordBatch, StringArray, StringBuilder};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type};
use rollbook_schema::digest::{bytes_digest, hex_digest, token_digest};
use sha2::{Digest, Sha256};

use super::columns::{Tokens, integer_at, integers, text_at, texts};
use super::fault::{Fault, Result};
use super::physical::{Columns, assemble, digests, stored_schema};
use super::request::{Parts, split};
use super::rollout::{Call, Rollout};

/// Half a SHA-256 of the columns that name a rollout's rows in a file.
type Key = [u8; 16];

/// Encodes calls as prefix deltas, with one radix tree of contexts for each rollout in hand.
///
/// Rows count per (`run_id`, `step`, `group_id`, `rollout_id`), the order of rows in a file, so that what is read as
/// one sequence was written as one; fill step and group before encoding. Beside the trees, which a limit bounds, the
/// encoder keeps 20 bytes (about 40 with the map) for every rollout it has met: the number of its rows.
///
/// ```
/// use rollbook_lake::codec::{Decoder, Encoder};
/// # use std::sync::Arc;
/// # use arrow::array::{Int32Array, ListArray, RecordBatch};
/// # use arrow::datatypes::Int32Type;
/// # let prompts = ListArray::from_iter_primitive::<Int32Type, _, _>(vec![Some(vec![Some(1), Some(2)]), Some(vec![Some(1), Some(2), Some(3)])]);
/// # let calls = RecordBatch::try_from_iter([("prompt_token_ids", Arc::new(prompts) as _)]).unwrap();
/// let stored = Encoder::new(1_000_000).encode(&calls)?;
/// let base_len = stored.column_by_name("base_len").unwrap();
/// assert_eq!(base_len.as_ref(), &Int32Array::from(vec![None, Some(2)]));
/// # Ok::<(), rollbook_lake::Error>(())
/// ```
#[derive(Debug)]
pub struct Encoder {
    limit: usize,
    held: usize,
    clock: u64,
    next_index: HashMap<Key, i32>,
    open: HashMap<Key, Open>,
    by_use: BTreeMap<u64, Key>,
}

#[derive(Debug)]
struct Open {
    rollout: Rollout,
    /// `stored_index` of the tree's first row.
    first: i32,
    used_at: u64,
}

impl Encoder {
    /// Creates an encoder whose trees hold about `max_cached_tokens` tokens (four bytes each, all overhead counted).
    ///
    /// Whatever the limit, what is encoded is exact; a rollout forgotten meanwhile goes on without bases.
    pub fn new(max_cached_tokens: usize) -> Self {
        Self {
            limit: max_cached_tokens,
            held: 0,
            clock: 0,
            next_index: HashMap::new(),
            open: HashMap::new(),
            by_use: BTreeMap::new(),
        }
    }

    /// Encodes logical calls (rows in any order, of any rollouts) as stored rows in the same order.
    ///
    /// Columns that the codec does not know pass through; those that the batch lacks are taken as null.
    pub fn encode(&mut self, logical: &RecordBatch) -> crate::Result<RecordBatch> {
        Ok(self.encode_rows(logical)?)
    }

    fn encode_rows(&mut self, logical: &RecordBatch) -> Result<RecordBatch> {
        let calls = Calls::read(logical)?;
        let rows = logical.num_rows();
        let mut columns = Columns::with_capacity(rows);
        let mut requests = Requests::with_capacity(rows);
        let mut prompt_digests = Vec::with_capacity(rows);
        let mut output_digests = Vec::with_capacity(rows);
        for row in 0..rows {
            let parts = requests.push(text_at(calls.request.as_ref(), row), calls.has_request_digest(row));
            let call = calls.call(row, parts.as_ref());
            let key = calls.key(row);
            let stored_index = self.count(key)?;
            let open = self.open(key, stored_index);
            let delta = open.rollout.push(&call)?;
            columns.push(stored_index, open.first, &call, &delta)?;
            prompt_digests.push(delta.prompt_digest.as_ref().map(hex_digest));
            output_digests.push(call.output.filter(|_| calls.wants_output_digest(row)).map(token_digest));
            self.forget(key);
        }
        let mut columns = columns.finish()?;
        columns.push(("prompt_digest", digests(calls.prompt_digest.as_ref(), &prompt_digests)));
        columns.push(("output_digest", digests(calls.output_digest.as_ref(), &output_digests)));
        columns.push(("request_digest", digests(calls.request_digest.as_ref(), &requests.digests)));
        columns.push(("request", Arc::new(requests.texts.finish())));
        assemble(logical, &["prompt_token_ids"], columns, &stored_schema(), true)
    }

    /// Counts one more row of a rollout.
    fn count(&mut self, key: Key) -> Result<i32> {
        let next = self.next_index.entry(key).or_insert(0);
        let index = *next;
        *next = index.checked_add(1).ok_or(Fault::TooLarge("a rollout has more than 2^31 - 1 calls"))?;
        Ok(index)
    }

    /// The rollout's tree, a new one where there is none.
    fn open(&mut self, key: Key, stored_index: i32) -> &mut Open {
        self.clock += 1;
        let clock = self.clock;
        let new = || Open { rollout: Rollout::new(true), first: stored_index, used_at: clock };
        let open = self.open.entry(key).or_insert_with(new);
        self.by_use.remove(&open.used_at);
        self.by_use.insert(clock, key);
        // What it holds is counted again when the row is in.
        self.held = self.held.saturating_sub(if open.used_at == clock { 0 } else { open.rollout.held() });
        open.used_at = clock;
        open
    }

    /// Counts what the rollout just used holds, and drops those used longest ago until all keep to the limit.
    fn forget(&mut self, key: Key) {
        self.held += self.open.get(&key).map_or(0, |open| open.rollout.held());
        while self.held > self.limit {
            let Some((_, oldest)) = self.by_use.pop_first() else {
                return;
            };
            let held = self.open.remove(&oldest).map_or(0, |open| open.rollout.held());
            self.held = self.held.saturating_sub(held);
        }
    }
}

/// The columns the encoder reads.
struct Calls {
    names: [Option<StringArray>; 4],
    call_id: Option<StringArray>,
    call_index: Option<Int32Array>,
    parent_call_id: Option<StringArray>,
    prompt: Option<Tokens>,
    output: Option<Tokens>,
    prompt_digest: Option<StringArray>,
    output_digest: Option<StringArray>,
    request: Option<StringArray>,
    request_digest: Option<StringArray>,
}

impl Calls {
    fn read(batch: &RecordBatch) -> Result<Self> {
        Ok(Self {
            names: [texts(batch, "run_id")?, step(batch)?, texts(batch, "group_id")?, texts(batch, "rollout_id")?],
            call_id: texts(batch, "call_id")?,
            call_index: integers(batch, "call_index")?,
            parent_call_id: texts(batch, "parent_call_id")?,
            prompt: Tokens::read(batch, "prompt_token_ids")?,
            output: Tokens::read(batch, "output_token_ids")?,
            prompt_digest: texts(batch, "prompt_digest")?,
            output_digest: texts(batch, "output_digest")?,
            request: texts(batch, "request")?,
            request_digest: texts(batch, "request_digest")?,
        })
    }

    fn call<'a>(&'a self, row: usize, parts: Option<&'a Parts<'a>>) -> Call<'a> {
        Call {
            id: text_at(self.call_id.as_ref(), row),
            index: integer_at(self.call_index.as_ref(), row),
            parent: text_at(self.parent_call_id.as_ref(), row),
            prompt: self.prompt.as_ref().and_then(|prompt| prompt.get(row)),
            output: self.output.as_ref().and_then(|output| output.get(row)),
            messages: parts.map(|parts| parts.messages.as_slice()),
            wants_digest: text_at(self.prompt_digest.as_ref(), row).is_none(),
        }
    }

    fn wants_output_digest(&self, row: usize) -> bool {
        text_at(self.output_digest.as_ref(), row).is_none()
    }

    fn has_request_digest(&self, row: usize) -> bool {
        text_at(self.request_digest.as_ref(), row).is_some()
    }

    fn key(&self, row: usize) -> Key {
        let mut hasher = Sha256::new();
        for name in &self.names {
            // The length keeps neighbours apart, and null from the empty text.
            let text = text_at(name.as_ref(), row);
            hasher.update(text.map_or(u64::MAX, |text| text.len() as u64).to_le_bytes());
            hasher.update(text.unwrap_or_default());
        }
        let digest: [u8; 32] = hasher.finalize().into();
        let mut key = Key::default();
        key.copy_from_slice(&digest[..16]);
        key
    }
}

/// The steps as text, like the other columns that name a rollout.
fn step(batch: &RecordBatch) -> Result<Option<StringArray>> {
    let Some(column) = batch.column_by_name("step") else {
        return Ok(None);
    };
    let fault = || Fault::Type { name: "step", found: column.data_type().clone() };
    if column.data_type() != &DataType::Null && column.as_primitive_opt::<Int64Type>().is_none() {
        return Err(fault());
    }
    cast(column, &DataType::Utf8)?.as_string_opt::<i32>().cloned().map(Some).ok_or_else(fault)
}

/// The requests as stored, and their digests where none was given.
struct Requests {
    texts: StringBuilder,
    digests: Vec<Option<String>>,
}

impl Requests {
    fn with_capacity(rows: usize) -> Self {
        Self { texts: StringBuilder::new(), digests: Vec::with_capacity(rows) }
    }

    fn push<'a>(&mut self, text: Option<&'a str>, has_digest: bool) -> Option<Parts<'a>> {
        self.digests.push(text.filter(|_| !has_digest).map(|text| bytes_digest(text.as_bytes())));
        let parts = text.and_then(split);
        match &parts {
            Some(parts) => self.texts.append_value([parts.head, "[]", parts.tail].concat()),
            None => self.texts.append_option(text),
        }
        parts
    }
}
