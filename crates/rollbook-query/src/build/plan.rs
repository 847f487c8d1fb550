//! The plan that a build recipe returns, and the narrow facts of its calls.
//!
//! ```text
//! sequence   0            1        2                sequences lie in the order of their rows
//! call       0  1  2      3        4  5             a call's number says where it comes in that order
//! ```

use std::collections::HashMap;
use std::fmt;

use arrow::array::{Array, ArrayRef, AsArray, Int32Array, Int64Array, ListArray, RecordBatch, StringArray};
use arrow::compute::{concat, concat_batches};
use arrow::datatypes::{Int32Type, Int64Type};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};

use crate::build::facts::Facts;
use crate::build::key_of;
use crate::error::{Error, Result};
use crate::recipe::{OutputColumn, Recipe, conform};
use crate::session::Session;

/// The place of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct RowKey {
    pub(super) optimizer_step: i64,
    pub(super) micro_batch: i32,
    pub(super) rank: i32,
    pub(super) row_index: i32,
}

impl fmt::Display for RowKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "optimizer step {}, micro-batch {}, rank {}, row {}",
            self.optimizer_step, self.micro_batch, self.rank, self.row_index
        )
    }
}

/// Calls of one rollout that follow each other in a row.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sequence {
    pub(super) row: RowKey,
    /// Place in the row, from 0.
    pub(super) index: i32,
    /// Number of the rollout.
    pub(super) rollout: u32,
    /// Number of the first call; the next sequence's first ends it.
    first_call: u32,
}

/// A plan with the facts of its calls.
pub(super) struct Plan {
    pub(super) recipe: String,
    sequences: Vec<Sequence>,
    call_ids: StringArray,
    rollout_ids: Vec<String>,
    numbers: HashMap<u128, u32>,
    pub(super) facts: Vec<Facts>,
    sequence_of: Vec<u32>,
    reservation: MemoryReservation,
}

/// Bytes that the plan holds for one call beside the text of its id.
const BYTES_PER_CALL: usize = 72;

impl Plan {
    /// Reads the rows of a build recipe, sorted by place and index in the row.
    pub(super) fn new(
        session: &Session,
        recipe: &Recipe,
        output: &[OutputColumn],
        batches: &[RecordBatch],
    ) -> Result<Self> {
        let reservation = MemoryConsumer::new("build plan").register(&session.context().runtime_env().memory_pool);
        let mut plan = Self {
            recipe: recipe.name().to_owned(),
            sequences: Vec::new(),
            call_ids: StringArray::from(Vec::<&str>::new()),
            rollout_ids: Vec::new(),
            numbers: HashMap::new(),
            facts: Vec::new(),
            sequence_of: Vec::new(),
            reservation,
        };
        if let Some(first) = batches.first() {
            let rows = concat_batches(&first.schema(), batches)?;
            plan.read(&rows, output)?;
        }
        Ok(plan)
    }

    pub(super) fn wrong(&self, message: impl fmt::Display) -> Error {
        Error::invalid(format!("the plan of recipe {}: {message}", self.recipe))
    }

    fn read(&mut self, rows: &RecordBatch, output: &[OutputColumn]) -> Result<()> {
        let columns = Columns::new(&self.recipe, rows, output)?;
        let mut parts: Vec<StringArray> = Vec::new();
        let mut rollouts: HashMap<String, u32> = HashMap::new();
        let mut calls = 0_u32;
        for row in 0..rows.num_rows() {
            let (key, sequence_index) =
                columns.place(row).map_err(|column| self.wrong(format!("row {row} has a null {column}")))?;
            self.check_sequence_index(key, sequence_index)?;
            let Some((rollout_id, ids)) = columns.calls(row) else {
                return Err(
                    self.wrong(format!("{key}, sequence {sequence_index} has no calls, or none of their rollout"))
                );
            };
            let next = u32::try_from(self.rollout_ids.len()).unwrap_or(u32::MAX);
            let rollout = *rollouts.entry(rollout_id.to_owned()).or_insert(next);
            if rollout == next {
                self.rollout_ids.push(rollout_id.to_owned());
            }
            self.sequences.push(Sequence { row: key, index: sequence_index, rollout, first_call: calls });
            calls = calls.saturating_add(u32::try_from(ids.len()).unwrap_or(u32::MAX));
            parts.push(ids);
        }
        let parts: Vec<&dyn Array> = parts.iter().map(|part| part as &dyn Array).collect();
        if !parts.is_empty() {
            self.call_ids = concat(&parts)?.as_string::<i32>().clone();
        }
        self.number_calls()
    }

    /// Sequences of a row are numbered from 0 without a gap; rows come sorted.
    fn check_sequence_index(&self, key: RowKey, sequence_index: i32) -> Result<()> {
        let expected = match self.sequences.last() {
            Some(last) if last.row == key => last.index + 1,
            _ => 0,
        };
        if sequence_index == expected {
            return Ok(());
        }
        Err(self.wrong(format!("{key} has sequence_index {sequence_index} where {expected} is due")))
    }

    fn number_calls(&mut self) -> Result<()> {
        let calls = self.call_ids.len();
        self.reservation.try_grow(calls * BYTES_PER_CALL + self.call_ids.get_array_memory_size())?;
        self.facts = vec![Facts::default(); calls];
        self.sequence_of.reserve(calls);
        for number in 0..calls {
            if self.call_ids.is_null(number) {
                return Err(self.wrong("a call id is null"));
            }
            let call = self.call_ids.value(number);
            let number = u32::try_from(number)
                .map_err(|source| Error::unsupported("a plan holds at most 4,294,967,295 calls").caused_by(source))?;
            if self.numbers.insert(key_of(call), number).is_some() {
                return Err(self.wrong(format!("call {call} is there twice; a call trains once")));
            }
        }
        for sequence in 0..self.sequences.len() {
            let count = self.calls_of(sequence).len();
            let sequence = u32::try_from(sequence).unwrap_or(u32::MAX);
            self.sequence_of.extend(std::iter::repeat_n(sequence, count));
        }
        Ok(())
    }

