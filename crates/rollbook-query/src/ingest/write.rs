//! The import's last stages: known rows out, revisions in, files up, and again what a lost race changed.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, Int64Array, RecordBatch};
use arrow::compute::filter_record_batch;
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use rollbook_lake::codec::{Decoder, Encoder, needs_rebase, rebase_rollout};
use rollbook_lake::{Change, DataFile, Snapshot, TableWriter};
use rollbook_schema::Table;

use super::known::{Identity, Known, Ranges, Verdict};
use super::record::import_row;
use super::resolve::replace;
use super::rollout_rows::RolloutRows;
use super::spool::{Pending, conform};
use super::{Progress, Publish, TableCount, files};
use crate::error::Result;

/// Bytes of rebuilt prompts at a time while a rollout that lost rows is encoded again.
const REBUILD_BYTES: usize = 32 << 20;

/// The files of one import, uploaded and not yet visible.
pub(super) struct Prepared {
    pub(super) counts: BTreeMap<String, TableCount>,
    tables: BTreeMap<&'static str, Written>,
    rejected: u64,
}

struct Written {
    table: &'static Table,
    files: Vec<DataFile>,
    ranges: Ranges,
    unresolved: bool,
}

type Rows = BoxStream<'static, Result<RecordBatch>>;

impl Publish<'_> {
    /// Writes everything at the first call; after a lost race drops what the winners brought and keeps the other files.
    pub(super) async fn prepare(&mut self, head: &Snapshot) -> Result<Vec<Change>> {
        let prepared = match (self.spooled.take(), self.prepared.take()) {
            (Some(spooled), _) => {
                let mut prepared =
                    Prepared { counts: spooled.counts, tables: BTreeMap::new(), rejected: spooled.rejected };
                for (name, pending) in spooled.sorts {
                    let written = self.first(head, pending, &mut prepared.counts).await?;
                    prepared.tables.insert(name, written);
                }
                prepared
            }
            (None, Some(mut prepared)) => {
                for written in prepared.tables.values_mut() {
                    self.again(head, written, &mut prepared.counts).await?;
                }
                prepared
            }
            (None, None) => return Ok(Vec::new()),
        };
        self.seen = head.tables().flat_map(|(_, state)| state.files.iter().map(|file| file.path.clone())).collect();
        let changes = self.changes_of(&prepared).await?;
        self.prepared = Some(prepared);
        (self.progress)(Progress::Committing);
        Ok(changes)
    }

    async fn first(
        &self,
        head: &Snapshot,
        pending: Pending,
        counts: &mut BTreeMap<String, TableCount>,
    ) -> Result<Written> {
        let Pending { table, sort, ranges, unresolved } = pending;
        let identity = Identity::of(table);
        let known = Known::load(self.lake, &identity, &head.table(&table.name).files, &ranges).await?;
        let schema = table.physical();
        let sorted = sort.finish().await?;
        let rows = sorted.map(move |batch| conform(&batch?, &schema)).boxed();
        let count = counts.entry(table.name.clone()).or_default();
        let files = self.write(table, &identity, &known, rows, count).await?;
        Ok(Written { table, files, ranges, unresolved })
    }

    async fn again(
        &self,
        head: &Snapshot,
        written: &mut Written,
        counts: &mut BTreeMap<String, TableCount>,
    ) -> Result<()> {
        let files = &head.table(&written.table.name).files;
        let won: Vec<_> = files.iter().filter(|file| !self.seen.contains(&file.path)).map(Arc::clone).collect();
        let identity = Identity::of(written.table);
        let known = Known::load(self.lake, &identity, &won, &written.ranges).await?;
        if known.is_empty() {
            return Ok(());
        }
        let rows = self.read_back(written.files.clone());
        let count = counts.entry(written.table.name.clone()).or_default();
        count.added = 0;
        written.files = self.write(written.table, &identity, &known, rows, count).await?;
        Ok(())
    }

    fn read_back(&self, files: Vec<DataFile>) -> Rows {
        let lake = self.lake.clone();
        let streams = futures::stream::iter(files).then(move |file| {
            let lake = lake.clone();
            async move { files::stream(&lake, &file, None, 256).await }
        });
        streams.try_flatten().boxed()
    }

    async fn write(
        &self,
        table: &'static Table,
        identity: &Identity,
        known: &Known,
        mut rows: Rows,
        count: &mut TableCount,
    ) -> Result<Vec<DataFile>> {
        let mut stage = Stage { table, identity, known, writer: self.lake.writer(table), count };
        let mut rollout = RolloutRows::default();
        while let Some(batch) = rows.try_next().await? {
            if table.name == "calls" {
                for part in rollout.take(&batch) {
                    stage.calls(&part).await?;
                }
            } else {
                stage.rows(&batch).await?;
            }
            (self.progress)(Progress::Writing { rows: stage.count.added });
        }
        let last = rollout.finish();
        if !last.is_empty() {
            stage.calls(&last).await?;
        }
        Ok(stage.writer.finish().await?)
    }

    async fn changes_of(&self, prepared: &Prepared) -> Result<Vec<Change>> {
        let mut changes = Vec::new();
        for written in prepared.tables.values() {
            let add: Vec<DataFile> = written
                .files
                .iter()
                .cloned()
                .map(|mut file| {
                    file.unresolved = written.unresolved;
                    file
                })
                .collect();
            if !add.is_empty() {
                changes.push(Change { table: written.table.name.clone(), add, remove: Vec::new() });
            }
        }
        let row = import_row(&self.source, &prepared.counts, prepared.rejected, self.lake.now_us())?;
        if let Some(table) = rollbook_schema::table("imports") {
            let mut writer = self.lake.writer(table);
            writer.write(&row).await?;
            changes.push(Change { table: table.name.clone(), add: writer.finish().await?, remove: Vec::new() });
        }
        Ok(changes)
    }
}

