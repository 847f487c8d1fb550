//! Cached states: what the log adds up to at some entry, so that opening a lake costs the same at any age.
//!
//! A state may be deleted at any time; nothing but speed is lost. It is one Arrow record batch, a row for each live file,
//! with what is known of the tables as JSON in the schema's metadata: every open reads it whole, and as JSON throughout it
//! took more time than all the rest of an append.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Int64Array, RecordBatch, StringArray, UInt64Array};
use arrow::datatypes::{Field, Int64Type, Schema, UInt64Type};
use arrow::error::ArrowError;
use arrow::ipc::reader::StreamReader;
use arrow::ipc::writer::StreamWriter;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Kind, Result};
use crate::file::DataFile;
use crate::snapshot::{Snapshot, TableState};

/// A state is written at every multiple of this.
const STATE_EVERY: u64 = 32;
const STATE_FORMAT: u32 = 2;
/// The schema's metadata key of what is known of the tables.
const TABLES: &str = "rollbook.state";
const COMPRESSION_LEVEL: i32 = 3;
/// A state larger than this is not believed: the log is replayed instead.
const STATE_BYTES_MAX: usize = 1 << 31;

/// Whether the writer of `snapshot` leaves a state: on every multiple, and where the last one lies too far back
/// because a writer was killed before it wrote its own.
pub(crate) fn state_is_due(snapshot: &Snapshot) -> bool {
    let since = snapshot.n - snapshot.state_n.unwrap_or(0);
    snapshot.n > 0 && (snapshot.n.is_multiple_of(STATE_EVERY) || since >= 2 * STATE_EVERY)
}

/// The multiple at or below `n`, where a state most likely lies.
pub(super) fn likely_state(n: u64) -> Option<u64> {
    Some(n - n % STATE_EVERY).filter(|&n| n > 0)
}

#[derive(Serialize, Deserialize)]
struct Stored {
    format: u32,
    lake_id: String,
    n: u64,
    created_at: i64,
    source_digest: Option<String>,
    tables: Vec<StoredTable>,
}

#[derive(Serialize, Deserialize)]
struct StoredTable {
    name: String,
    version: u64,
    entry: u64,
    commit_size: u64,
    commit_digest: String,
    metadata_id: String,
    schema_digest: String,
    columns: usize,
    files: usize,
}

/// Encodes a snapshot as a state.
pub(crate) fn encode(snapshot: &Snapshot, lake_id: &str) -> Result<Vec<u8>> {
    let tables = snapshot.tables.iter().map(|(name, table)| stored(name, table)).collect();
    let state = Stored {
        format: STATE_FORMAT,
        lake_id: lake_id.to_owned(),
        n: snapshot.n,
        created_at: snapshot.created_at,
        source_digest: snapshot.source_digest.clone(),
        tables,
    };
    let state = serde_json::to_string(&state).map_err(|source| unusable(snapshot.n).with_source(source))?;
    let files = snapshot.tables.values().flat_map(|table| table.files.iter().map(AsRef::as_ref));
    let bytes = batch_of(files, state).and_then(|batch| {
        let mut writer = StreamWriter::try_new(Vec::new(), batch.schema_ref())?;
        writer.write(&batch)?;
        writer.into_inner()
    });
    let bytes = bytes.map_err(|source| unusable(snapshot.n).with_source(source))?;
    zstd::bulk::compress(&bytes, COMPRESSION_LEVEL).map_err(|source| unusable(snapshot.n).with_source(source))
}

fn stored(name: &str, table: &TableState) -> StoredTable {
    StoredTable {
        name: name.to_owned(),
        version: table.version,
        entry: table.entry,
        commit_size: table.commit_size,
        commit_digest: table.commit_digest.clone(),
        metadata_id: table.metadata_id.clone(),
        schema_digest: table.schema_digest.clone(),
        columns: table.columns,
        files: table.files.len(),
    }
}

