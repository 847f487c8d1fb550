//! Part files: rows are encoded as they come, and leave in chunks.

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow::ipc::writer::FileWriter;
use bytes::Bytes;
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;
use sha2::{Digest, Sha256};

use crate::error::{Error, ErrorKind, Result};
use crate::export::chunks::{Chunks, Spare};
use crate::export::run::Format;
use crate::recipe::hex;

/// Rows of one file, encoded as they come.
pub(super) enum PartEncoder {
    Parquet(Box<ArrowWriter<Chunks>>),
    Arrow(Box<FileWriter<Chunks>>),
}

impl PartEncoder {
    pub(super) fn new(format: Format, schema: &SchemaRef, spare: &Spare) -> Result<Self> {
        let chunks = Chunks::new(spare);
        match format {
            Format::Parquet => {
                let level = ZstdLevel::try_new(3).map_err(failed)?;
                let properties = WriterProperties::builder()
                    .set_compression(Compression::ZSTD(level))
                    // Dictionaries break the byte alignment that lets zstd find repeated tokens.
                    .set_dictionary_enabled(false)
                    .build();
                let writer = ArrowWriter::try_new(chunks, SchemaRef::clone(schema), Some(properties));
                Ok(Self::Parquet(Box::new(writer.map_err(failed)?)))
            }
            // Uncompressed, so that a trainer can map the file into memory.
            Format::Arrow => Ok(Self::Arrow(Box::new(FileWriter::try_new(chunks, schema)?))),
        }
    }

    pub(super) fn write(&mut self, rows: &RecordBatch) -> Result<()> {
        match self {
            Self::Parquet(writer) => writer.write(rows).map_err(failed),
            Self::Arrow(writer) => Ok(writer.write(rows)?),
        }
    }

    /// Bytes of the part so far.
    pub(super) fn size(&self) -> usize {
        match self {
            Self::Parquet(writer) => writer.bytes_written() + writer.in_progress_size(),
            Self::Arrow(writer) => writer.get_ref().written(),
        }
    }

    /// Takes the chunks that can leave already.
    pub(super) fn take_full(&mut self) -> Vec<Bytes> {
        match self {
            Self::Parquet(writer) => writer.inner_mut().take_full(),
            Self::Arrow(writer) => writer.get_mut().take_full(),
        }
    }

    /// Ends the part; returns the chunks that are left.
    pub(super) fn finish(self) -> Result<Vec<Bytes>> {
        let chunks = match self {
            Self::Parquet(writer) => writer.into_inner().map_err(failed)?,
            Self::Arrow(writer) => writer.into_inner()?,
        };
        Ok(chunks.finish())
    }
}

fn failed(source: parquet::errors::ParquetError) -> Error {
    Error::new(ErrorKind::Corrupt, format!("rows cannot be written as Parquet: {source}")).caused_by(source)
}

/// The hex digest of some bytes.
pub(super) fn sha256_hex(bytes: &[u8]) -> String {
    hex(Sha256::digest(bytes))
}
