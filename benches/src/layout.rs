//! How should token columns lie in Parquet? Writes the token columns of a lake's calls anew under different settings, and
//! reads them back: bytes, and processor time of both ways.

use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BinaryArray, ListArray, RecordBatch};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{DataType, Field, Float32Type, Int32Type, ToByteSlice};
use bytes::Bytes;
use clap::Args;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::file::properties::{WriterProperties, WriterPropertiesBuilder};
use parquet::schema::types::ColumnPath;

use crate::yardstick::{TOKENS, call_files, cpu_seconds, megabytes, short, token_batches};

const MIB: usize = 1 << 20;

/// Write a lake's token columns under different settings, and print bytes and processor time
#[derive(Debug, Args)]
pub(crate) struct Layout {
    /// Lake: a folder
    #[arg(long, value_name = "DIR")]
    lake: PathBuf,
}

/// How the columns are written.
struct Setting {
    name: String,
    level: i32,
    page: usize,
    row_group: usize,
    form: Form,
    /// Level and page size of the ids, where they are not those of the logprobs.
    ids: Option<(i32, usize)>,
    change: fn(WriterPropertiesBuilder) -> WriterPropertiesBuilder,
}

/// What a token list is to Parquet.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// A list whose items may be null.
    Nullable,
    /// A list whose items are never null.
    Required,
    /// Little-endian bytes, opaque to other readers.
    Bytes,
}

fn settings() -> Vec<Setting> {
    let same: fn(WriterPropertiesBuilder) -> WriterPropertiesBuilder = |builder| builder;
    let setting = |name: String, level, page, row_group, form, change| Setting {
        name,
        level,
        page,
        row_group,
        form,
        ids: None,
        change,
    };
    let mut all = Vec::new();
    for page in [MIB, 8 * MIB] {
        for level in [1, 3, 6, 9, 12] {
            let name = format!("zstd {level}, pages of {} MiB", page / MIB);
            all.push(setting(name, level, page, 64 * MIB, Form::Nullable, same));
        }
    }
    for level in [6, 9] {
        for page in [1, 2, 4, 8] {
            let name = format!("ids zstd {level}, pages of {page} MiB; logprobs zstd 3, 1 MiB");
            let ids = Some((level, page * MIB));
            all.push(Setting { ids, ..setting(name, 3, MIB, 64 * MIB, Form::Nullable, same) });
        }
    }
    for row_group in [8, 16, 32, 256] {
        let name = format!("zstd 3, pages of 1 MiB, row groups of {row_group} MiB");
        all.push(setting(name, 3, MIB, row_group * MIB, Form::Nullable, same));
    }
    all.push(setting("zstd 3, pages of 64 KiB".to_owned(), 3, MIB / 16, 64 * MIB, Form::Nullable, same));
    let mut three = |name: &str, form, change| all.push(setting(name.to_owned(), 3, MIB, 64 * MIB, form, change));
    three("dictionaries", Form::Nullable, |builder| builder.set_dictionary_enabled(true));
    three("DELTA_BINARY_PACKED ids", Form::Nullable, |builder| {
        let ids = |builder: WriterPropertiesBuilder, name| {
            builder.set_column_encoding(path(name), Encoding::DELTA_BINARY_PACKED)
        };
        ids(ids(builder, TOKENS[0]), TOKENS[1])
    });
    three("BYTE_STREAM_SPLIT logprobs", Form::Nullable, |builder| {
        builder.set_column_encoding(path(TOKENS[2]), Encoding::BYTE_STREAM_SPLIT)
    });
    three("items never null", Form::Required, same);
    three("one binary value a call", Form::Bytes, same);
    all
}

fn path(name: &str) -> ColumnPath {
    ColumnPath::from(vec![name.to_owned(), "list".to_owned(), "element".to_owned()])
}

impl Layout {
    pub(crate) fn run(self) -> Result<(), Box<dyn Error>> {
        tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(self.measure())
    }

