//! Writes a generated run as a folder in the exchange format.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use arrow::array::RecordBatch;
use arrow::ipc::CompressionType;
use arrow::ipc::writer::{FileWriter, IpcWriteOptions};
use arrow::json::LineDelimitedWriter;
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;
use parquet::schema::types::ColumnPath;

use super::tables::{self, Columns};
use super::{Generator, Options, Rollout, Summary};
use crate::{Error, ErrorKind, Result};

/// Prompt tokens in a batch of calls: 16 MB.
const BATCH_TOKENS: usize = 4 << 20;
/// Rollouts whose small rows are held back, so that their batches are worth it.
const BATCH_ROLLOUTS: usize = 512;
/// Calls in a row group; with whole prompts they are about 200 MB before compression.
const ROW_GROUP_CALLS: usize = 2_048;

/// How tables are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// `<table>.jsonl`.
    Jsonl,
    /// `<table>.parquet`, zstd.
    Parquet,
    /// `<table>.arrow`, the IPC file format, zstd.
    Arrow,
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Jsonl => "jsonl",
            Self::Parquet => "parquet",
            Self::Arrow => "arrow",
        })
    }
}

impl FromStr for Format {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        [Self::Jsonl, Self::Parquet, Self::Arrow]
            .into_iter()
            .find(|format| format.to_string() == text)
            .ok_or_else(|| Error::new(ErrorKind::Invalid, format!("{text:?} is no format: jsonl, parquet or arrow")))
    }
}

/// Writes every rollout of the generator into `dir` and counts them; holds a few rollouts at a time.
///
/// # Errors
/// `Unavailable` if the folder cannot be written.
pub fn write_tables(dir: &Path, generator: Generator, format: Format) -> Result<Summary> {
    let options = generator.options().clone();
    write_rollouts(dir, &options, generator, format)
}

/// Writes some rollouts of a run: the same for a part of a generator, with which a run of any size fits a small disk.
///
/// # Errors
/// As [`write_tables`].
pub fn write_rollouts(
    dir: &Path,
    options: &Options,
    rollouts: impl IntoIterator<Item = Rollout>,
    format: Format,
) -> Result<Summary> {
    let mut sink = Sink::create(dir, options, format)?;
    let (mut summary, mut held) = (Summary::default(), Vec::new());
    for rollout in rollouts {
        rollout.count(&mut summary);
        for range in tables::call_ranges(&rollout, BATCH_TOKENS) {
            sink.write("calls", &tables::calls(options, &rollout, range, Columns::Filled)?)?;
        }
        held.push(without_tokens(rollout));
        if held.len() == BATCH_ROLLOUTS {
            sink.write_ended(options, &mut held)?;
        }
    }
    sink.write_ended(options, &mut held)?;
    sink.finish()?;
    Ok(summary)
}

/// Writes every rollout as they arrive where `in_flight` of them run at once, a call of each in turn: folders of Parquet
/// files `piece-000000`, … with `calls` calls each, and a rollout's other rows once its last call is out.
///
/// # Errors
/// As [`write_tables`].
pub fn write_live(dir: &Path, mut generator: Generator, in_flight: usize, calls: usize) -> Result<()> {
    let options = generator.options().clone();
    let mut open: VecDeque<(Rollout, usize)> = VecDeque::new();
    let mut ended = Vec::new();
    for piece in 0.. {
        let mut sink = Sink::create(&dir.join(format!("piece-{piece:06}")), &options, Format::Parquet)?;
        for _ in 0..calls {
            while open.len() < in_flight
                && let Some(rollout) = generator.next()
            {
                open.push_back((rollout, 0));
            }
            let Some((rollout, call)) = open.pop_front() else { break };
            sink.write("calls", &tables::calls(&options, &rollout, call..call + 1, Columns::Filled)?)?;
            if call + 1 < rollout.calls.len() {
                open.push_back((rollout, call + 1));
            } else {
                ended.push(without_tokens(rollout));
            }
        }
        sink.write_ended(&options, &mut ended)?;
        sink.finish()?;
        if open.is_empty() {
            break;
        }
    }
    Ok(())
}

