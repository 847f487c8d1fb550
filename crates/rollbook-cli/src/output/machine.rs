//! Machine formats, streamed: memory does not grow with the result.

use std::io::{self, BufWriter, Write};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, ArrowPrimitiveType, AsArray, PrimitiveArray, RecordBatch, StringBuilder};
use arrow::csv::WriterBuilder as CsvBuilder;
use arrow::datatypes::{DataType, Field, FieldRef, Float32Type, Float64Type, Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow::ipc::writer::StreamWriter;
use arrow::json::writer::{
    Encoder, EncoderFactory, EncoderOptions, JsonArray, JsonFormat, LineDelimited, NullableEncoder, Writer,
    WriterBuilder, make_encoder,
};
use datafusion::execution::SendableRecordBatchStream;
use futures::TryStreamExt;
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;

use super::written;
use crate::error::{CommandError, Result};

/// Writes NaN and infinities as the quoted words that the exchange format reads: JSON has no such numbers, and a null would
/// say that nothing is known.
#[derive(Debug)]
struct Floats;

impl EncoderFactory for Floats {
    fn make_default_encoder<'a>(
        &self,
        _field: &'a FieldRef,
        array: &'a dyn Array,
        _options: &'a EncoderOptions,
    ) -> std::result::Result<Option<NullableEncoder<'a>>, ArrowError> {
        let encoder: Box<dyn Encoder + 'a> = match array.data_type() {
            DataType::Float32 => Box::new(FloatEncoder(array.as_primitive::<Float32Type>())),
            DataType::Float64 => Box::new(FloatEncoder(array.as_primitive::<Float64Type>())),
            _ => return Ok(None),
        };
        Ok(Some(NullableEncoder::new(encoder, array.nulls().cloned())))
    }
}

struct FloatEncoder<'a, T: ArrowPrimitiveType>(&'a PrimitiveArray<T>);

impl<T: ArrowPrimitiveType> Encoder for FloatEncoder<'_, T>
where
    T::Native: Into<f64> + serde::Serialize,
{
    fn encode(&mut self, row: usize, out: &mut Vec<u8>) {
        let value = self.0.value(row);
        let wide: f64 = value.into();
        if wide.is_finite() {
            // A number of its own width: 0.1 stays 0.1, whatever its neighbours in double are.
            if let Ok(text) = serde_json::to_vec(&value) {
                out.extend(text);
            }
        } else if wide.is_nan() {
            out.extend_from_slice(b"\"NaN\"");
        } else {
            out.extend_from_slice(if wide > 0.0 { b"\"Infinity\"".as_slice() } else { b"\"-Infinity\"" });
        }
    }
}

fn stdout() -> BufWriter<io::Stdout> {
    BufWriter::with_capacity(1 << 20, io::stdout())
}

pub(super) async fn ndjson(stream: SendableRecordBatchStream) -> Result<()> {
    objects::<LineDelimited>(stream).await
}

pub(super) async fn json(stream: SendableRecordBatchStream) -> Result<()> {
    objects::<JsonArray>(stream).await?;
    // An array ends its only line.
    super::line("")
}

async fn objects<F: JsonFormat>(mut stream: SendableRecordBatchStream) -> Result<()> {
    let mut writer: Writer<_, F> =
        WriterBuilder::new().with_explicit_nulls(true).with_encoder_factory(Arc::new(Floats)).build::<_, F>(stdout());
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

fn pipe(error: ArrowError) -> Result<()> {
    match error {
        ArrowError::IoError(_, source) => written(Err(source)),
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
    let options = EncoderOptions::default().with_explicit_nulls(true).with_encoder_factory(Arc::new(Floats));
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