fn batch_of<'a>(files: impl Iterator<Item = &'a DataFile> + Clone, state: String) -> Result<RecordBatch, ArrowError> {
    fn text<'a>(values: impl Iterator<Item = Option<&'a str>>) -> ArrayRef {
        Arc::new(values.collect::<StringArray>())
    }
    fn long(values: impl Iterator<Item = Option<i64>>) -> ArrayRef {
        Arc::new(values.collect::<Int64Array>())
    }
    fn count(values: impl Iterator<Item = u64>) -> ArrayRef {
        Arc::new(UInt64Array::from_iter_values(values))
    }
    fn flag(values: impl Iterator<Item = bool>) -> ArrayRef {
        Arc::new(values.map(Some).collect::<BooleanArray>())
    }
    let all = || files.clone();
    let columns: [(&str, ArrayRef); 18] = [
        ("path", text(all().map(|file| Some(file.path.as_str())))),
        ("size", count(all().map(|file| file.size))),
        ("rows", count(all().map(|file| file.rows))),
        ("run_min", text(all().map(|file| file.run_id.as_ref().map(|range| range.0.as_str())))),
        ("run_max", text(all().map(|file| file.run_id.as_ref().map(|range| range.1.as_str())))),
        ("step_min", long(all().map(|file| file.step.map(|range| range.0)))),
        ("step_max", long(all().map(|file| file.step.map(|range| range.1)))),
        ("group_min", text(all().map(|file| file.group_id.as_ref().map(|range| range.0.as_str())))),
        ("group_max", text(all().map(|file| file.group_id.as_ref().map(|range| range.1.as_str())))),
        ("step_nulls", count(all().map(|file| file.step_nulls))),
        ("group_nulls", count(all().map(|file| file.group_nulls))),
        ("unresolved", flag(all().map(|file| file.unresolved))),
        ("sorted", flag(all().map(|file| file.sorted))),
        ("max_prompt_len", long(all().map(|file| file.max_prompt_len.map(i64::from)))),
        ("stats", text(all().map(|file| Some(file.stats.as_str())))),
        ("import_id", text(all().map(|file| file.import_id.as_deref()))),
        ("derivation_id", text(all().map(|file| file.derivation_id.as_deref()))),
        ("snapshot", count(all().map(|file| file.snapshot))),
    ];
    let fields: Vec<Field> =
        columns.iter().map(|(name, column)| Field::new(*name, column.data_type().clone(), true)).collect();
    let schema = Schema::new(fields).with_metadata(HashMap::from([(TABLES.to_owned(), state)]));
    RecordBatch::try_new(Arc::new(schema), columns.into_iter().map(|(_, column)| column).collect())
}

/// Decodes a state; whatever is wrong with it, the caller replays the log instead.
pub(super) fn decode(bytes: &[u8], n: u64, lake_id: &str) -> Result<Snapshot> {
    let decoder = zstd::stream::read::Decoder::new(bytes).map_err(|source| unusable(n).with_source(source))?;
    let mut plain = Vec::new();
    std::io::Read::read_to_end(&mut std::io::Read::take(decoder, STATE_BYTES_MAX as u64), &mut plain)
        .map_err(|source| unusable(n).with_source(source))?;
    let batch = StreamReader::try_new(plain.as_slice(), None)
        .and_then(|mut reader| reader.next().transpose())
        .map_err(|source| unusable(n).with_source(source))?
        .ok_or_else(|| unusable(n))?;
    let schema = batch.schema();
    let state = schema.metadata().get(TABLES).ok_or_else(|| unusable(n))?;
    let state: Stored = serde_json::from_str(state).map_err(|source| unusable(n).with_source(source))?;
    if state.format != STATE_FORMAT || state.n != n || state.lake_id != lake_id {
        return Err(unusable(n));
    }
    let mut files = files_of(&batch).ok_or_else(|| unusable(n))?.into_iter();
    let tables: BTreeMap<_, _> = state
        .tables
        .into_iter()
        .map(|table| (table.name.clone(), Arc::new(loaded(&table, files.by_ref().take(table.files).collect()))))
        .collect();
    Ok(Snapshot { n, created_at: state.created_at, source_digest: state.source_digest, state_n: Some(n), tables })
}

fn loaded(table: &StoredTable, files: Vec<Arc<DataFile>>) -> TableState {
    TableState {
        version: table.version,
        entry: table.entry,
        commit_size: table.commit_size,
        commit_digest: table.commit_digest.clone(),
        metadata_id: table.metadata_id.clone(),
        schema_digest: table.schema_digest.clone(),
        columns: table.columns,
        files,
    }
}

