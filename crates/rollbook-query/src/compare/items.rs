//! The numbers of one side, one by one, on their way through a sort.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use arrow::array::{
    Array, ArrayRef, AsArray, Float32Array, Float64Array, Int32Array, RecordBatch, StringArray, UInt32Array,
    UInt64Array,
};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Float32Type, Float64Type, Int32Type, Schema, SchemaRef};
use datafusion::execution::SendableRecordBatchStream;
use futures::TryStreamExt;

use crate::build::{column, list, pair_key, text};
use crate::error::{Error, Result};
use crate::external_sort::ExternalSort;
use crate::recipe::{Upstream, quoted};
use crate::session::Session;

/// What a value belongs to, the coarsest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Level {
    Rollout,
    Call,
    Token,
}

impl Level {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Rollout => "rollout",
            Self::Call => "call",
            Self::Token => "token",
        }
    }
}

/// Whose a value is: run and rollout, call in it, output offset; what does not apply is 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) rollout: u128,
    pub(super) call: u128,
    pub(super) position: u32,
}

pub(super) static ITEMS: LazyLock<SchemaRef> = LazyLock::new(|| {
    let half = |name: &str| Field::new(name, DataType::UInt64, false);
    Arc::new(Schema::new(vec![
        half("rollout_high"),
        half("rollout_low"),
        half("call_high"),
        half("call_low"),
        Field::new("position", DataType::UInt32, false),
        Field::new("value", DataType::Float64, false),
        Field::new("weight", DataType::Float64, false),
    ]))
});

/// Items in a batch.
const BATCH: usize = 8192;

/// Items on their way into the sort.
pub(super) struct Sorting {
    order: ExternalSort,
    keys: Vec<Key>,
    values: Vec<f64>,
    weights: Vec<f64>,
}

impl Sorting {
    pub(super) fn start(session: &Session) -> Result<Self> {
        let columns = ["rollout_high", "rollout_low", "call_high", "call_low", "position"];
        let order = ExternalSort::in_session(session, &ITEMS, &columns, BATCH)?;
        Ok(Self { order, keys: Vec::new(), values: Vec::new(), weights: Vec::new() })
    }

    async fn push(&mut self, key: Key, value: f64, weight: f64) -> Result<()> {
        self.keys.push(key);
        self.values.push(value);
        self.weights.push(weight);
        if self.keys.len() >= BATCH { self.flush().await } else { Ok(()) }
    }

    async fn flush(&mut self) -> Result<()> {
        let keys = std::mem::take(&mut self.keys);
        #[expect(clippy::cast_possible_truncation, reason = "the two halves of a key")]
        let half = |of: fn(&Key) -> u128| -> [ArrayRef; 2] {
            let high: UInt64Array = keys.iter().map(|key| (of(key) >> 64) as u64).collect();
            let low: UInt64Array = keys.iter().map(|key| of(key) as u64).collect();
            [Arc::new(high), Arc::new(low)]
        };
        let mut columns: Vec<ArrayRef> = Vec::with_capacity(7);
        columns.extend(half(|key| key.rollout));
        columns.extend(half(|key| key.call));
        columns.push(Arc::new(keys.iter().map(|key| key.position).collect::<UInt32Array>()));
        columns.push(Arc::new(Float64Array::from(std::mem::take(&mut self.values))));
        columns.push(Arc::new(Float64Array::from(std::mem::take(&mut self.weights))));
        let batch = RecordBatch::try_new(Arc::clone(&ITEMS), columns)?;
        // A sort that ended early says why at its end.
        let _goes_on = batch.num_rows() == 0 || self.order.push(batch).await?;
        Ok(())
    }

    pub(super) async fn finish(mut self) -> Result<SendableRecordBatchStream> {
        self.flush().await?;
        self.order.finish().await
    }

