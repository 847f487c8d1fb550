//! A lake in a temporary folder, rows for it, and writers that add them.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use arrow::array::{ArrayRef, Int32Array, Int64Array, RecordBatch, StringArray, new_null_array};
use arrow::datatypes::DataType;
use async_trait::async_trait;
use rollbook_lake::{Change, DataFile, Entry, Intent, Lake, LakeOptions, Outcome, Prepare, Result, Snapshot};
use rollbook_schema::{Table, table};
use tempfile::TempDir;

/// 2026-01-01T00:00:00Z and one second more each time it is asked.
pub(crate) fn options() -> LakeOptions {
    let now = AtomicI64::new(1_767_225_600_000_000);
    LakeOptions {
        env: BTreeMap::new(),
        clock: Arc::new(move || now.fetch_add(1_000_000, Ordering::Relaxed)),
        author: "test".to_owned(),
    }
}

pub(crate) struct Fixture {
    _folder: TempDir,
    pub(crate) path: PathBuf,
    pub(crate) lake: Lake,
}

impl Fixture {
    pub(crate) async fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("lake");
        let lake = Lake::init(path.to_str().unwrap(), options()).await.unwrap();
        Self { _folder: folder, path, lake }
    }

    pub(crate) fn url(&self) -> &str {
        self.path.to_str().unwrap()
    }

    pub(crate) async fn reopen(&self) -> Lake {
        Lake::open(self.url(), options()).await.unwrap()
    }

    pub(crate) fn file(&self, below: &str) -> PathBuf {
        self.path.join(below)
    }
}

/// One row: run, step, group, rollout, stored index.
pub(crate) type Row<'a> = (&'a str, Option<i64>, Option<&'a str>, Option<&'a str>, i32);

/// Stored rows of a table; every column that is not a key is null, or zero where it may not be.
pub(crate) fn batch(table: &Table, rows: &[Row<'_>]) -> RecordBatch {
    let schema = table.physical();
    let columns = schema.fields().iter().map(|field| -> ArrayRef {
        match (field.name().as_str(), field.data_type()) {
            ("run_id", _) => Arc::new(StringArray::from_iter_values(rows.iter().map(|row| row.0))),
            ("step", DataType::Int64) => Arc::new(rows.iter().map(|row| row.1).collect::<Int64Array>()),
            ("group_id", _) => Arc::new(rows.iter().map(|row| row.2).collect::<StringArray>()),
            ("rollout_id", _) => Arc::new(rows.iter().map(|row| row.3).collect::<StringArray>()),
            ("stored_index" | "prompt_len", DataType::Int32) => {
                Arc::new(Int32Array::from_iter_values(rows.iter().map(|row| row.4)))
            }
            (_, data_type) if field.is_nullable() => new_null_array(data_type, rows.len()),
            (_, DataType::Utf8) => {
                Arc::new(StringArray::from_iter_values(rows.iter().map(|row| format!("x{}", row.4))))
            }
            (_, DataType::Int32) => Arc::new(Int32Array::from_iter_values(rows.iter().map(|_| 0))),
            (_, DataType::Int64) => Arc::new(Int64Array::from_iter_values(rows.iter().map(|_| 0))),
            (name, data_type) => panic!("no test value for {name}: {data_type}"),
        }
    });
    RecordBatch::try_new(Arc::clone(&schema), columns.collect()).unwrap()
}

/// Publishes the same files whatever the head is.
pub(crate) struct Fixed(pub(crate) Vec<Change>);

#[async_trait]
impl Prepare for Fixed {
    async fn changes(&mut self, _head: &Snapshot, _won: &[Entry]) -> Result<Vec<Change>> {
        Ok(self.0.clone())
    }
}

/// Writes one file of `rows` calls and as many rollouts of a rollout.
pub(crate) async fn files(lake: &Lake, rollout: &str, rows: i32) -> Vec<Change> {
    let mut changes = Vec::new();
    for name in ["calls", "rollouts"] {
        let table = table(name).unwrap();
        let rows: Vec<Row<'_>> = (0..rows).map(|index| ("run", Some(1), Some("g"), Some(rollout), index)).collect();
        let mut writer = lake.writer(table);
        writer.write(&batch(table, &rows)).await.unwrap();
        let add: Vec<DataFile> = writer.finish().await.unwrap();
        changes.push(Change { table: name.to_owned(), add, remove: Vec::new() });
    }
    changes
}

pub(crate) async fn append(lake: &Lake, rollout: &str, rows: i32, digest: Option<&str>) -> Outcome {
    let base = lake.snapshot().await.unwrap();
    let mut prepare = Fixed(files(lake, rollout, rows).await);
    let intent = Intent { source_digest: digest.map(str::to_owned), ..Intent::append("test") };
    lake.commit(base, intent, &mut prepare).await.unwrap()
}

pub(crate) fn published(n: u64) -> Outcome {
    Outcome::Published { n, warnings: Vec::new() }
}