struct Stage<'a> {
    table: &'static Table,
    identity: &'a Identity,
    known: &'a Known,
    writer: TableWriter,
    count: &'a mut TableCount,
}

impl Stage<'_> {
    /// Rows of any table but calls.
    async fn rows(&mut self, batch: &RecordBatch) -> Result<()> {
        if self.known.is_empty() && !self.table.keyed {
            return self.put(batch).await;
        }
        let (keep, revisions) = self.judge(batch)?;
        let batch = if self.table.keyed {
            let revisions: ArrayRef = Arc::new(Int64Array::from(revisions));
            replace(batch, "revision", revisions)?
        } else {
            batch.clone()
        };
        self.put(&filter_record_batch(&batch, &keep)?).await
    }

    /// All calls of one rollout: bases are put in order where they came late, and again where rows drop out.
    async fn calls(&mut self, rows: &[RecordBatch]) -> Result<()> {
        let mut keep = Vec::with_capacity(rows.len());
        if !self.known.is_empty() {
            for batch in rows {
                keep.push(self.judge(batch)?.0);
            }
        }
        if keep.iter().any(|keep| keep.true_count() < keep.len()) {
            let left = encode_again(self.table, rows, &keep)?;
            return if left.is_empty() { Ok(()) } else { self.put(&rebase_rollout(&left)?).await };
        }
        if needs_rebase(rows)? {
            return self.put(&rebase_rollout(rows)?).await;
        }
        for batch in rows {
            self.put(batch).await?;
        }
        Ok(())
    }

    fn judge(&mut self, batch: &RecordBatch) -> Result<(BooleanArray, Vec<i64>)> {
        let mut keep = Vec::with_capacity(batch.num_rows());
        let mut revisions = Vec::with_capacity(batch.num_rows());
        for (key, content) in self.identity.digests(batch)? {
            match self.known.judge(key, &content) {
                Verdict::Known => {
                    self.count.known += 1;
                    keep.push(false);
                    revisions.push(0);
                }
                Verdict::New(revision) => {
                    keep.push(true);
                    revisions.push(revision);
                }
            }
        }
        Ok((BooleanArray::from(keep), revisions))
    }

    async fn put(&mut self, batch: &RecordBatch) -> Result<()> {
        if batch.num_rows() > 0 {
            self.count.added += batch.num_rows() as u64;
            self.writer.write(batch).await?;
        }
        Ok(())
    }
}

/// Rebuilds the prompts of a rollout's rows, leaves out those not kept, and encodes the rest.
fn encode_again(table: &Table, rows: &[RecordBatch], keep: &[BooleanArray]) -> Result<Vec<RecordBatch>> {
    let mut decoder = Decoder::new(true, true);
    let mut encoder = Encoder::new(usize::MAX);
    let mut left = Vec::new();
    for (batch, keep) in rows.iter().zip(keep) {
        let mut from = 0;
        while from < batch.num_rows() {
            let (decoded, next) = decoder.decode_up_to(batch, from, REBUILD_BYTES)?;
            let logical = conform(&decoded.batch, &table.logical())?;
            let kept = filter_record_batch(&logical, &keep.slice(from, next - from))?;
            if kept.num_rows() > 0 {
                left.push(encoder.encode(&kept)?);
            }
            from = next;
        }
    }
    Ok(left)
}
