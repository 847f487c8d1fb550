//! Reads a few columns of a lake file, without a query.

use arrow::array::RecordBatch;
use futures::TryStreamExt;
use futures::stream::BoxStream;
use object_store::path::Path;
use parquet::arrow::ProjectionMask;
use parquet::arrow::async_reader::ParquetRecordBatchStreamBuilder;
use rollbook_lake::{DataFile, Lake};

use crate::error::{Error, Result};

#[expect(
    deprecated,
    reason = "the reader that replaces it is to be written by each caller; this one does what is needed"
)]
type Reader = parquet::arrow::async_reader::ParquetObjectReader;

/// Whether a file may hold rows of a run.
pub(super) fn may_hold_run(file: &DataFile, run: &str) -> bool {
    file.run_id.as_ref().is_none_or(|(least, greatest)| least.as_str() <= run && run <= greatest.as_str())
}

/// All rows of a file with the named columns, for narrow columns only.
pub(crate) async fn read(lake: &Lake, file: &DataFile, columns: &[&str]) -> Result<Vec<RecordBatch>> {
    stream(lake, file, Some(columns), 8192).await?.try_collect().await
}

/// A file's rows in file order.
pub(crate) async fn stream(
    lake: &Lake,
    file: &DataFile,
    columns: Option<&[&str]>,
    batch_rows: usize,
) -> Result<BoxStream<'static, Result<RecordBatch>>> {
    let store = lake.store();
    let reader = Reader::new(store, Path::from(file.path.as_str())).with_file_size(file.size);
    let builder = ParquetRecordBatchStreamBuilder::new(reader).await.map_err(|error| unreadable(file, error))?;
    let mask = match columns {
        Some(columns) => ProjectionMask::columns(builder.parquet_schema(), columns.iter().copied()),
        None => ProjectionMask::all(),
    };
    let stream =
        builder.with_projection(mask).with_batch_size(batch_rows).build().map_err(|error| unreadable(file, error))?;
    let path = file.path.clone();
    Ok(Box::pin(stream.map_err(move |error| {
        Error::corrupt(format!("a file of the lake cannot be read: {error}")).with("file", &path)
    })))
}

fn unreadable(file: &DataFile, error: parquet::errors::ParquetError) -> Error {
    Error::corrupt(format!("a file of the lake cannot be read: {error}")).with("file", &file.path).caused_by(error)
}
