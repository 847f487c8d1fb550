//! Machine formats, streamed: memory does not grow with the result.

use std::io::{self, BufWriter, Write};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch, StringBuilder};
use arrow::csv::WriterBuilder as CsvBuilder;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::ipc::writer::StreamWriter;
use arrow::json::LineDelimitedWriter;
use arrow::json::writer::{EncoderOptions, LineDelimited, WriterBuilder, make_encoder};
use datafusion::execution::SendableRecordBatchStream;
use futures::TryStreamExt;
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;

use super::written;
use crate::error::{CommandError, Result};

fn stdout() -> BufWriter<io::Stdout> {
    BufWriter::with_capacity(1 << 20, io::stdout())
}

pub(super) async fn ndjson(mut stream: SendableRecordBatchStream) -> Result<()> {
    let mut writer: LineDelimitedWriter<_> =
        WriterBuilder::new().with_explicit_nulls(true).build::<_, LineDelimited>(stdout());
    while let Some(batch) = stream.try_next().await? {
        if let Err(error) = writer.write(&batch) {
            return pipe(error);
        }
    }
    writer.finish()?;
    written(writer.into_inner().flush())
}

pub(super) async fn csv(mut stream: SendableRecordBatchStream) -> Result<()> {
    let schema = flat_schema(&stream.schema());
    let mut writer = CsvBuilder::new().with_header(true).build(stdout());
    // A result without rows still has a header.
    writer.write(&RecordBatch::new_empty(Arc::clone(&schema)))?;
    while let Some(batch) = stream.try_next().await? {
        if let Err(error) = writer.write(&flat(&batch, &schema)?) {
            return pipe(error);
        }
    }
    written(writer.into_inner().flush())
}

pub(super) async fn arrow(mut stream: SendableRecordBatchStream) -> Result<()> {
    let mut writer = StreamWriter::try_new(stdout(), &stream.schema())?;
    while let Some(batch) = stream.try_next().await? {
        if let Err(error) = writer.write(&batch) {
            return pipe(error);
        }
    }
    writer.finish()?;
    written(writer.into_inner()?.flush())
}

pub(super) async fn parquet(mut stream: SendableRecordBatchStream) -> Result<()> {
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_max_row_group_row_count(Some(64 * 1024))
        .build();
    let mut writer = ArrowWriter::try_new(stdout(), stream.schema(), Some(properties))?;
    while let Some(batch) = stream.try_next().await? {
        writer.write(&batch)?;
        // Rows with whole prompts are large: a row group is closed by bytes, not only by rows.
        if writer.in_progress_size() > 64 << 20 {
            writer.flush()?;
        }
    }
    written(writer.into_inner()?.flush())
}

fn pipe(error: arrow::error::ArrowError) -> Result<()> {
    match error {
        arrow::error::ArrowError::IoError(_, source) => written(Err(source)),
        other if other.to_string().contains("Broken pipe") => Ok(()),
        other => Err(CommandError::from(other)),
    }
}

fn is_nested(data_type: &DataType) -> bool {
    data_type.is_nested()
}

fn flat_schema(schema: &SchemaRef) -> SchemaRef {
    let fields = schema.fields().iter().map(|field| {
        let kind = if is_nested(field.data_type()) { DataType::Utf8 } else { field.data_type().clone() };
        Field::new(field.name(), kind, true)
    });
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

/// CSV has no lists: they become JSON text.
fn flat(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
    let columns = batch
        .columns()
        .iter()
        .zip(batch.schema().fields())
        .map(
            |(column, field)| {
                if is_nested(field.data_type()) { json_text(field, column) } else { Ok(Arc::clone(column)) }
            },
        )
        .collect::<Result<Vec<ArrayRef>>>()?;
    Ok(RecordBatch::try_new(Arc::clone(schema), columns)?)
}

fn json_text(field: &Arc<Field>, column: &ArrayRef) -> Result<ArrayRef> {
    let options = EncoderOptions::default().with_explicit_nulls(true);
    let mut encoder = make_encoder(field, column.as_ref(), &options)?;
    let mut texts = StringBuilder::new();
    let mut buffer = Vec::new();
    for row in 0..column.len() {
        if column.is_null(row) {
            texts.append_null();
            continue;
        }
        buffer.clear();
        encoder.encode(row, &mut buffer);
        texts.append_value(String::from_utf8_lossy(&buffer));
    }
    Ok(Arc::new(texts.finish()))
}
