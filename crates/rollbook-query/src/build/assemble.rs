//! Rows of `samples`, put together from the sorted pieces of their calls.
//!
//! ```text
//! call 0   prompt  output
//! call 1   prompt ─────────────── output           the last call's prompt and output hold the whole sequence
//! row      |p0....|o0....|p1.....|o1....|  next sequence …
//! segment   prompt output prompt  output           p1 starts at the length of call 0's context
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Float32Array, Int32Array, Int64Array, ListArray, RecordBatch, StringArray,
};
use arrow::datatypes::{Float32Type, Float64Type, Int32Type, UInt32Type};

use crate::build::objective::TrainedTokens;
use crate::build::pieces::repeated;
use crate::build::plan::{Plan, RowKey};
use crate::build::row_columns::{list_columns, segments};
use crate::error::{Error, Result};
use crate::recipe::{table, table_batch, times};

/// Tokens after which a batch of rows is handed on.
const BATCH_TOKENS: usize = 256 * 1024;

/// Everything rows need beside their pieces.
pub(super) struct Assembly<'a> {
    pub(super) plan: &'a Plan,
    pub(super) trained: &'a TrainedTokens,
    pub(super) run_id: &'a str,
    pub(super) build_id: &'a str,
    pub(super) derivation_id: &'a str,
    pub(super) created_at: i64,
}

/// One call of the sequence being put together.
struct Piece {
    number: u32,
    group_id: Option<String>,
    advantage: Advantage,
    prompt: Option<Int32Array>,
    output: Int32Array,
    logprobs: Option<Float32Array>,
    trained: BooleanArray,
}

/// The advantage of a call's trained tokens.
enum Advantage {
    One(f64),
    Each(Float32Array),
    None,
}

impl Advantage {
    /// Returns that of an output token, as it is stored.
    fn of(&self, token: usize) -> Option<f32> {
        match self {
            // Values are rounded to float only here, where they are stored.
            #[expect(clippy::cast_possible_truncation, reason = "stored advantages are floats")]
            Self::One(value) => Some(*value as f32),
            Self::Each(values) => (token < values.len() && values.is_valid(token)).then(|| values.value(token)),
            Self::None => None,
        }
    }
}

/// One segment of a row.
#[derive(Debug, Clone, Copy)]
pub(super) struct Segment {
    pub(super) start: i32,
    pub(super) length: i32,
    pub(super) sequence_index: i32,
    pub(super) call: u32,
    pub(super) is_output: bool,
    pub(super) source_start: i32,
    pub(super) trained: bool,
}

/// One row.
#[derive(Default)]
pub(super) struct Row {
    key: Option<RowKey>,
    pub(super) token_ids: Vec<i32>,
    pub(super) position_ids: Vec<i32>,
    pub(super) action_mask: Vec<bool>,
    pub(super) logprobs: Vec<Option<f32>>,
    pub(super) advantages: Vec<f32>,
    pub(super) loss_weights: Vec<f64>,
    pub(super) segments: Vec<Segment>,
    rollout: Shared<u32>,
    group: Shared<Option<String>>,
}

/// A value as long as all that were seen are equal.
#[derive(Debug, Default)]
enum Shared<T> {
    #[default]
    Unseen,
    One(T),
    Several,
}

impl<T: PartialEq> Shared<T> {
    fn see(&mut self, value: T) {
        match self {
            Self::Unseen => *self = Self::One(value),
            Self::One(seen) if *seen == value => {}
            Self::One(_) => *self = Self::Several,
            Self::Several => {}
        }
    }

    fn one(&self) -> Option<&T> {
        match self {
            Self::One(value) => Some(value),
            Self::Unseen | Self::Several => None,
        }
    }
}

/// Puts rows together; pieces come in the order of their numbers.
pub(super) struct Assembler<'a> {
    assembly: Assembly<'a>,
    next: u32,
    pieces: Vec<Piece>,
    row: Row,
    done: Vec<Row>,
    done_tokens: usize,
}

impl<'a> Assembler<'a> {
    pub(super) fn new(assembly: Assembly<'a>) -> Self {
        Self { assembly, next: 0, pieces: Vec::new(), row: Row::default(), done: Vec::new(), done_tokens: 0 }
    }