    /// Reads values at the level they have.
    pub(super) async fn read_values(&mut self, session: &Session, rows: &Upstream, level: Level) -> Result<()> {
        if level == Level::Token {
            return self.read_tokens(session, rows).await;
        }
        let mut stream = session.stream(&rows.rows_sql("run_id, rollout_id, call_id, value")).await?;
        while let Some(batch) = stream.try_next().await? {
            let ids = Ids::of(&batch)?;
            let values = cast(column(&batch, "value")?, &DataType::Float64)?;
            let values = values.as_primitive::<Float64Type>();
            for row in 0..batch.num_rows() {
                if let Some(key) = ids.key(row).filter(|_| values.is_valid(row)) {
                    self.push(key, values.value(row), 0.0).await?;
                }
            }
        }
        Ok(())
    }

    async fn read_tokens(&mut self, session: &Session, rows: &Upstream) -> Result<()> {
        let mut stream = session.stream(&rows.rows_sql("run_id, rollout_id, call_id, token_values")).await?;
        while let Some(batch) = stream.try_next().await? {
            let ids = Ids::of(&batch)?;
            let lists = list(&batch, "token_values")?;
            for row in (0..batch.num_rows()).filter(|row| lists.is_valid(*row)) {
                let Some(key) = ids.key(row) else {
                    continue;
                };
                let values = cast(&lists.value(row), &DataType::Float64)?;
                let values = values.as_primitive::<Float64Type>();
                for token in (0..values.len()).filter(|token| values.is_valid(*token)) {
                    let position = u32::try_from(token).unwrap_or(u32::MAX);
                    self.push(Key { position, ..key }, values.value(token), 0.0).await?;
                }
            }
        }
        Ok(())
    }

    /// Reads values of rollouts or calls and gives them to every call or output token that is theirs.
    pub(super) async fn read_spread(
        &mut self,
        session: &Session,
        rows: &Upstream,
        from: Level,
        to: Level,
    ) -> Result<()> {
        let mut held: HashMap<(u128, u128), f64> = HashMap::new();
        let mut stream = session.stream(&rows.rows_sql("run_id, rollout_id, call_id, value")).await?;
        while let Some(batch) = stream.try_next().await? {
            let ids = Ids::of(&batch)?;
            let values = cast(column(&batch, "value")?, &DataType::Float64)?;
            let values = values.as_primitive::<Float64Type>();
            for row in (0..batch.num_rows()).filter(|row| values.is_valid(*row)) {
                if let Some(key) = ids.key(row) {
                    held.insert((key.rollout, key.call), values.value(row));
                }
            }
        }
        let mut calls = session.stream("SELECT run_id, rollout_id, call_id, output_len FROM calls").await?;
        while let Some(batch) = calls.try_next().await? {
            let ids = Ids::of(&batch)?;
            let lengths = cast(column(&batch, "output_len")?, &DataType::Int32)?;
            let lengths = lengths.as_primitive::<Int32Type>();
            for row in (0..batch.num_rows()).filter(|row| lengths.is_valid(*row)) {
                let Some(key) = ids.key(row) else {
                    continue;
                };
                let call = if from == Level::Rollout { 0 } else { key.call };
                let Some(value) = held.get(&(key.rollout, call)).copied() else {
                    continue;
                };
                let tokens = if to == Level::Token { lengths.value(row).unsigned_abs() } else { 1 };
                for position in 0..tokens {
                    self.push(Key { position, ..key }, value, 0.0).await?;
                }
            }
        }
        Ok(())
    }

    /// Reads the trained tokens of a build's rows.
    pub(super) async fn read_build(&mut self, session: &Session, build: &str) -> Result<()> {
        let sql = format!(
            "SELECT run_id, segments, advantages, loss_weights FROM samples \
             WHERE build_id = {} AND segments IS NOT NULL AND NOT coalesce(is_pad, false)",
            quoted(build)
        );
        let mut stream = session.stream(&sql).await?;
        while let Some(batch) = stream.try_next().await? {
            let runs = text(&batch, "run_id")?;
            let (segments, advantages) = (list(&batch, "segments")?, list(&batch, "advantages")?);
            let weights = list(&batch, "loss_weights")?;
            for row in 0..batch.num_rows() {
                let advantages = if advantages.is_valid(row) {
                    Some(cast(&advantages.value(row), &DataType::Float32)?.as_primitive::<Float32Type>().clone())
                } else {
                    None
                };
                let weights = if weights.is_valid(row) {
                    Some(cast(&weights.value(row), &DataType::Float64)?.as_primitive::<Float64Type>().clone())
                } else {
                    None
                };
                let parts = Segments::of(&segments.value(row))?;
                self.read_row(runs.value(row), &parts, advantages.as_ref(), weights.as_ref()).await?;
            }
        }
        Ok(())
    }

