//! Part files on their way out: one is encoded while the one before is hashed and written.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::SchemaRef;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use tokio::task::JoinHandle;

use crate::error::{Error, Result};
use crate::export::lookup::Build;
use crate::export::manifest::ExportedFile;
use crate::export::part::{PartEncoder, sha256_hex};
use crate::export::run::{ExportOptions, Format, stored};
use crate::recipe::table;

/// Takes rows and writes them as parts. Memory: one part as it grows and one as it leaves.
pub(super) struct Parts<'a> {
    store: &'a Arc<dyn ObjectStore>,
    format: Format,
    part_bytes: usize,
    tag: String,
    schema: SchemaRef,
    open: Option<(PartEncoder, u64)>,
    leaving: Option<JoinHandle<Result<ExportedFile>>>,
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
        let (mut encoder, before) = match self.open.take() {
            Some(open) => open,
            None => (PartEncoder::new(self.format, &self.schema)?, 0),
        };
        encoder.write(&rows)?;
        let is_full = encoder.size() >= self.part_bytes;
        self.open = Some((encoder, before + rows.num_rows() as u64));
        if is_full { self.send().await } else { Ok(()) }
    }

    /// Waits until every part is written.
    pub(super) async fn finish(mut self) -> Result<Self> {
        self.send().await?;
        self.arrived().await?;
        Ok(self)
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

    /// Sends the open part on its way, once the one before has arrived.
    async fn send(&mut self) -> Result<()> {
        let Some((encoder, rows)) = self.open.take() else {
            return Ok(());
        };
        self.arrived().await?;
        let bytes = encoder.finish()?;
        let path = format!("part-{:05}-{}.{}", self.count, self.tag, self.format);
        self.count += 1;
        let store = Arc::clone(self.store);
        self.leaving = Some(tokio::spawn(async move {
            let sha256 = sha256_hex(&bytes);
            let file = ExportedFile { path: path.clone(), rows, bytes: bytes.len() as u64, sha256 };
            let put = store.put(&Path::from(path.as_str()), bytes.into()).await;
            put.map_err(|source| stored(source, "write", &path))?;
            Ok(file)
        }));
        Ok(())
    }

    async fn arrived(&mut self) -> Result<()> {
        if let Some(leaving) = self.leaving.take() {
            let file =
                leaving.await.map_err(|source| Error::corrupt("writing a part broke off").caused_by(source))??;
            self.files.push(file);
        }
        Ok(())
    }
}