    /// Takes the piece in row `index` of a batch of pieces, with the values of its tokens where they have their own;
    /// returns rows where enough of them are done.
    pub(super) fn push(
        &mut self,
        batch: &RecordBatch,
        index: usize,
        values: Option<Float32Array>,
    ) -> Result<Option<RecordBatch>> {
        let mut piece = Piece::read(batch, index)?;
        if let Some(values) = values {
            piece.advantage = Advantage::Each(values);
        }
        if piece.number != self.next {
            return Err(Error::corrupt(format!("piece {} comes where {} is due", piece.number, self.next)));
        }
        self.next += 1;
        let (sequence, place) = self.assembly.plan.sequence_of(piece.number);
        let mut ready = None;
        if self.pieces.is_empty() && self.row.key != Some(place.row) {
            self.end_row();
            if self.done_tokens >= BATCH_TOKENS {
                ready = self.take_batch()?;
            }
            self.row.key = Some(place.row);
        }
        let is_last = self.next == self.assembly.plan.calls_of(sequence).end;
        self.pieces.push(piece);
        if is_last {
            let pieces = std::mem::take(&mut self.pieces);
            self.append_sequence(&pieces)?;
        }
        Ok(ready)
    }

    /// Ends the last row and returns the rows not yet handed on.
    pub(super) fn finish(mut self) -> Result<Option<RecordBatch>> {
        if self.next != self.assembly.plan.call_count() {
            return Err(Error::corrupt(format!(
                "{} of {} planned calls came through the sort",
                self.next,
                self.assembly.plan.call_count()
            )));
        }
        self.end_row();
        self.take_batch()
    }

    fn end_row(&mut self) {
        let row = std::mem::take(&mut self.row);
        if row.key.is_some() {
            self.done_tokens += row.token_ids.len();
            self.done.push(row);
        }
    }

    fn append_sequence(&mut self, pieces: &[Piece]) -> Result<()> {
        let Some(last) = pieces.last() else {
            return Ok(());
        };
        let plan = self.assembly.plan;
        let (_, sequence) = plan.sequence_of(last.number);
        let prompt = last.prompt.as_ref().ok_or_else(|| Error::corrupt("the last call lost its prompt"))?;
        let mut tokens = prompt.values().to_vec();
        tokens.extend_from_slice(last.output.values());
        check_extensions(plan, pieces, &tokens)?;

        // A denominator below 2^53 makes this the double nearest to the exact coefficient.
        let weight = 1.0 / self.assembly.trained.denominator(sequence.row, sequence.rollout);
        let row = &mut self.row;
        row.rollout.see(sequence.rollout);
        let mut context = 0;
        for piece in pieces {
            let (prompt_len, output_len) = plan.lengths(piece.number);
            row.group.see(piece.group_id.clone());
            row.append_context(piece.number, sequence.index, context, prompt_len - context);
            row.append_output(piece, sequence.index, weight)?;
            context = prompt_len + output_len;
        }
        row.token_ids.append(&mut tokens);
        row.position_ids.extend(0..int(context));
        Ok(())
    }

    fn take_batch(&mut self) -> Result<Option<RecordBatch>> {
        let rows = std::mem::take(&mut self.done);
        self.done_tokens = 0;
        if rows.is_empty() { Ok(None) } else { self.batch(&rows).map(Some) }
    }

    fn batch(&self, rows: &[Row]) -> Result<RecordBatch> {
        let assembly = &self.assembly;
        let table = table("samples")?;
        let count = rows.len();
        let mut columns = self.places(rows);
        columns.extend(list_columns(rows)?);
        let schema = table.physical();
        let segments = segments(assembly.plan, rows, schema.field_with_name("segments")?)?;
        columns.extend([
            ("run_id", repeated(assembly.run_id, count)),
            ("build_id", repeated(assembly.build_id, count)),
            ("epoch", Arc::new(Int32Array::from(vec![0; count])) as ArrayRef),
            ("is_pad", Arc::new(BooleanArray::from(vec![false; count]))),
            ("segments", segments),
            ("derivation_id", repeated(assembly.derivation_id, count)),
            ("created_at", times(assembly.created_at, count)),
        ]);
        table_batch(table, count, columns)
    }

    /// The columns that say where rows stand and, where it is one, whose they are.
    fn places(&self, rows: &[Row]) -> BTreeMap<&'static str, ArrayRef> {
        let plan = self.assembly.plan;
        let keys: Vec<RowKey> = rows.iter().filter_map(|row| row.key).collect();
        let integers =
            |value: fn(&RowKey) -> i32| -> ArrayRef { Arc::new(keys.iter().map(value).collect::<Int32Array>()) };
        let steps = keys.iter().map(|key| key.optimizer_step);
        let steps: ArrayRef = Arc::new(steps.collect::<Int64Array>());
        let rollouts = rows.iter().map(|row| row.rollout.one().map(|one| plan.rollout_id(*one)));
        let groups = rows.iter().map(|row| row.group.one().and_then(|one| one.as_deref()));
        BTreeMap::from([
            ("step", Arc::clone(&steps)),
            ("optimizer_step", steps),
            ("group_id", Arc::new(groups.collect::<StringArray>()) as ArrayRef),
            ("rollout_id", Arc::new(rollouts.collect::<StringArray>())),
            ("micro_batch", integers(|key| key.micro_batch)),
            ("rank", integers(|key| key.rank)),
            ("row_index", integers(|key| key.row_index)),
        ])
    }
}

