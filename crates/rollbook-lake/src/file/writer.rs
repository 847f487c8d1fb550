//! Writes a table's stored rows to Parquet files on the store.
//!
//! ```text
//! batches, sorted -> | run A          | run B |        a file holds one run
//!                    | f1      | f2   | f3    |        and ends at a rollout end once it is large
//!                    | g | g | g      | g     |        row groups end at rollout ends where one fits
//! ```
//!
//! Memory: the encoded pages of the open row group (about [`WriterLimits::row_group_bytes`], four times that where one
//! rollout is larger), the rows that are being encoded while the next are made, and, while it goes up, that row group once
//! more in parts of 8 MiB. Small files are one PUT.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use bytes::Bytes;
use object_store::ObjectStore;
use object_store::buffered::BufWriter;
use object_store::path::Path;
use parquet::file::properties::WriterProperties;
use rollbook_schema::Table;
use tokio::io::AsyncWriteExt;
use uuid::Uuid;

use crate::error::{Error, Kind, Result};
use crate::file::DataFile;
use crate::file::encoder::{Encoder, Encoding};
use crate::file::footer::whole_rollouts;
use crate::file::order::{Border, Borders, OrderCheck};
use crate::file::properties::{properties, requires_order};
use crate::file::stats::{StatsBuilder, ranges_of_stats};
use crate::store::store_error;

/// Below this a file is one PUT; above, it goes up in parts of this size.
const PART_BYTES: usize = 8 << 20;
/// Parts in flight.
const PARTS_IN_FLIGHT: usize = 4;
/// Rows are handed to the encoder in pieces of about this size, so that sizes are known in time.
const PIECE_BYTES: usize = 4 << 20;
/// A row group that finds no rollout end grows to this many times its target.
const OVERSIZE: usize = 4;

/// How large files and row groups become.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriterLimits {
    /// A row group ends at the first rollout end after this many encoded bytes.
    pub row_group_bytes: usize,
    /// Or after this many rows: a file is read by as many threads as it has row groups.
    pub row_group_rows: usize,
    /// A file ends at the first rollout end after this many bytes.
    pub file_bytes: usize,
}

impl Default for WriterLimits {
    fn default() -> Self {
        Self { row_group_bytes: 16 << 20, row_group_rows: 128 << 10, file_bytes: 256 << 20 }
    }
}

/// Writes batches of one table into as many files as they need.
///
/// Batches hold the table's stored columns in the schema's order, sorted by [`crate::sort_columns`]; calls out of order
/// are refused. Nothing is visible before the files are committed.
pub struct TableWriter {
    store: Arc<dyn ObjectStore>,
    table: &'static Table,
    schema: SchemaRef,
    limits: WriterLimits,
    properties: Option<WriterProperties>,
    borders: Borders,
    open: Option<OpenFile>,
    files: Vec<DataFile>,
}

struct OpenFile {
    path: String,
    encoding: Encoding,
    /// Whether the next rows begin a row group.
    ends_group: bool,
    upload: BufWriter,
    uploaded: u64,
    stats: StatsBuilder,
    order: OrderCheck,
    /// Whether no rollout went on from one row group into the next so far.
    is_whole: bool,
}

impl TableWriter {
    pub(crate) fn new(store: Arc<dyn ObjectStore>, table: &'static Table, limits: WriterLimits) -> Self {
        let schema = table.physical();
        let borders = Borders::new(&schema);
        Self { store, table, schema, limits, properties: None, borders, open: None, files: Vec::new() }
    }