    #[expect(clippy::print_stdout, reason = "a benchmark prints its table")]
    async fn measure(self) -> Result<(), Box<dyn Error>> {
        let mut batches = Vec::new();
        for file in call_files(&self.lake).await? {
            batches.extend(token_batches(&file)?.collect::<Result<Vec<_>, _>>()?);
        }
        println!(
            "| setting | MB | suffix | ids | logprobs | write CPU s | read CPU s |\n|---|---|---|---|---|---|---|"
        );
        for setting in settings() {
            println!("{}", setting.measured(&batches)?);
        }
        Ok(())
    }
}

impl Setting {
    fn measured(&self, batches: &[RecordBatch]) -> Result<String, Box<dyn Error>> {
        let batches = batches.iter().map(|batch| self.form.of(batch)).collect::<Result<Vec<_>, _>>()?;
        let schema = batches.first().ok_or("the lake has no calls")?.schema();
        let mut builder = WriterProperties::builder()
            .set_compression(Compression::ZSTD(ZstdLevel::try_new(self.level)?))
            .set_dictionary_enabled(false)
            .set_data_page_size_limit(self.page)
            .set_max_row_group_row_count(None)
            .set_max_row_group_bytes(Some(self.row_group));
        if let Some((level, page)) = self.ids {
            for name in [TOKENS[0], TOKENS[1]] {
                builder = builder
                    .set_column_compression(path(name), Compression::ZSTD(ZstdLevel::try_new(level)?))
                    .set_column_data_page_size_limit(path(name), page);
            }
        }
        let began = cpu_seconds();
        let mut writer = ArrowWriter::try_new(Vec::new(), schema, Some((self.change)(builder).build()))?;
        for batch in &batches {
            writer.write(batch)?;
        }
        let file = Bytes::from(writer.into_inner()?);
        let write = cpu_seconds() - began;
        let began = cpu_seconds();
        let reader = ParquetRecordBatchReaderBuilder::try_new(file.clone())?;
        let groups = reader.metadata().row_groups();
        let part =
            |at: usize| groups.iter().map(|group| group.column(at).compressed_size().unsigned_abs()).sum::<u64>();
        let parts = [part(0), part(1), part(2)];
        let rows = reader.build()?.map(|batch| batch.map(|batch| batch.num_rows())).sum::<Result<usize, _>>()?;
        let read = cpu_seconds() - began;
        let expected: usize = batches.iter().map(RecordBatch::num_rows).sum();
        if rows != expected {
            return Err(format!("{}: {rows} rows came back of {expected}", self.name).into());
        }
        let [suffix, ids, logprobs] = parts.map(megabytes);
        let all = megabytes(file.len() as u64);
        Ok(format!("| {} | {all} | {suffix} | {ids} | {logprobs} | {} | {} |", self.name, short(write), short(read)))
    }
}

impl Form {
    fn of(self, batch: &RecordBatch) -> Result<RecordBatch, Box<dyn Error>> {
        let columns = batch.columns().iter().map(|column| self.of_list(column)).collect::<Result<Vec<_>, _>>()?;
        Ok(RecordBatch::try_from_iter(TOKENS.into_iter().zip(columns))?)
    }

    fn of_list(self, column: &ArrayRef) -> Result<ArrayRef, Box<dyn Error>> {
        let list = column.as_list::<i32>();
        let (field, offsets, values, nulls) = list.clone().into_parts();
        Ok(match self {
            Self::Nullable => Arc::new(list.clone()),
            Self::Required => {
                let field = Arc::new(Field::new(field.name(), field.data_type().clone(), false));
                Arc::new(ListArray::try_new(field, offsets, values, nulls)?)
            }
            Self::Bytes => {
                let bytes = match values.data_type() {
                    DataType::Int32 => values.as_primitive::<Int32Type>().values().to_byte_slice().to_vec(),
                    _ => values.as_primitive::<Float32Type>().values().to_byte_slice().to_vec(),
                };
                let ends: Vec<i32> = offsets.iter().map(|&end| end * 4).collect();
                Arc::new(BinaryArray::try_new(OffsetBuffer::new(ends.into()), bytes.into(), nulls)?)
            }
        })
    }
}
