//! What is quarantined: rollouts, calls and trainer rows that builds and exports leave out.
//!
//! A row of `quarantine` stands until another row with its id has `lifted_at`.

use std::collections::BTreeSet;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int32Type, Int64Type};
use futures::TryStreamExt;

use crate::error::{Error, Result};
use crate::recipe::quoted;
use crate::session::Session;

/// The rows that stand, as a query over `quarantine`.
pub const STANDING: &str = "SELECT * FROM quarantine
WHERE lifted_at IS NULL AND (quarantine_id IS NULL OR quarantine_id NOT IN (
    SELECT quarantine_id FROM quarantine WHERE lifted_at IS NOT NULL AND quarantine_id IS NOT NULL
))";

/// The place of a trainer row in its build; what is null names no place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RowPlace {
    /// Trainer step: trainers number the rows of each step anew.
    pub step: Option<i64>,
    /// Epoch.
    pub epoch: Option<i32>,
    /// Micro-batch.
    pub micro_batch: Option<i32>,
    /// Rank.
    pub rank: Option<i32>,
    /// Row of the build.
    pub row_index: Option<i32>,
}

impl RowPlace {
    /// Whether a row at `other` is meant: what the quarantine does not say is any.
    pub fn means(&self, other: &Self) -> bool {
        // A trainer of one epoch, rank or micro-batch need not number it: none counts as 0.
        let is = |own: Option<i32>, other: Option<i32>| own.is_none_or(|own| own == other.unwrap_or(0));
        self.row_index == other.row_index
            && (self.step.is_none() || self.step == other.step)
            && is(self.epoch, other.epoch)
            && is(self.micro_batch, other.micro_batch)
            && is(self.rank, other.rank)
    }

    /// The places of a batch's rows.
    ///
    /// # Errors
    ///
    /// A batch that lacks a column of the key.
    pub fn of(batch: &RecordBatch) -> Result<Vec<Self>> {
        let numbers = |name: &str| -> Result<Vec<Option<i32>>> {
            let column =
                batch.column_by_name(name).ok_or_else(|| Error::corrupt(format!("the scan lost column {name}")))?;
            let column = cast(column, &DataType::Int32)?;
            let column = column.as_primitive::<Int32Type>();
            Ok((0..column.len()).map(|row| column.is_valid(row).then(|| column.value(row))).collect())
        };
        let (epochs, micro, ranks) = (numbers("epoch")?, numbers("micro_batch")?, numbers("rank")?);
        let steps =
            batch.column_by_name("step").ok_or_else(|| Error::corrupt("the scan lost column step".to_owned()))?;
        let steps = cast(steps, &DataType::Int64)?;
        let steps = steps.as_primitive::<Int64Type>();
        let rows = numbers("row_index")?.into_iter().enumerate();
        let at = |values: &[Option<i32>], row: usize| values.get(row).copied().flatten();
        Ok(rows
            .map(|(row, row_index)| Self {
                step: steps.is_valid(row).then(|| steps.value(row)),
                epoch: at(&epochs, row),
                micro_batch: at(&micro, row),
                rank: at(&ranks, row),
                row_index,
            })
            .collect())
    }
}

/// What is quarantined of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Quarantine {
    /// Rollouts.
    pub rollouts: BTreeSet<String>,
    /// Calls.
    pub calls: BTreeSet<String>,
    /// Rows of builds.
    rows: BTreeSet<(String, RowPlace)>,
}

impl Quarantine {
    /// Reads what stands.
    pub async fn of_run(session: &Session, run: &str) -> Result<Self> {
        let mut quarantine = Self::default();
        if session.snapshot().table("quarantine").files.is_empty() {
            return Ok(quarantine);
        }
        let sql = format!("SELECT * FROM ({STANDING}) WHERE run_id = {}", quoted(run));
        let mut rows = session.stream(&sql).await?;
        while let Some(batch) = rows.try_next().await? {
            quarantine.add(&batch)?;
        }
        Ok(quarantine)
    }

    fn add(&mut self, batch: &RecordBatch) -> Result<()> {
        let texts = |name: &str| -> Result<Vec<Option<String>>> {
            let column =
                batch.column_by_name(name).ok_or_else(|| Error::corrupt(format!("the scan lost column {name}")))?;
            let column = cast(column, &DataType::Utf8)?;
            let column = column.as_string::<i32>();
            Ok((0..column.len()).map(|row| column.is_valid(row).then(|| column.value(row).to_owned())).collect())
        };
        let (levels, rollouts) = (texts("level")?, texts("rollout_id")?);
        let (calls, builds, places) = (texts("call_id")?, texts("build_id")?, RowPlace::of(batch)?);
        for (row, level) in levels.iter().enumerate() {
            let at = |values: &[Option<String>]| values.get(row).cloned().flatten();
            match level.as_deref() {
                Some("rollout") => self.rollouts.extend(at(&rollouts)),
                Some("call") => self.calls.extend(at(&calls)),
                Some("sample") => {
                    self.rows.extend(at(&builds).zip(places.get(row).copied()));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Whether a call is left out, by itself or with its rollout.
    pub fn has_call(&self, rollout: &str, call: &str) -> bool {
        self.calls.contains(call) || self.rollouts.contains(rollout)
    }

    /// Whether any rollout or call is left out.
    pub fn has_calls(&self) -> bool {
        !self.rollouts.is_empty() || !self.calls.is_empty()
    }

    /// Whether a row of a build is left out.
    pub(crate) fn has_row(&self, build: &str, place: &RowPlace) -> bool {
        self.rows.iter().any(|(own, row)| own == build && row.means(place))
    }

    /// A query for the calls of a run that are not left out.
    pub(crate) fn calls_left(&self, run: &str) -> String {
        let none_of = |column: &str, names: &BTreeSet<String>| {
            if names.is_empty() {
                return String::new();
            }
            let names = names.iter().map(|name| quoted(name)).collect::<Vec<_>>().join(", ");
            format!(" AND ({column} IS NULL OR {column} NOT IN ({names}))")
        };
        format!(
            "SELECT * FROM calls WHERE run_id = {}{}{}",
            quoted(run),
            none_of("rollout_id", &self.rollouts),
            none_of("call_id", &self.calls)
        )
    }
}