    /// Returns the number of sequences.
    pub(super) fn sequence_count(&self) -> usize {
        self.sequences.len()
    }

    /// Returns a sequence.
    pub(super) fn sequence(&self, index: usize) -> Sequence {
        self.sequences[index]
    }

    /// Returns the number of calls.
    pub(super) fn call_count(&self) -> u32 {
        u32::try_from(self.call_ids.len()).unwrap_or(u32::MAX)
    }

    /// Returns whether there is nothing to build.
    pub(super) fn is_empty(&self) -> bool {
        self.sequences.is_empty()
    }

    /// Returns the number of a planned call.
    pub(super) fn number(&self, call_id: &str) -> Option<u32> {
        self.numbers.get(&key_of(call_id)).copied()
    }

    /// Returns the sequence of a call, by its number.
    pub(super) fn sequence_of(&self, call: u32) -> (usize, Sequence) {
        let index = self.sequence_of[call as usize] as usize;
        (index, self.sequences[index])
    }

    /// Returns the numbers of a sequence's calls.
    pub(super) fn calls_of(&self, sequence: usize) -> std::ops::Range<u32> {
        let first = self.sequences[sequence].first_call;
        let end = match self.sequences.get(sequence + 1) {
            Some(next) => next.first_call,
            None => self.call_count(),
        };
        first..end
    }

    /// Returns a call's id.
    pub(super) fn call_id(&self, call: u32) -> &str {
        self.call_ids.value(call as usize)
    }

    /// Returns the number of rollouts.
    pub(super) fn rollout_count(&self) -> u32 {
        u32::try_from(self.rollout_ids.len()).unwrap_or(u32::MAX)
    }

    /// Returns a rollout's id.
    pub(super) fn rollout_id(&self, rollout: u32) -> &str {
        &self.rollout_ids[rollout as usize]
    }

    /// Returns lengths of a call's prompt and output.
    pub(super) fn lengths(&self, call: u32) -> (usize, usize) {
        let facts = self.facts[call as usize];
        (facts.prompt_len, facts.output_len)
    }

    /// Whether the tokens of a call's prompt are needed: those of the last call hold all the others', as far as it is
    /// proven that each extends the one before.
    pub(super) fn needs_prompt(&self, call: u32) -> bool {
        let (sequence, _) = self.sequence_of(call);
        let next = call + 1;
        next == self.calls_of(sequence).end || !self.facts[next as usize].is_proven
    }
}

/// Columns of a plan, in the types of [`crate::recipe`].
struct Columns {
    optimizer_step: Int64Array,
    micro_batch: Option<Int32Array>,
    rank: Option<Int32Array>,
    row_index: Int32Array,
    sequence_index: Int32Array,
    rollout_id: StringArray,
    call_ids: ListArray,
}

impl Columns {
    fn new(recipe: &str, rows: &RecordBatch, output: &[OutputColumn]) -> Result<Self> {
        let find = |name: &str| -> Result<Option<ArrayRef>> {
            match output.iter().find(|column| column.name == name) {
                Some(column) => conform(recipe, rows, column),
                None => Ok(None),
            }
        };
        let must = |name: &str| find(name)?.ok_or_else(|| Error::corrupt(format!("the plan lost column {name}")));
        let integers = |array: &ArrayRef| array.as_primitive::<Int32Type>().clone();
        Ok(Self {
            optimizer_step: must("optimizer_step")?.as_primitive::<Int64Type>().clone(),
            micro_batch: find("micro_batch")?.as_ref().map(integers),
            rank: find("rank")?.as_ref().map(integers),
            row_index: integers(&must("row_index")?),
            sequence_index: integers(&must("sequence_index")?),
            rollout_id: must("rollout_id")?.as_string::<i32>().clone(),
            call_ids: must("call_ids")?.as_list::<i32>().clone(),
        })
    }

    /// Reads a row's place and the sequence's index in it; the error is the column that is null.
    fn place(&self, row: usize) -> Result<(RowKey, i32), &'static str> {
        let integer = |array: &Int32Array, name| {
            if array.is_valid(row) { Ok(array.value(row)) } else { Err(name) }
        };
        if self.optimizer_step.is_null(row) {
            return Err("optimizer_step");
        }
        let row_index = integer(&self.row_index, "row_index")?;
        // One micro-batch a row and one rank, unless the plan says otherwise.
        let micro_batch = self.micro_batch.as_ref().map_or(Ok(row_index), |array| integer(array, "micro_batch"))?;
        let rank = self.rank.as_ref().map_or(Ok(0), |array| integer(array, "rank"))?;
        let key = RowKey { optimizer_step: self.optimizer_step.value(row), micro_batch, rank, row_index };
        Ok((key, integer(&self.sequence_index, "sequence_index")?))
    }

    fn calls(&self, row: usize) -> Option<(&str, StringArray)> {
        if self.rollout_id.is_null(row) || self.call_ids.is_null(row) || self.call_ids.value_length(row) == 0 {
            return None;
        }
        Some((self.rollout_id.value(row), self.call_ids.value(row).as_string::<i32>().clone()))
    }
}
