//! Rollbook's side of each task, and which peers do the same.

use std::error::Error;
use std::fs::File;
use std::path::{Path, PathBuf};

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::Int32Type;
use arrow::util::display::array_value_to_string;
use futures::TryStreamExt;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use rollbook_audit::AuditOptions;
use rollbook_lake::Lake;
use rollbook_query::export::{ExportOptions, Format, export};
use rollbook_query::ingest::{IngestOptions, import};
use rollbook_query::{Session, SessionOptions};
use serde_json::{Value, json};

use super::measured::Clock;
use crate::append::options;

/// One question.
pub(super) struct TaskOf {
    pub(super) name: &'static str,
    pub(super) question: &'static str,
    /// Peers, as `peers.py` has them.
    pub(super) peers: &'static [&'static str],
    /// Whether all sides must find the same.
    pub(super) same_answer: bool,
}

const fn task(name: &'static str, question: &'static str, peers: &'static [&'static str]) -> TaskOf {
    TaskOf { name, question, peers, same_answer: true }
}

/// Every question, in the order of the table.
pub(super) const TASKS: &[TaskOf] = &[
    TaskOf { same_answer: false, ..task("bytes", "bytes of all tokens and logprobs", &["pyarrow"]) },
    TaskOf { same_answer: false, ..task("scan", "read every stored token and logprob", &["pyarrow"]) },
    task("import", "JSON lines to stored calls", &["duckdb"]),
    TaskOf { same_answer: false, ..task("extension", "does every call extend the one before", &["numpy", "duckdb"]) },
    task("rebuild", "every prompt whole", &["numpy"]),
    task("credit", "GRPO over a million rollouts", &["numpy", "polars", "duckdb"]),
    TaskOf { same_answer: false, ..task("variants", "ten credits over a million rollouts at once", &["duckdb"]) },
    task("broadcast", "each rollout's credit on its tokens", &["numpy", "duckdb"]),
    TaskOf { same_answer: false, ..task("audit", "lengths, masks and logprobs", &["numpy", "duckdb"]) },
    TaskOf { same_answer: false, ..task("duplicates", "rollouts with equal outputs", &["polars", "duckdb"]) },
    TaskOf { same_answer: false, ..task("pack", "a million lengths into rows of 32k", &["numba", "heap"]) },
    TaskOf { same_answer: false, ..task("export", "packed rows to files, by bytes", &["numpy"]) },
    TaskOf { same_answer: false, ..task("lookup", "one rollout with its prompts, cold", &["pyarrow"]) },
];

const GRPO: &str = "grpo(value, rollout_id) OVER (PARTITION BY run_id, group_id)";

/// Runs one task and prints its cost.
pub(super) async fn run(name: &str, data: &Path) -> Result<(), Box<dyn Error>> {
    match name {
        "bytes" => stored_bytes(data).await,
        "scan" => scan(data).await,
        "import" => import_lines(data).await,
        "rebuild" => rebuild(data).await,
        "audit" => audit(data).await,
        "export" => export_rows(data).await,
        "lookup" => lookup(data).await,
        "extension" => {
            let sql = "SELECT count(*) FILTER (WHERE token_relation IS NOT NULL), \
                       count(*) FILTER (WHERE token_relation = 'extends') FROM transitions";
            query(&data.join("lake"), sql).await
        }
        "credit" => {
            let sql = format!("SELECT sum(abs(credit)) FROM (SELECT {GRPO} AS credit FROM rewards)");
            query(&data.join("million-lake"), &sql).await
        }
        "variants" => query(&data.join("million-lake"), &variants()).await,
        "broadcast" => query(&data.join("lake"), "SELECT sum(abs(advantage)) FROM tokens").await,
        "duplicates" => {
            let sql = "SELECT coalesce(sum(n - 1), 0) FROM (SELECT count(*) AS n FROM (\
                       SELECT rollout_id, string_agg(output_digest, ',' ORDER BY call_index, call_id) AS digest \
                       FROM calls GROUP BY run_id, rollout_id) GROUP BY digest HAVING count(*) > 1)";
            query(&data.join("lake"), sql).await
        }
        "pack" => {
            let sql = "SELECT max(bin) + 1 FROM (\
                       SELECT pack(prompt_token_count, 32768) OVER (ORDER BY rollout_id) AS bin FROM rollouts)";
            query(&data.join("million-lake"), sql).await
        }
        other => Err(format!("there is no task {other}").into()),
    }
}