impl Piece {
    fn read(batch: &RecordBatch, index: usize) -> Result<Self> {
        let column = |name: &str| -> Result<&ArrayRef> {
            batch.column_by_name(name).ok_or_else(|| Error::corrupt(format!("pieces lost column {name}")))
        };
        let item = |name: &str| -> Result<Option<ArrayRef>> {
            let list: &ListArray = column(name)?.as_list();
            Ok(list.is_valid(index).then(|| list.value(index)))
        };
        let ids = |array: ArrayRef| array.as_primitive::<Int32Type>().clone();
        let groups = column("group_id")?.as_string::<i32>();
        let advantages = column("advantage")?.as_primitive::<Float64Type>();
        let output = item("output")?.map_or_else(|| Int32Array::from(Vec::<i32>::new()), ids);
        let trained = item("trained")?.map(|array| array.as_boolean().clone());
        Ok(Self {
            number: column("number")?.as_primitive::<UInt32Type>().value(index),
            group_id: groups.is_valid(index).then(|| groups.value(index).to_owned()),
            advantage: if advantages.is_valid(index) {
                Advantage::One(advantages.value(index))
            } else {
                Advantage::None
            },
            prompt: item("prompt")?.map(ids),
            logprobs: item("logprobs")?.map(|array| array.as_primitive::<Float32Type>().clone()),
            trained: trained
                .filter(|trained| trained.len() == output.len())
                .ok_or_else(|| Error::corrupt("a piece has another number of verdicts than tokens"))?,
            output,
        })
    }
}

/// Every call's own tokens must stand in the sequence where its lengths say.
fn check_extensions(plan: &Plan, pieces: &[Piece], tokens: &[i32]) -> Result<()> {
    for (place, piece) in pieces.iter().enumerate() {
        let (prompt_len, output_len) = plan.lengths(piece.number);
        let given = piece.prompt.as_ref().map_or(prompt_len, Int32Array::len);
        if given != prompt_len || piece.output.len() != output_len {
            return Err(Error::corrupt(format!("call {} has other lengths than recorded", plan.call_id(piece.number))));
        }
        let context = prompt_len + output_len;
        let own = piece.prompt.iter().flat_map(|prompt| prompt.values().iter());
        let shared = own.zip(tokens).take_while(|(own, token)| own == token).count();
        let is_same = (piece.prompt.is_none() || shared == prompt_len)
            && tokens.get(prompt_len..context) == Some(piece.output.values());
        // The next call is the one whose prompt fails to hold this context.
        if !is_same && place + 1 < pieces.len() {
            return Err(plan.no_extension(pieces[place + 1].number, shared));
        }
    }
    Ok(())
}

impl Row {
    fn append_context(&mut self, call: u32, sequence_index: i32, source_start: usize, length: usize) {
        if length == 0 {
            return;
        }
        let start = int(self.action_mask.len());
        let end = self.action_mask.len() + length;
        self.segments.push(Segment {
            start,
            length: int(length),
            sequence_index,
            call,
            is_output: false,
            source_start: int(source_start),
            trained: false,
        });
        self.action_mask.resize(end, false);
        self.logprobs.resize(end, None);
        self.advantages.resize(end, 0.0);
        self.loss_weights.resize(end, 0.0);
    }

    fn append_output(&mut self, piece: &Piece, sequence_index: i32, weight: f64) -> Result<()> {
        for token in 0..piece.output.len() {
            let trained = piece.trained.value(token);
            let start = int(self.action_mask.len());
            match self.segments.last_mut() {
                Some(last) if token > 0 && last.trained == trained => last.length += 1,
                _ => self.segments.push(Segment {
                    start,
                    length: 1,
                    sequence_index,
                    call: piece.number,
                    is_output: true,
                    source_start: int(token),
                    trained,
                }),
            }
            let logprob = piece.logprobs.as_ref().filter(|values| trained && values.is_valid(token));
            self.action_mask.push(trained);
            self.logprobs.push(logprob.map(|values| values.value(token)));
            let advantage = if trained { piece.advantage.of(token) } else { Some(0.0) };
            self.advantages.push(advantage.ok_or_else(|| Error::corrupt("a trained token has lost its credit"))?);
            self.loss_weights.push(if trained { weight } else { 0.0 });
        }
        Ok(())
    }
}

fn int(length: usize) -> i32 {
    i32::try_from(length).unwrap_or(i32::MAX)
}