fn files_of(batch: &RecordBatch) -> Option<Vec<Arc<DataFile>>> {
    let texts = |name: &str| batch.column_by_name(name)?.as_string_opt::<i32>();
    let longs = |name: &str| batch.column_by_name(name)?.as_primitive_opt::<Int64Type>();
    let counts = |name: &str| batch.column_by_name(name)?.as_primitive_opt::<UInt64Type>();
    let flags = |name: &str| batch.column_by_name(name)?.as_boolean_opt();
    let owned = |column: &StringArray, row: usize| column.is_valid(row).then(|| column.value(row).to_owned());
    let long = |column: &Int64Array, row: usize| column.is_valid(row).then(|| column.value(row));
    let (paths, stats, imports, derivations) =
        (texts("path")?, texts("stats")?, texts("import_id")?, texts("derivation_id")?);
    let (run_min, run_max, group_min, group_max) =
        (texts("run_min")?, texts("run_max")?, texts("group_min")?, texts("group_max")?);
    let (step_min, step_max, prompt_len) = (longs("step_min")?, longs("step_max")?, longs("max_prompt_len")?);
    let (sizes, rows, step_nulls, group_nulls, snapshots) =
        (counts("size")?, counts("rows")?, counts("step_nulls")?, counts("group_nulls")?, counts("snapshot")?);
    let (unresolved, sorted) = (flags("unresolved")?, flags("sorted")?);
    let file = |row: usize| {
        Some(Arc::new(DataFile {
            path: owned(paths, row)?,
            size: sizes.value(row),
            rows: rows.value(row),
            run_id: owned(run_min, row).zip(owned(run_max, row)),
            step: long(step_min, row).zip(long(step_max, row)),
            group_id: owned(group_min, row).zip(owned(group_max, row)),
            step_nulls: step_nulls.value(row),
            group_nulls: group_nulls.value(row),
            unresolved: unresolved.value(row),
            sorted: sorted.value(row),
            max_prompt_len: long(prompt_len, row).map(i32::try_from).transpose().ok()?,
            stats: owned(stats, row)?,
            import_id: owned(imports, row),
            derivation_id: owned(derivations, row),
            snapshot: snapshots.value(row),
        }))
    };
    (0..batch.num_rows()).map(file).collect()
}

fn unusable(n: u64) -> Error {
    Error::new(Kind::Corrupt, "a cached state cannot be used").with("state", n)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot() -> Snapshot {
        let full = DataFile {
            path: "calls/part-1.parquet".to_owned(),
            size: 1 << 40,
            rows: 7,
            run_id: Some(("a".to_owned(), "b".to_owned())),
            step: Some((-3, 9)),
            group_id: Some((String::new(), "g".to_owned())),
            step_nulls: 1,
            group_nulls: 2,
            unresolved: true,
            sorted: true,
            max_prompt_len: Some(i32::MAX),
            stats: "{\"numRecords\":7}".to_owned(),
            import_id: Some("i".to_owned()),
            derivation_id: Some("d".to_owned()),
            snapshot: 64,
        };
        let bare = DataFile { path: "runs/part-2.parquet".to_owned(), ..DataFile::default() };
        let table = |files: Vec<DataFile>| {
            Arc::new(TableState {
                version: 5,
                entry: 63,
                commit_size: 100,
                commit_digest: "sha256:c".to_owned(),
                metadata_id: "m".to_owned(),
                schema_digest: "sha256:s".to_owned(),
                columns: 12,
                files: files.into_iter().map(Arc::new).collect(),
            })
        };
        let tables = BTreeMap::from([
            ("calls".to_owned(), table(vec![full.clone(), bare.clone()])),
            ("empty".to_owned(), table(Vec::new())),
            ("runs".to_owned(), table(vec![bare])),
        ]);
        Snapshot { n: 64, created_at: -1, source_digest: Some("sha256:x".to_owned()), state_n: Some(64), tables }
    }

    #[test]
    fn a_state_gives_back_its_snapshot() {
        let bytes = encode(&snapshot(), "lake").unwrap();
        assert_eq!(decode(&bytes, 64, "lake").unwrap(), snapshot());
    }

    #[test]
    fn what_is_no_state_of_this_lake_is_refused() {
        let bytes = encode(&snapshot(), "lake").unwrap();
        assert!(decode(&bytes, 64, "other").is_err());
        assert!(decode(&bytes, 96, "lake").is_err());
        assert!(decode(&bytes[..bytes.len() / 2], 64, "lake").is_err());
        assert!(decode(b"{}", 64, "lake").is_err());
    }
}
