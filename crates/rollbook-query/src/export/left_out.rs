//! Rows of a build that an export leaves out because they are quarantined, or hold nothing that is not.

use std::collections::BTreeMap;

use arrow::array::{Array, AsArray, BooleanArray, RecordBatch};
use arrow::compute::{cast, filter_record_batch};
use arrow::datatypes::DataType;
use futures::TryStreamExt;

use crate::error::{Error, Result};
use crate::export::lookup::Build;
use crate::quarantine::{Quarantine, RowPlace};
use crate::recipe::quoted;
use crate::session::Session;

/// Which rows go out.
#[derive(Default)]
pub(super) struct LeftOut {
    quarantine: Quarantine,
    build: String,
    /// Rows of which every trained call is quarantined.
    rows: Vec<RowPlace>,
    /// How many rows were left out so far.
    pub(super) count: u64,
}

impl LeftOut {
    /// Reads what stands for a build.
    ///
    /// # Errors
    ///
    /// A row in which quarantined calls train beside others: what is left of it would have other weights.
    pub(super) async fn of(session: &Session, build: &Build) -> Result<Self> {
        let quarantine = Quarantine::of_run(session, &build.run_id).await?;
        let mut left_out = Self { quarantine, build: build.id.clone(), rows: Vec::new(), count: 0 };
        if left_out.quarantine.has_calls() {
            left_out.rows = left_out.whole_rows(session, build).await?;
        }
        Ok(left_out)
    }

    async fn whole_rows(&self, session: &Session, build: &Build) -> Result<Vec<RowPlace>> {
        let sql = format!(
            "SELECT step, epoch, micro_batch, rank, row_index, coalesce(segment['rollout_id'], rollout_id) AS rollout_id,
                segment['call_id'] AS call_id
             FROM (
                SELECT step, epoch, micro_batch, rank, row_index, rollout_id, unnest(segments) AS segment FROM samples
                WHERE run_id = {} AND build_id = {}
             ) WHERE segment['source'] = 'output'",
            quoted(&build.run_id),
            quoted(&build.id)
        );
        // Of each row: calls that are quarantined, calls that are not, and one of the former.
        let mut found: BTreeMap<RowPlace, (u64, u64, String)> = BTreeMap::new();
        let mut segments = session.stream(&sql).await?;
        while let Some(batch) = segments.try_next().await? {
            let text = |name: &str| -> Result<_> {
                let column = batch.column_by_name(name).ok_or_else(|| Error::corrupt("the scan lost a column"))?;
                Ok(cast(column, &DataType::Utf8)?.as_string::<i32>().clone())
            };
            let (rollouts, calls) = (text("rollout_id")?, text("call_id")?);
            for (row, place) in RowPlace::of(&batch)?.into_iter().enumerate() {
                let value = |texts: &arrow::array::StringArray| {
                    if texts.is_valid(row) { texts.value(row).to_owned() } else { String::new() }
                };
                let (rollout, call) = (value(&rollouts), value(&calls));
                let counts = found.entry(place).or_default();
                if self.quarantine.has_call(&rollout, &call) {
                    counts.0 += 1;
                    counts.2 = call;
                } else {
                    counts.1 += 1;
                }
            }
        }
        let mut rows = Vec::new();
        for (place, (quarantined, others, call)) in found {
            match (quarantined, others) {
                (0, _) => {}
                (_, 0) => rows.push(place),
                _ if self.quarantine.has_row(&self.build, &place) => {}
                _ => {
                    return Err(Error::invalid(format!(
                        "row {} of build {} holds the quarantined call {call} beside others: build again without it, \
                         quarantine the row, or give --include-quarantined",
                        place.row_index.map_or_else(|| "?".to_owned(), |row| row.to_string()),
                        self.build
                    )));
                }
            }
        }
        Ok(rows)
    }

    /// The rows of a batch that go out.
    pub(super) fn keep(&mut self, batch: &RecordBatch) -> Result<RecordBatch> {
        let places = RowPlace::of(batch)?;
        let kept: BooleanArray = places
            .iter()
            .map(|place| Some(!self.quarantine.has_row(&self.build, place) && !self.rows.contains(place)))
            .collect();
        self.count += (kept.len() - kept.true_count()) as u64;
        Ok(filter_record_batch(batch, &kept)?)
    }
}