/// Ten ways to center and scale, told apart by their arguments.
fn variants() -> String {
    let mut columns = Vec::new();
    for ddof in [0, 1] {
        for eps in ["0.0", "1e-9", "1e-6", "1e-4", "1e-2"] {
            let n = columns.len();
            columns.push(format!(
                "grpo(value, rollout_id, eps => {eps}, ddof => {ddof}) OVER (PARTITION BY run_id, group_id) AS c{n}"
            ));
        }
    }
    let sums: Vec<String> = (0..columns.len()).map(|n| format!("sum(abs(c{n}))")).collect();
    format!("SELECT {} FROM (SELECT {} FROM rewards)", sums.join(", "), columns.join(", "))
}

async fn open(lake: &Path) -> Result<Session, Box<dyn Error>> {
    let lake = Lake::open(&lake.display().to_string(), options()).await?;
    let session = Session::open(&lake, None, SessionOptions { threads: 2, ..SessionOptions::default() }).await?;
    rollbook_audit::register(&session)?;
    Ok(session)
}

/// Opens the lake first: peers open their connection before the clock runs, too.
async fn query(lake: &Path, sql: &str) -> Result<(), Box<dyn Error>> {
    let session = open(lake).await?;
    let clock = Clock::start();
    let rows = session.collect(sql).await?;
    clock.stop(answer(&rows)?, None, Value::Null)
}

/// The only row: a number where it has one column, else a list.
fn answer(rows: &[RecordBatch]) -> Result<Value, Box<dyn Error>> {
    let row = rows.iter().find(|batch| batch.num_rows() > 0).ok_or("the query gave no row")?;
    let mut values = Vec::new();
    for column in row.columns() {
        let text = array_value_to_string(column, 0)?;
        values.push(serde_json::from_str(&text).unwrap_or(Value::String(text)));
    }
    Ok(if values.len() == 1 { values.remove(0) } else { Value::Array(values) })
}

async fn call_files(data: &Path) -> Result<Vec<PathBuf>, Box<dyn Error>> {
    let root = data.join("lake");
    let lake = Lake::open(&root.display().to_string(), options()).await?;
    Ok(lake.snapshot().await?.table("calls").files.iter().map(|file| root.join(&file.path)).collect())
}

const TOKENS: [&str; 3] = ["prompt_suffix", "output_token_ids", "output_logprobs"];

async fn stored_bytes(data: &Path) -> Result<(), Box<dyn Error>> {
    let clock = Clock::start();
    let mut parts = serde_json::Map::new();
    for file in call_files(data).await? {
        let reader = ParquetRecordBatchReaderBuilder::try_new(File::open(file)?)?;
        for group in reader.metadata().row_groups() {
            for column in group.columns() {
                let name = column.column_path().parts().first().cloned().unwrap_or_default();
                let before = parts.get(&name).and_then(Value::as_i64).unwrap_or_default();
                parts.insert(name, json!(before + column.compressed_size()));
            }
        }
    }
    let bytes = TOKENS.iter().filter_map(|name| parts.get(*name)?.as_u64()).sum();
    clock.stop(Value::Null, Some(bytes), Value::Object(parts))
}

async fn scan(data: &Path) -> Result<(), Box<dyn Error>> {
    let clock = Clock::start();
    let mut tokens = 0_u64;
    for file in call_files(data).await? {
        let reader = ParquetRecordBatchReaderBuilder::try_new(File::open(file)?)?;
        let roots: Vec<usize> = reader
            .schema()
            .fields()
            .iter()
            .enumerate()
            .filter(|(_, field)| TOKENS.contains(&field.name().as_str()))
            .map(|(at, _)| at)
            .collect();
        let mask = ProjectionMask::roots(reader.parquet_schema(), roots);
        for batch in reader.with_projection(mask).build()? {
            tokens += batch?.columns().iter().map(|column| column.as_list::<i32>().values().len() as u64).sum::<u64>();
        }
    }
    clock.stop(json!(tokens), Some(tokens * 4), Value::Null)
}

