//! Encodes the rows of one file as Parquet, its columns side by side and beside the caller.
//!
//! ```text
//! caller    rows 1 | rows 2          | rows 3          |
//! encoder          | rows 1: columns | rows 2: columns | …      one piece at a time, so that sizes are known before the next
//! ```

use arrow::array::{RecordBatch, new_empty_array};
use arrow::datatypes::SchemaRef;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::{ArrowColumnWriter, ArrowRowGroupWriterFactory, ArrowWriterOptions, compute_leaves};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use rayon::iter::{IndexedParallelIterator, IntoParallelIterator, IntoParallelRefMutIterator, ParallelIterator};
use tokio::task::{JoinHandle, spawn_blocking};

use crate::error::{Error, Kind, Result};

/// A file that is being encoded into memory.
pub(super) struct Encoder {
    file: SerializedFileWriter<Vec<u8>>,
    columns: ArrowRowGroupWriterFactory,
    schema: SchemaRef,
    group: Option<Group>,
}

/// The row group that takes rows.
struct Group {
    /// The writers of each field's leaves.
    fields: Vec<Vec<ArrowColumnWriter>>,
    rows: usize,
}

impl Encoder {
    pub(super) fn new(schema: &SchemaRef, properties: WriterProperties) -> Result<Self> {
        // The Arrow schema in the footer would be the largest part of a small file; the types come back without it.
        let options = ArrowWriterOptions::new().with_properties(properties).with_skip_arrow_metadata(true);
        let writer = ArrowWriter::try_new_with_options(Vec::new(), SchemaRef::clone(schema), options)?;
        let (file, columns) = writer.into_serialized_writer()?;
        Ok(Self { file, columns, schema: SchemaRef::clone(schema), group: None })
    }

    /// Encoded bytes of the open row group, as far as they are known.
    pub(super) fn group_bytes(&self) -> usize {
        let writers = self.group.iter().flat_map(|group| group.fields.iter().flatten());
        writers.map(ArrowColumnWriter::get_estimated_total_bytes).sum()
    }

    /// Rows of the open row group.
    pub(super) fn group_rows(&self) -> usize {
        self.group.as_ref().map_or(0, |group| group.rows)
    }

    /// Whether a row group has ended.
    pub(super) fn has_ended_group(&self) -> bool {
        !self.file.flushed_row_groups().is_empty()
    }

    /// Takes the bytes that are done.
    pub(super) fn take_bytes(&mut self) -> Vec<u8> {
        std::mem::take(self.file.inner_mut())
    }

    fn write(&mut self, rows: &RecordBatch) -> Result<()> {
        let group = match &mut self.group {
            Some(group) => group,
            None => self.group.insert(Group::new(&self.columns, &self.schema, self.file.flushed_row_groups().len())?),
        };
        group.rows += rows.num_rows();
        let fields = group.fields.par_iter_mut().with_max_len(1);
        fields.zip(self.schema.fields().as_ref()).zip(rows.columns()).try_for_each(|((writers, field), column)| {
            let leaves = compute_leaves(field, column)?;
            writers.iter_mut().zip(&leaves).try_for_each(|(writer, leaf)| writer.write(leaf))
        })?;
        Ok(())
    }

    fn end_group(&mut self) -> Result<()> {
        let Some(group) = self.group.take() else {
            return Ok(());
        };
        let writers: Vec<ArrowColumnWriter> = group.fields.into_iter().flatten().collect();
        let closed = writers.into_par_iter().with_max_len(1).map(ArrowColumnWriter::close);
        let chunks = closed.collect::<std::result::Result<Vec<_>, ParquetError>>()?;
        let mut file = self.file.next_row_group()?;
        for chunk in chunks {
            chunk.append_to_row_group(&mut file)?;
        }
        file.close()?;
        Ok(())
    }
}

impl Group {
    fn new(columns: &ArrowRowGroupWriterFactory, schema: &SchemaRef, index: usize) -> Result<Self> {
        let mut writers = columns.create_column_writers(index)?.into_iter();
        let mut fields = Vec::with_capacity(schema.fields().len());
        for field in schema.fields() {
            let leaves = compute_leaves(field, &new_empty_array(field.data_type()))?.len();
            fields.push(writers.by_ref().take(leaves).collect());
        }
        Ok(Self { fields, rows: 0 })
    }
}

/// An encoder that works on a thread of its own while there is something to encode.
pub(super) enum Encoding {
    Idle(Box<Encoder>),
    Busy(JoinHandle<Result<Box<Encoder>>>),
    /// An earlier piece was not encoded.
    Failed,
}

impl Encoding {
    pub(super) fn new(encoder: Encoder) -> Self {
        Self::Idle(Box::new(encoder))
    }

    /// Waits for what is under way.
    pub(super) async fn idle(&mut self) -> Result<&mut Encoder> {
        if let Self::Busy(job) = self {
            let done = job.await;
            *self = Self::Failed;
            *self = Self::Idle(done.map_err(|error| stopped().with("cause", &error).with_source(error))??);
        }
        match self {
            Self::Idle(encoder) => Ok(encoder),
            Self::Busy(_) | Self::Failed => Err(stopped()),
        }
    }

    /// Begins with rows, in a new row group where the open one ends before them.
    pub(super) async fn begin(&mut self, rows: RecordBatch, ends_group: bool) -> Result<()> {
        self.work(move |encoder| {
            if ends_group {
                encoder.end_group()?;
            }
            encoder.write(&rows)
        })
        .await
    }

    /// Ends the file.
    pub(super) async fn finish(&mut self, note: Option<KeyValue>) -> Result<&mut Encoder> {
        self.work(move |encoder| {
            encoder.end_group()?;
            if let Some(note) = note {
                encoder.file.append_key_value_metadata(note);
            }
            encoder.file.finish()?;
            Ok(())
        })
        .await?;
        self.idle().await
    }

    async fn work(&mut self, job: impl FnOnce(&mut Encoder) -> Result<()> + Send + 'static) -> Result<()> {
        self.idle().await?;
        if let Self::Idle(mut encoder) = std::mem::replace(self, Self::Failed) {
            *self = Self::Busy(spawn_blocking(move || {
                job(&mut encoder)?;
                Ok(encoder)
            }));
        }
        Ok(())
    }
}

fn stopped() -> Error {
    Error::new(Kind::Unavailable, "the encoder of a file has stopped")
}
