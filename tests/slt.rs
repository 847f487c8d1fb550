//! Runs every `.slt` file over a session in this process: functions, views, audits and whole questions.
//!
//! Each file gets a lake of its own in a scratch folder. Where a folder of the file's name lies beside it
//! (`x.slt`, `x/calls.jsonl`), its tables are imported first; numbered folders inside are imports that follow one
//! another, and `# data: calculator-run` asks for the real run that ships. `cargo test --test slt -- --complete` writes
//! the results that were found into the files.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, Schema};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use async_trait::async_trait;
use libtest_mimic::{Arguments, Failed, Trial};
use rollbook_lake::{Lake, LakeOptions};
use rollbook_query::ingest::{IngestOptions, import};
use rollbook_query::{Session, SessionOptions};
use sqllogictest::{AsyncDB, ColumnType, DBOutput, MakeConnection, Runner};

/// Folders that hold test files, from the workspace's root.
const FOLDERS: [&str; 3] = ["crates/rollbook-functions/src", "sql", "tests/slt"];

/// 2026-11-29 00:00 UTC, in microseconds: the time of every scratch lake.
const NOW_US: i64 = 1_795_910_400_000_000;

fn main() -> ExitCode {
    let mut args: Vec<String> = std::env::args().collect();
    let before = args.len();
    args.retain(|arg| arg != "--complete");
    let complete = args.len() < before;
    let args = Arguments::from_iter(args);
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut files = Vec::new();
    for folder in FOLDERS {
        find(&root.join(folder), &mut files);
    }
    files.sort();
    let trials = files
        .into_iter()
        .map(|file| {
            let name = file.strip_prefix(&root).unwrap_or(&file).display().to_string();
            Trial::test(name, move || run(&file, complete).map_err(Failed::from))
        })
        .collect();
    libtest_mimic::run(&args, trials).exit_code()
}

fn find(folder: &Path, files: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return;
    };
    for entry in entries.flatten() {
        let path = entry.path();
        if path.is_dir() {
            find(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "slt") {
            files.push(path);
        }
    }
}

fn run(file: &Path, complete: bool) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| error.to_string())?;
    runtime.block_on(async {
        let scratch = tempfile::tempdir().map_err(|error| error.to_string())?;
        let session = Arc::new(open(scratch.path(), file).await.map_err(|error| error.to_string())?);
        let mut runner = Runner::new(Connections { session });
        runner.with_column_validator(sqllogictest::strict_column_validator);
        if complete {
            runner
                .update_test_file(
                    file,
                    " ",
                    sqllogictest::default_validator,
                    sqllogictest::default_normalizer,
                    sqllogictest::strict_column_validator,
                )
                .await
                .map_err(|error| error.to_string())
        } else {
            runner.run_file_async(file).await.map_err(|error| error.display(false).to_string())
        }
    })
}

/// Makes a lake, and imports what lies beside the file.
async fn open(scratch: &Path, file: &Path) -> Result<Session, Box<dyn Error>> {
    let options = LakeOptions { env: BTreeMap::new(), clock: Arc::new(|| NOW_US), author: "slt".to_owned() };
    let url = scratch.join("lake").display().to_string();
    let lake = Lake::init(&url, options).await?;
    let importer = rollbook_import::importer("tables").ok_or("there is no importer of tables")?;
    for folder in sources(scratch, file)? {
        import(&lake, importer, &[folder], &IngestOptions::default(), &|_| {}).await?;
    }
    let options = SessionOptions { memory_limit: 256 << 20, threads: 2, spill_dir: None };
    let session = Session::open(&lake, None, options).await?;
    rollbook_audit::register(&session)?;
    Ok(session)
}

/// The folders to import for a file, in order.
fn sources(scratch: &Path, file: &Path) -> Result<Vec<PathBuf>, Box<dyn Error>> {
    if std::fs::read_to_string(file)?.lines().any(|line| line == "# data: calculator-run") {
        let folder = scratch.join("calculator-run");
        std::fs::create_dir(&folder)?;
        rollbook_testing::calculator_run::write_tables(&folder)?;
        return Ok(vec![folder]);
    }
    let data = file.with_extension("");
    if !data.is_dir() {
        return Ok(Vec::new());
    }
    let mut parts: Vec<PathBuf> = std::fs::read_dir(&data)?.flatten().map(|entry| entry.path()).collect();
    parts.sort();
    Ok(if parts.iter().all(|part| part.is_dir()) { parts } else { vec![data] })
}

struct Connections {
    session: Arc<Session>,
}

impl MakeConnection for Connections {
    type Conn = Database;
    type MakeFuture = std::future::Ready<Result<Database, rollbook_query::Error>>;

    fn make(&mut self) -> Self::MakeFuture {
        std::future::ready(Ok(Database { session: Arc::clone(&self.session) }))
    }
}

/// A session as the runner sees it.
struct Database {
    session: Arc<Session>,
}

#[async_trait]
impl AsyncDB for Database {
    type Error = rollbook_query::Error;
    type ColumnType = Kind;

    async fn run(&mut self, sql: &str) -> Result<DBOutput<Kind>, rollbook_query::Error> {
        let frame = self.session.sql(sql).await?;
        let schema = frame.schema().as_arrow().clone();
        let batches = frame.collect().await?;
        let mut rows = Vec::new();
        for batch in &batches {
            rows.extend(cells(batch)?);
        }
        Ok(DBOutput::Rows { types: kinds(&schema), rows })
    }

    async fn shutdown(&mut self) {}

    fn engine_name(&self) -> &'static str {
        "rollbook"
    }
}

fn cells(batch: &RecordBatch) -> Result<Vec<Vec<String>>, rollbook_query::Error> {
    let options = FormatOptions::default().with_null("NULL");
    let columns = batch
        .columns()
        .iter()
        .map(|column| ArrayFormatter::try_new(column, &options))
        .collect::<Result<Vec<_>, _>>()?;
    Ok((0..batch.num_rows())
        .map(|row| {
            columns
                .iter()
                .map(|column| match column.value(row).to_string() {
                    empty if empty.is_empty() => "(empty)".to_owned(),
                    // A cell is a line's part: line ends would break the record.
                    text => text.replace('\n', "\\n"),
                })
                .collect()
        })
        .collect())
}

fn kinds(schema: &Schema) -> Vec<Kind> {
    schema
        .fields()
        .iter()
        .map(|field| match field.data_type() {
            DataType::Boolean => Kind::Boolean,
            DataType::Float16 | DataType::Float32 | DataType::Float64 => Kind::Float,
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => Kind::Text,
            DataType::Timestamp(..) => Kind::Timestamp,
            data_type if data_type.is_integer() => Kind::Integer,
            _ => Kind::Other,
        })
        .collect()
}

/// The letters of a `query` line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Boolean,
    Integer,
    Float,
    Text,
    Timestamp,
    Other,
}

impl ColumnType for Kind {
    fn from_char(value: char) -> Option<Self> {
        Some(match value {
            'B' => Self::Boolean,
            'I' => Self::Integer,
            'R' => Self::Float,
            'T' => Self::Text,
            'P' => Self::Timestamp,
            _ => Self::Other,
        })
    }

    fn to_char(&self) -> char {
        match self {
            Self::Boolean => 'B',
            Self::Integer => 'I',
            Self::Float => 'R',
            Self::Text => 'T',
            Self::Timestamp => 'P',
            Self::Other => '?',
        }
    }
}