/// What the tables other than calls need.
fn without_tokens(mut rollout: Rollout) -> Rollout {
    for call in &mut rollout.calls {
        (call.suffix, call.output, call.logprobs) = (Vec::new(), Vec::new(), Vec::new());
    }
    rollout
}

/// One file a table, opened when its first batch comes.
struct Sink {
    dir: PathBuf,
    format: Format,
    files: BTreeMap<&'static str, TableFile>,
}

enum TableFile {
    Jsonl(Box<LineDelimitedWriter<BufWriter<File>>>),
    Parquet(Box<ArrowWriter<File>>),
    Arrow(Box<FileWriter<BufWriter<File>>>),
}

impl Sink {
    /// Makes the folder, with the rows that stand for the whole run.
    fn create(dir: &Path, options: &Options, format: Format) -> Result<Self> {
        std::fs::create_dir_all(dir).map_err(|error| {
            Error::new(ErrorKind::Unavailable, format!("cannot write to {}", dir.display())).because(error)
        })?;
        let mut sink = Self { dir: dir.to_owned(), format, files: BTreeMap::new() };
        sink.write("runs", &tables::runs(options, Columns::Filled)?)?;
        sink.write("policies", &tables::policies(options, Columns::Filled)?)?;
        sink.write("encodings", &tables::encodings(Columns::Filled)?)?;
        Ok(sink)
    }

    /// Writes the small rows of rollouts whose calls are written, and forgets them.
    fn write_ended(&mut self, options: &Options, rollouts: &mut Vec<Rollout>) -> Result<()> {
        if !rollouts.is_empty() {
            self.write("rollouts", &tables::rollouts(options, rollouts, Columns::Filled)?)?;
            self.write("environment_records", &tables::environment_records(options, rollouts, Columns::Filled)?)?;
            self.write("scores", &tables::scores(options, rollouts, Columns::Filled)?)?;
            rollouts.clear();
        }
        Ok(())
    }

    fn write(&mut self, table: &'static str, batch: &RecordBatch) -> Result<()> {
        if !self.files.contains_key(table) {
            self.files.insert(table, TableFile::create(&self.dir, table, self.format, batch)?);
        }
        match self.files.get_mut(table) {
            Some(TableFile::Jsonl(writer)) => writer.write(batch).map_err(failed),
            Some(TableFile::Parquet(writer)) => writer.write(batch).map_err(failed),
            Some(TableFile::Arrow(writer)) => writer.write(batch).map_err(failed),
            None => Ok(()),
        }
    }

    fn finish(self) -> Result<()> {
        for file in self.files.into_values() {
            match file {
                TableFile::Jsonl(mut writer) => {
                    writer.finish().map_err(failed)?;
                    writer.into_inner().flush()?;
                }
                TableFile::Parquet(writer) => drop(writer.close().map_err(failed)?),
                TableFile::Arrow(mut writer) => writer.finish().map_err(failed)?,
            }
        }
        Ok(())
    }
}

impl TableFile {
    fn create(dir: &Path, table: &str, format: Format, batch: &RecordBatch) -> Result<Self> {
        let file = File::create(dir.join(format!("{table}.{format}")))?;
        Ok(match format {
            Format::Jsonl => Self::Jsonl(Box::new(LineDelimitedWriter::new(BufWriter::with_capacity(1 << 20, file)))),
            Format::Parquet => {
                let writer = ArrowWriter::try_new(file, batch.schema(), Some(parquet_properties()?));
                Self::Parquet(Box::new(writer.map_err(failed)?))
            }
            Format::Arrow => {
                let options =
                    IpcWriteOptions::default().try_with_compression(Some(CompressionType::ZSTD)).map_err(failed)?;
                let file = BufWriter::with_capacity(1 << 20, file);
                let writer = FileWriter::try_new_with_options(file, &batch.schema(), options);
                Self::Arrow(Box::new(writer.map_err(failed)?))
            }
        })
    }
}

/// Zstd, and no dictionaries for token columns, which they only make larger.
fn parquet_properties() -> Result<WriterProperties> {
    let mut builder = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(3).map_err(failed)?))
        .set_max_row_group_row_count(Some(ROW_GROUP_CALLS));
    for list in ["prompt_token_ids", "output_token_ids", "output_logprobs"] {
        let column = ColumnPath::from(vec![list.to_owned(), "list".to_owned(), "element".to_owned()]);
        builder = builder.set_column_dictionary_enabled(column, false);
    }
    Ok(builder.build())
}

