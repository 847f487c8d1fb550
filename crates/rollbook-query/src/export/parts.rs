//! Part files on their way out: what is encoded of one is hashed and written while it grows.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::SchemaRef;
use object_store::ObjectStore;
use tokio::task::JoinHandle;

use crate::error::{Error, Result};
use crate::export::chunks::Spare;
use crate::export::lookup::Build;
use crate::export::manifest::ExportedFile;
use crate::export::part::PartEncoder;
use crate::export::run::{ExportOptions, Format};
use crate::export::upload::{Upload, Written};
use crate::recipe::table;

/// A part that takes rows.
struct Open {
    path: String,
    rows: u64,
    encoder: PartEncoder,
    upload: Upload,
}

/// A part of which every byte is sent.
struct Leaving {
    path: String,
    rows: u64,
    task: JoinHandle<Result<Written>>,
}

/// Takes rows and writes them as parts. Memory: some chunks of two parts; of Parquet one part as it grows.
pub(super) struct Parts<'a> {
    store: &'a Arc<dyn ObjectStore>,
    format: Format,
    part_bytes: usize,
    tag: String,
    schema: SchemaRef,
    spare: Spare,
    open: Option<Open>,
    leaving: Option<Leaving>,
    count: usize,
    pub(super) files: Vec<ExportedFile>,
    pub(super) rows: u64,
    pub(super) tokens: u64,
    pub(super) trained_tokens: u64,
}

impl<'a> Parts<'a> {
    pub(super) fn new(store: &'a Arc<dyn ObjectStore>, build: &Build, options: &ExportOptions) -> Result<Self> {
        Ok(Self {
            store,
            format: options.format,
            part_bytes: options.part_bytes,
            tag: build.file_tag(),
            schema: table("samples")?.logical(),
            spare: Spare::default(),
            open: None,
            leaving: None,
            count: 0,
            files: Vec::new(),
            rows: 0,
            tokens: 0,
            trained_tokens: 0,
        })
    }

    pub(super) async fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        if batch.num_rows() == 0 {
            return Ok(());
        }
        let columns = self
            .schema
            .fields()
            .iter()
            .zip(batch.columns())
            .map(|(field, column)| Ok(cast(column, field.data_type())?))
            .collect::<Result<Vec<ArrayRef>>>()?;
        let rows = RecordBatch::try_new(Arc::clone(&self.schema), columns)?;
        self.count(&rows);
        let mut open = match self.open.take() {
            Some(open) => open,
            None => self.start()?,
        };
        let encoded = open.write(&rows).await;
        let is_full = open.encoder.size() >= self.part_bytes;
        // Kept even where it failed, so that it can be given up.
        self.open = Some(open);
        encoded?;
        if is_full { self.send().await } else { Ok(()) }
    }

    /// Gives up: of the part in hand nothing stays.
    pub(super) async fn abort(self) {
        if let Some(open) = self.open {
            open.upload.abort().await;
        }
        if let Some(leaving) = self.leaving {
            drop(leaving.task.await);
        }
    }

    fn start(&mut self) -> Result<Open> {
        let path = format!("part-{:05}-{}.{}", self.count, self.tag, self.format);
        self.count += 1;
        let encoder = PartEncoder::new(self.format, &self.schema, &self.spare)?;
        let upload = Upload::start(self.store, &path);
        Ok(Open { path, rows: 0, encoder, upload })
    }

    /// Waits until every part is written.
    pub(super) async fn finish(&mut self) -> Result<()> {
        self.send().await?;
        self.arrived().await
    }

    fn count(&mut self, rows: &RecordBatch) {
        self.rows += rows.num_rows() as u64;
        if let Some(ids) = rows.column_by_name("token_ids") {
            let ids = ids.as_list::<i32>();
            self.tokens += (0..ids.len()).map(|row| u64::from(ids.value_length(row).unsigned_abs())).sum::<u64>();
        }
        if let Some(masks) = rows.column_by_name("action_mask") {
            let trained = masks.as_list::<i32>().iter().flatten().map(|mask| mask.as_boolean().true_count() as u64);
            self.trained_tokens += trained.sum::<u64>();
        }
    }

    /// Sends what is left of the open part, once the one before has arrived.
    async fn send(&mut self) -> Result<()> {
        let Some(open) = self.open.take() else {
            return Ok(());
        };
        self.arrived().await?;
        let Open { path, rows, encoder, mut upload } = open;
        for chunk in encoder.finish()? {
            upload.send(chunk).await?;
        }
        self.leaving = Some(Leaving { path, rows, task: upload.end().await? });
        Ok(())
    }

    async fn arrived(&mut self) -> Result<()> {
        if let Some(Leaving { path, rows, task }) = self.leaving.take() {
            let written =
                task.await.map_err(|source| Error::corrupt("writing a part broke off").caused_by(source))??;
            let Written { bytes, sha256 } = written;
            self.files.push(ExportedFile { path, rows, bytes, sha256 });
        }
        Ok(())
    }
}

impl Open {
    async fn write(&mut self, rows: &RecordBatch) -> Result<()> {
        self.encoder.write(rows)?;
        self.rows += rows.num_rows() as u64;
        for chunk in self.encoder.take_full() {
            self.upload.send(chunk).await?;
        }
        Ok(())
    }
}