    /// Writes rows.
    pub async fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        let batch = self.conform(batch)?;
        let borders = self.borders.of(&batch)?;
        let piece_rows = piece_rows(&batch);
        let mut start = 0;
        while start < borders.len() {
            self.cut(borders[start]).await?;
            let end = piece_end(&borders, start, piece_rows);
            self.append(batch.slice(start, end - start)).await?;
            start = end;
        }
        Ok(())
    }

    /// Closes the last file and returns all of them, in the order they were written.
    pub async fn finish(mut self) -> Result<Vec<DataFile>> {
        self.close().await?;
        Ok(self.files)
    }

    /// Drops what is not finished; files already complete stay on the store, named by nothing.
    pub async fn abort(mut self) -> Result<()> {
        match self.open.take() {
            Some(mut open) => {
                // What is under way may fail; there is nothing left to keep.
                open.encoding.idle().await.ok();
                open.upload.abort().await.map_err(|error| store_error(error, "abort an upload", &open.path))
            }
            None => Ok(()),
        }
    }

    /// Gives the batch the table's own schema, which checks types and nulls.
    fn conform(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        let columns = batch.columns().to_vec();
        RecordBatch::try_new(SchemaRef::clone(&self.schema), columns).map_err(|source| {
            Error::new(Kind::Invalid, "rows do not fit the table's stored columns")
                .with("table", &self.table.name)
                .with("cause", &source)
                .with_source(source)
        })
    }

    /// Ends the row group or the file where the next row allows it and the sizes ask for it.
    async fn cut(&mut self, border: Border) -> Result<()> {
        let Some(open) = &mut self.open else {
            return Ok(());
        };
        open.send().await?;
        let encoder = open.encoding.idle().await?;
        let (group, rows) = (encoder.group_bytes(), encoder.group_rows());
        let total = usize::try_from(open.uploaded).unwrap_or(usize::MAX).saturating_add(group);
        let may_end = border != Border::Inside;
        if border == Border::Run || (may_end && total >= self.limits.file_bytes) {
            return self.close().await;
        }
        let is_full = may_end && (group >= self.limits.row_group_bytes || rows >= self.limits.row_group_rows);
        if is_full || group >= self.limits.row_group_bytes.saturating_mul(OVERSIZE) {
            open.is_whole &= may_end;
            open.ends_group = true;
        }
        Ok(())
    }

    async fn append(&mut self, rows: RecordBatch) -> Result<()> {
        if self.open.is_none() {
            self.open = Some(self.start()?);
        }
        let Some(open) = &mut self.open else {
            return Ok(());
        };
        open.order.update(&rows)?;
        if requires_order(self.table) && !open.order.is_sorted() {
            return Err(Error::new(Kind::Invalid, "rows are not in the order of a file")
                .with("table", &self.table.name)
                .with("order", crate::sort_columns(self.table).join(", "))
                .with_remedy("sort them ascending with nulls last"));
        }
        open.stats.update(&rows);
        let ends_group = std::mem::take(&mut open.ends_group);
        open.encoding.begin(rows, ends_group).await
    }

    fn start(&mut self) -> Result<OpenFile> {
        let properties = match &self.properties {
            Some(properties) => properties.clone(),
            None => self.properties.insert(properties(self.table, &self.schema)?).clone(),
        };
        let path = format!("{}/part-{}.parquet", self.table.name, Uuid::new_v4());
        let encoding = Encoding::new(Encoder::new(&self.schema, properties)?);
        let upload = BufWriter::with_capacity(Arc::clone(&self.store), Path::from(path.as_str()), PART_BYTES)
            .with_max_concurrency(PARTS_IN_FLIGHT);
        let fields: Vec<_> = self.schema.fields().iter().map(AsRef::as_ref).collect();
        Ok(OpenFile {
            path,
            encoding,
            ends_group: false,
            upload,
            uploaded: 0,
            stats: StatsBuilder::new(self.table, &fields),
            order: OrderCheck::new(self.table, &self.schema)?,
            is_whole: requires_order(self.table),
        })
    }

    async fn close(&mut self) -> Result<()> {
        let Some(mut open) = self.open.take() else {
            return Ok(());
        };
        open.send().await?;
        let encoder = open.encoding.idle().await?;
        let is_whole = open.is_whole && encoder.has_ended_group();
        open.encoding.finish(is_whole.then(whole_rollouts)).await?;
        open.send().await?;
        open.upload.shutdown().await.map_err(|error| upload_error(error, &open.path))?;
        self.files.push(described(&open)?);
        Ok(())
    }
}

impl OpenFile {
    /// Waits for the encoder and sends what it has finished.
    async fn send(&mut self) -> Result<()> {
        let mut bytes = Bytes::from(self.encoding.idle().await?.take_bytes());
        self.uploaded += bytes.len() as u64;
        while !bytes.is_empty() {
            let part = bytes.split_to(bytes.len().min(PART_BYTES));
            self.upload.put(part).await.map_err(|error| store_error(error, "upload", &self.path))?;
        }
        Ok(())
    }
}

fn described(open: &OpenFile) -> Result<DataFile> {
    let stats = open.stats.finish();
    let ranges = ranges_of_stats(&stats)?;
    Ok(DataFile {
        path: open.path.clone(),
        size: open.uploaded,
        rows: ranges.rows,
        run_id: ranges.run_id,
        step: ranges.step,
        group_id: ranges.group_id,
        step_nulls: ranges.step_nulls,
        group_nulls: ranges.group_nulls,
        sorted: open.order.is_sorted(),
        max_prompt_len: ranges.max_prompt_len,
        stats,
        ..DataFile::default()
    })
}

fn upload_error(error: std::io::Error, path: &str) -> Error {
    match error.downcast::<object_store::Error>() {
        Ok(error) => store_error(error, "upload", path),
        Err(error) => Error::new(Kind::Unavailable, "cannot upload a file")
            .with("path", path)
            .with("cause", &error)
            .with_source(error),
    }
}

/// Rows that make about [`PIECE_BYTES`] of memory.
fn piece_rows(batch: &RecordBatch) -> usize {
    let per_row = (batch.get_array_memory_size() / batch.num_rows().max(1)).max(1);
    (PIECE_BYTES / per_row).max(1)
}

/// Where the piece that begins at `start` ends: at the next border after `rows` rows, never past a run, and at the
/// latest after four times as many, so that a rollout of any length stays within the bound.
fn piece_end(borders: &[Border], start: usize, rows: usize) -> usize {
    let last = borders.len().min(start.saturating_add(rows.saturating_mul(OVERSIZE)));
    for (end, border) in borders.iter().enumerate().take(last).skip(start + 1) {
        if *border == Border::Run || (end - start >= rows && *border == Border::Rollout) {
            return end;
        }
    }
    last
}