async fn import_lines(data: &Path) -> Result<(), Box<dyn Error>> {
    let folder = data.join("imported-lake");
    if folder.exists() {
        std::fs::remove_dir_all(&folder)?;
    }
    let lake = Lake::init(&folder.display().to_string(), options()).await?;
    let importer = rollbook_import::importer("tables").ok_or("no importer is called tables")?;
    let clock = Clock::start();
    let sources = [data.join("jsonl/runs.jsonl"), data.join("jsonl/rollouts.jsonl"), data.join("jsonl/calls.jsonl")];
    let report = import(&lake, importer, &sources, &IngestOptions::default(), &|_| ()).await?;
    let calls = report.tables.get("calls").map_or(0, |count| count.added);
    let bytes = lake.snapshot().await?.table("calls").files.iter().map(|file| file.size).sum();
    clock.stop(json!(calls), Some(bytes), Value::Null)
}

async fn rebuild(data: &Path) -> Result<(), Box<dyn Error>> {
    let session = open(&data.join("lake")).await?;
    let clock = Clock::start();
    let mut tokens = 0_u64;
    let mut last = 0_i64;
    let mut rows = session.stream("SELECT prompt_token_ids FROM calls").await?;
    while let Some(batch) = rows.try_next().await? {
        let prompts = batch.column(0).as_list::<i32>();
        // Lengths alone could be had without a token: the last of each prompt is looked at.
        for prompt in prompts.iter().flatten() {
            let ids = prompt.as_primitive::<Int32Type>();
            tokens += ids.len() as u64;
            last += ids.values().last().map_or(0, |&id| i64::from(id));
        }
    }
    clock.stop(json!(tokens), Some(tokens * 4), json!({ "sum of last tokens": last }))
}

async fn audit(data: &Path) -> Result<(), Box<dyn Error>> {
    let session = open(&data.join("lake")).await?;
    let clock = Clock::start();
    let checks = ["token/length", "token/logprob_value"].map(str::to_owned).to_vec();
    let report = rollbook_audit::audit(&session, &AuditOptions { checks, ..AuditOptions::default() }).await?;
    let found: Vec<u64> = report.checks.iter().map(|count| count.violation).collect();
    clock.stop(json!(found), None, Value::Null)
}

async fn export_rows(data: &Path) -> Result<(), Box<dyn Error>> {
    let session = open(&data.join("lake")).await?;
    let out = data.join("exported");
    if out.exists() {
        std::fs::remove_dir_all(&out)?;
    }
    let clock = Clock::start();
    let options = ExportOptions { accept_assumed: true, ..ExportOptions::new(Format::Arrow) };
    let manifest = export(&session, "merged", &out.display().to_string(), &options).await?;
    let mut bytes = 0;
    for entry in std::fs::read_dir(&out)? {
        bytes += entry?.metadata()?.len();
    }
    clock.stop(json!(manifest.tokens), Some(bytes), Value::Null)
}

async fn lookup(data: &Path) -> Result<(), Box<dyn Error>> {
    let clock = Clock::start();
    let session = open(&data.join("lake")).await?;
    let wanted = session.collect("SELECT rollout_id FROM rollouts ORDER BY rollout_id LIMIT 1").await?;
    let id = array_value_to_string(wanted.first().ok_or("the lake has no rollout")?.column(0), 0)?;
    let sql = format!(
        "SELECT call_id, prompt_token_ids, output_token_ids, output_logprobs FROM calls WHERE rollout_id = '{id}'"
    );
    let rows = session.collect(&sql).await?;
    let tokens: usize = rows.iter().map(|batch| batch.column(1).as_list::<i32>().values().len()).sum();
    let calls: usize = rows.iter().map(RecordBatch::num_rows).sum();
    clock.stop(json!([calls, tokens]), None, Value::Null)
}