fn failed(error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::new(ErrorKind::Unavailable, "a table could not be written").because(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(format: Format) -> (tempfile::TempDir, Summary) {
        let dir = tempfile::tempdir().unwrap();
        let options = Options { groups: 1, group_size: 2, turns: 4.0, ..Options::default() };
        let summary = write_tables(dir.path(), Generator::new(options), format).unwrap();
        (dir, summary)
    }

    #[test]
    fn lines_hold_whole_prompts_and_come_out_equal_twice() {
        let (one, summary) = written(Format::Jsonl);
        let (two, _) = written(Format::Jsonl);
        let calls = std::fs::read_to_string(one.path().join("calls.jsonl")).unwrap();
        assert_eq!(calls, std::fs::read_to_string(two.path().join("calls.jsonl")).unwrap());
        let lines: Vec<serde_json::Value> = calls.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len() as u64, summary.calls);
        let tokens: usize = lines.iter().map(|line| line["prompt_token_ids"].as_array().unwrap().len()).sum();
        assert_eq!(tokens as u64, summary.prompt_tokens);
        assert_eq!(lines[0]["started_at"].as_str().map(|time| time.ends_with('Z')), Some(true));
        assert_eq!(lines[1]["parent_call_id"], lines[0]["call_id"]);
        for table in ["runs", "policies", "encodings", "rollouts", "environment_records", "scores"] {
            assert!(one.path().join(format!("{table}.jsonl")).is_file(), "{table}");
        }
    }

    #[test]
    fn parquet_and_arrow_hold_the_same_calls() {
        let (parquet, summary) = written(Format::Parquet);
        let file = File::open(parquet.path().join("calls.parquet")).unwrap();
        let reader = parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder::try_new(file).unwrap();
        let rows: usize = reader.build().unwrap().map(|batch| batch.unwrap().num_rows()).sum();
        assert_eq!(rows as u64, summary.calls);
        let (ipc, _) = written(Format::Arrow);
        let file = File::open(ipc.path().join("calls.arrow")).unwrap();
        let reader = arrow::ipc::reader::FileReader::try_new(file, None).unwrap();
        let rows: usize = reader.map(|batch| batch.unwrap().num_rows()).sum();
        assert_eq!(rows as u64, summary.calls);
    }

    #[test]
    fn live_order_has_every_call_once_and_a_rollout_when_it_ends() {
        let dir = tempfile::tempdir().unwrap();
        let options = Options { groups: 1, group_size: 4, turns: 4.0, ..Options::default() };
        write_live(dir.path(), Generator::new(options.clone()), 3, 5).unwrap();
        let (mut calls, mut rollouts) = (Vec::new(), 0);
        let mut pieces: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
        pieces.sort();
        let read = |path: PathBuf| {
            let file = File::open(path).unwrap();
            parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder::try_new(file).unwrap().build().unwrap()
        };
        for piece in &pieces {
            for batch in read(piece.join("calls.parquet")) {
                let batch = batch.unwrap();
                let ids = batch.column_by_name("call_id").unwrap();
                calls.extend(
                    (0..batch.num_rows()).map(|row| arrow::util::display::array_value_to_string(ids, row).unwrap()),
                );
            }
            if piece.join("rollouts.parquet").exists() {
                rollouts += read(piece.join("rollouts.parquet")).map(|batch| batch.unwrap().num_rows()).sum::<usize>();
            }
        }
        let generated: Vec<Rollout> = Generator::new(options).collect();
        assert_eq!(rollouts, 4);
        // The first calls of the three rollouts under way, then their second ones.
        let first = |call: usize| generated[..3].iter().map(move |rollout| tables::call_id(rollout, call));
        assert_eq!(calls[..6], first(0).chain(first(1)).collect::<Vec<_>>());
        let mut all: Vec<String> = generated
            .iter()
            .flat_map(|rollout| (0..rollout.calls.len()).map(|call| tables::call_id(rollout, call)))
            .collect();
        all.sort();
        calls.sort();
        assert_eq!(calls, all);
    }
}
