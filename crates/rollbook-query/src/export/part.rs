//! Part files: rows are encoded in memory up to a bound, hashed and put whole.

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow::ipc::writer::FileWriter;
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;
use sha2::{Digest, Sha256};

use crate::error::{Error, ErrorKind, Result};
use crate::export::run::Format;
use crate::recipe::hex;

/// Rows of one file, encoded as they come.
pub(super) enum PartEncoder {
    Parquet(Box<ArrowWriter<Vec<u8>>>),
    Arrow(Box<FileWriter<Vec<u8>>>),
}

impl PartEncoder {
    pub(super) fn new(format: Format, schema: &SchemaRef) -> Result<Self> {
        match format {
            Format::Parquet => {
                let level = ZstdLevel::try_new(3).map_err(failed)?;
                let properties = WriterProperties::builder()
                    .set_compression(Compression::ZSTD(level))
                    // Dictionaries break the byte alignment that lets zstd find repeated tokens.
                    .set_dictionary_enabled(false)
                    .build();
                let writer = ArrowWriter::try_new(Vec::new(), SchemaRef::clone(schema), Some(properties));
                Ok(Self::Parquet(Box::new(writer.map_err(failed)?)))
            }
            // Uncompressed, so that a trainer can map the file into memory.
            Format::Arrow => Ok(Self::Arrow(Box::new(FileWriter::try_new(Vec::new(), schema)?))),
        }
    }

    pub(super) fn write(&mut self, rows: &RecordBatch) -> Result<()> {
        match self {
            Self::Parquet(writer) => writer.write(rows).map_err(failed),
            Self::Arrow(writer) => Ok(writer.write(rows)?),
        }
    }

    /// Bytes that the part takes in memory so far.
    pub(super) fn size(&self) -> usize {
        match self {
            Self::Parquet(writer) => writer.bytes_written() + writer.in_progress_size(),
            Self::Arrow(writer) => writer.get_ref().len(),
        }
    }

    pub(super) fn finish(self) -> Result<Vec<u8>> {
        match self {
            Self::Parquet(writer) => writer.into_inner().map_err(failed),
            Self::Arrow(writer) => Ok(writer.into_inner()?),
        }
    }
}

fn failed(source: parquet::errors::ParquetError) -> Error {
    Error::new(ErrorKind::Corrupt, format!("rows cannot be written as Parquet: {source}")).caused_by(source)
}

/// The hex digest of some bytes.
pub(super) fn sha256_hex(bytes: &[u8]) -> String {
    hex(Sha256::digest(bytes))
}