    async fn read_row(
        &mut self,
        run: &str,
        parts: &Segments,
        advantages: Option<&Float32Array>,
        weights: Option<&Float64Array>,
    ) -> Result<()> {
        for part in parts.trained() {
            let key = Key {
                rollout: pair_key(run, parts.rollout_id.value(part)),
                call: pair_key(parts.rollout_id.value(part), parts.call_id.value(part)),
                position: 0,
            };
            let (start, from) = (parts.start.value(part).unsigned_abs(), parts.source_start.value(part).unsigned_abs());
            for token in 0..parts.length.value(part).unsigned_abs() {
                let at = (start + token) as usize;
                let advantage = advantages.filter(|values| at < values.len() && values.is_valid(at));
                let weight = weights.filter(|values| at < values.len() && values.is_valid(at));
                let advantage = advantage.map_or(f64::NAN, |values| f64::from(values.value(at)));
                let weight = weight.map_or(f64::NAN, |values| values.value(at));
                self.push(Key { position: from + token, ..key }, advantage, weight).await?;
            }
        }
        Ok(())
    }
}

/// Ids of a batch's rows.
pub(super) struct Ids {
    pub(super) run: StringArray,
    pub(super) rollout: StringArray,
    pub(super) call: StringArray,
}

impl Ids {
    pub(super) fn of(batch: &RecordBatch) -> Result<Self> {
        Ok(Self { run: text(batch, "run_id")?, rollout: text(batch, "rollout_id")?, call: text(batch, "call_id")? })
    }

    /// Returns whose a row is; nothing where it does not say.
    pub(super) fn key(&self, row: usize) -> Option<Key> {
        if self.run.is_null(row) || self.rollout.is_null(row) {
            return None;
        }
        let rollout = self.rollout.value(row);
        let call = if self.call.is_valid(row) { pair_key(rollout, self.call.value(row)) } else { 0 };
        Some(Key { rollout: pair_key(self.run.value(row), rollout), call, position: 0 })
    }
}

/// Segments of one row.
struct Segments {
    rollout_id: StringArray,
    call_id: StringArray,
    source: StringArray,
    start: Int32Array,
    length: Int32Array,
    source_start: Int32Array,
    is_trained: ArrayRef,
}

impl Segments {
    fn of(segments: &ArrayRef) -> Result<Self> {
        let structs = segments.as_struct_opt().ok_or_else(|| Error::corrupt("samples.segments holds no structs"))?;
        let field = |name: &str| {
            structs.column_by_name(name).ok_or_else(|| Error::corrupt(format!("a segment has no field {name}")))
        };
        let text =
            |name: &str| -> Result<StringArray> { Ok(cast(field(name)?, &DataType::Utf8)?.as_string::<i32>().clone()) };
        let integer = |name: &str| -> Result<Int32Array> {
            Ok(cast(field(name)?, &DataType::Int32)?.as_primitive::<Int32Type>().clone())
        };
        Ok(Self {
            rollout_id: text("rollout_id")?,
            call_id: text("call_id")?,
            source: text("source")?,
            start: integer("start")?,
            length: integer("length")?,
            source_start: integer("source_start")?,
            is_trained: Arc::clone(field("trained")?),
        })
    }

    /// The segments of output tokens that train and say whose they are.
    fn trained(&self) -> impl Iterator<Item = usize> + '_ {
        let trained = self.is_trained.as_boolean();
        (0..self.start.len()).filter(move |part| {
            trained.is_valid(*part)
                && trained.value(*part)
                && self.rollout_id.is_valid(*part)
                && self.call_id.is_valid(*part)
                && self.source.is_valid(*part)
                && self.source.value(*part) == "output"
        })
    }
}
