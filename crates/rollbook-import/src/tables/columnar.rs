//! `<table>.parquet` and `<table>.arrow`: batches of columns, converted to the logical schema.

use std::collections::VecDeque;
use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};

use arrow::array::Array;
use arrow::error::ArrowError;
use arrow::record_batch::RecordBatch;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder};
use parquet::basic::Type;
use parquet::file::metadata::RowGroupMetaData;

use crate::error::{Error, ErrorKind, Result};
use crate::importer::{Item, Items};
use crate::row::{BATCH_BYTES, BATCH_ROWS};
use crate::stream::Extent;

use super::conform::Conformer;
use super::files::{Form, TableFile};
use super::ipc::IpcBatches;

type Batches = Box<dyn Iterator<Item = Result<RecordBatch, ArrowError>> + Send>;

/// Opens a columnar file.
pub(super) fn open(file: &TableFile, run_id: Option<&str>, extent: Extent) -> Result<Items> {
    let name = file.source.name.clone();
    let handle = file.source.open()?;
    if file.source.bytes == 0 {
        return Ok(Box::new(std::iter::once(Ok(extent.progress(0)))));
    }
    let opened = guard(|| match file.form {
        Form::Parquet => parquet(handle),
        Form::Arrow | Form::Jsonl => Ok(Box::new(IpcBatches::new(handle)?)),
    });
    let batches = opened.map_err(|source| corrupt(&name, source))?;
    Ok(Box::new(ColumnarItems {
        conformer: Conformer::new(file.table, &name, run_id),
        batches,
        name,
        queue: VecDeque::new(),
        bytes: file.source.bytes,
        extent,
        has_ended: false,
    }))
}

fn corrupt(name: &str, source: ArrowError) -> Error {
    Error::new(ErrorKind::Corrupt, "the file cannot be read as what its name says").with("file", name).because(source)
}

/// Runs a foreign decoder, which may panic on bytes that no writer made.
fn guard<T>(decode: impl FnOnce() -> Result<T, ArrowError>) -> Result<T, ArrowError> {
    catch_unwind(AssertUnwindSafe(decode))
        .unwrap_or_else(|_panic| Err(ArrowError::ParseError("the decoder gave up on malformed bytes".to_owned())))
}

/// Reads row group after row group, each in batches sized by what its rows weigh in memory.
fn parquet(file: File) -> Result<Batches, ArrowError> {
    let metadata = ArrowReaderMetadata::load(&file, ArrowReaderOptions::default())?;
    let groups = metadata.metadata().num_row_groups();
    let batches = (0..groups).flat_map(move |group| {
        let opened = file.try_clone().map_err(ArrowError::from).and_then(|file| {
            let size = rows_in_batch(metadata.metadata().row_group(group));
            let builder = ParquetRecordBatchReaderBuilder::new_with_metadata(file, metadata.clone());
            Ok(builder.with_row_groups(vec![group]).with_batch_size(size).build()?)
        });
        let batches: Batches = match opened {
            Ok(reader) => Box::new(reader),
            Err(error) => Box::new(std::iter::once(Err(error))),
        };
        batches
    });
    Ok(Box::new(batches))
}

/// Returns how many rows of a row group make a batch of about the right size.
fn rows_in_batch(group: &RowGroupMetaData) -> usize {
    let weight = |column: &parquet::file::metadata::ColumnChunkMetaData| {
        let values = column.num_values().max(0);
        let width = match column.column_type() {
            Type::BOOLEAN => 1,
            Type::INT32 | Type::FLOAT => 4,
            _ => 8,
        };
        let text = column.unencoded_byte_array_data_bytes().unwrap_or_default();
        (values * width).max(column.uncompressed_size()).max(text)
    };
    let bytes = group.columns().iter().map(weight).sum::<i64>();
    let rows = usize::try_from(group.num_rows()).unwrap_or(1).max(1);
    rows_for(usize::try_from(bytes).unwrap_or_default(), rows)
}

fn rows_for(bytes: usize, rows: usize) -> usize {
    (BATCH_BYTES / (bytes / rows).max(1)).clamp(1, BATCH_ROWS)
}

/// The items of one columnar file.
struct ColumnarItems {
    conformer: Conformer,
    batches: Batches,
    name: String,
    queue: VecDeque<Item>,
    bytes: u64,
    extent: Extent,
    has_ended: bool,
}

impl ColumnarItems {
    fn step(&mut self) -> Result<()> {
        let batches = &mut self.batches;
        let Some(batch) = guard(|| batches.next().transpose()).map_err(|source| corrupt(&self.name, source))? else {
            self.has_ended = true;
            self.queue.push_back(self.extent.progress(self.bytes));
            return Ok(());
        };
        let bytes: usize = batch.columns().iter().map(|column| slice_bytes(column.as_ref())).sum();
        let size = rows_for(bytes, batch.num_rows().max(1));
        let mut from = 0;
        while from < batch.num_rows() {
            let rows = size.min(batch.num_rows() - from);
            let part = batch.slice(from, rows);
            self.conformer.batch(&part, &mut self.queue).map_err(|source| corrupt(&self.name, source))?;
            from += rows;
        }
        Ok(())
    }
}

fn slice_bytes(column: &dyn Array) -> usize {
    column.to_data().get_slice_memory_size().unwrap_or_else(|_unsized| column.get_array_memory_size())
}

impl Iterator for ColumnarItems {
    type Item = Result<Item>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.queue.is_empty() && !self.has_ended {
            if let Err(error) = self.step() {
                self.has_ended = true;
                return Some(Err(error));
            }
        }
        self.queue.pop_front().map(Ok)
    }
}
