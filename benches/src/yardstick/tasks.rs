//! Rollbook's side of each task, and which peers do the same.

use std::error::Error;
use std::fs::File;
use std::path::{Path, PathBuf};

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{DataType, FieldRef, Float64Type, Int32Type, Schema};
use arrow::util::display::array_value_to_string;
use futures::TryStreamExt;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder};
use parquet::file::reader::ChunkReader;
use rollbook_lake::lists::{ListChunk, Lists, Much};
use rollbook_testing::generate::tables::nth_rollout_id;
use serde_json::{Value, json};

use super::measured::Clock;
use super::phases::{self, lake_at, open, open_at, table_bytes};

/// One question.
pub(super) struct TaskOf {
    pub(super) name: &'static str,
    pub(super) question: &'static str,
    /// Peers, as `peers.py` has them.
    pub(super) peers: &'static [&'static str],
    /// Whether all sides must find the same.
    pub(super) same_answer: bool,
    /// What the sides are compared by.
    pub(super) by: By,
}

/// What sides are compared by; less is better.
#[derive(Clone, Copy)]
pub(super) enum By {
    Seconds,
    Bytes,
    /// Seconds a byte, where the sides do not write the same bytes.
    SecondsPerByte,
}

const fn task(name: &'static str, question: &'static str, peers: &'static [&'static str]) -> TaskOf {
    TaskOf { name, question, peers, same_answer: true, by: By::Seconds }
}

/// Every question, in the order of the table.
pub(super) const TASKS: &[TaskOf] = &[
    TaskOf { same_answer: false, by: By::Bytes, ..task("bytes", "bytes of all tokens and logprobs", &["pyarrow"]) },
    TaskOf { same_answer: false, by: By::Bytes, ..task("live", "the same in live order, compacted", &["pyarrow"]) },
    TaskOf { same_answer: false, ..task("scan", "read every stored token and logprob", &["pyarrow"]) },
    task("import", "JSON lines to stored calls", &["duckdb"]),
    TaskOf { same_answer: false, ..task("extension", "does every call extend the one before", &["numpy", "duckdb"]) },
    task("rebuild", "every prompt whole", &["numpy"]),
    task("credit", "GRPO over a million rollouts", &["numpy", "polars", "duckdb"]),
    TaskOf { same_answer: false, ..task("variants", "ten credits over a million rollouts at once", &["duckdb"]) },
    task("broadcast", "each rollout's credit on its tokens", &["numpy", "duckdb"]),
    TaskOf { same_answer: false, ..task("audit", "lengths, masks and logprobs", &["numpy", "duckdb"]) },
    TaskOf {
        same_answer: false,
        ..task("checks", "every check, beside reading what they name", &["rollbook columns"])
    },
    TaskOf { same_answer: false, ..task("duplicates", "rollouts with equal outputs", &["polars", "duckdb"]) },
    TaskOf { same_answer: false, ..task("pack", "a million lengths into rows of 32k", &["numba", "heap"]) },
    TaskOf {
        same_answer: false,
        by: By::SecondsPerByte,
        ..task("export", "packed rows to files, by bytes", &["numpy"])
    },
    TaskOf { same_answer: false, ..task("lookup", "one rollout with its prompts, cold", &["pyarrow"]) },
];

const GRPO: &str = "grpo(value, rollout_id) OVER (PARTITION BY run_id, group_id)";

/// The snapshot that shows the import and no build: peers look at calls alone.
const IMPORTED: u64 = 1;

/// A copied rollout begins with a copied first answer; only where that is so are all answers looked at. Where no statistic tells which
/// side of a join is small, the one named first is held.
const DUPLICATES: &str = "
WITH suspect AS (
    SELECT run_id, output_digest FROM calls WHERE call_index = 0
    GROUP BY run_id, output_digest HAVING count(DISTINCT rollout_id) > 1
),
whole AS (
    SELECT calls.run_id, calls.rollout_id, string_agg(calls.output_digest, ',' ORDER BY calls.call_index, calls.call_id) AS digests
    FROM (
        SELECT first.run_id, first.rollout_id FROM calls AS first
        JOIN suspect ON first.run_id = suspect.run_id AND first.output_digest = suspect.output_digest
        WHERE first.call_index = 0
    ) AS begun
    JOIN calls ON calls.run_id = begun.run_id AND calls.rollout_id = begun.rollout_id
    GROUP BY calls.run_id, calls.rollout_id
)
SELECT coalesce(sum(n - 1), 0) FROM (SELECT count(*) AS n FROM whole GROUP BY run_id, digests HAVING count(*) > 1)";

/// Each rollout's credit at every token that it sampled.
const BROADCAST: &str = "
SELECT token_fill(credits.value, token_mask(calls.output_len, calls.sampled_mask, NULL, calls.call_id)) AS advantages
FROM calls JOIN credits ON calls.run_id = credits.run_id AND calls.rollout_id = credits.rollout_id
WHERE credits.name = 'grpo'";

/// Runs one task and prints its cost.
pub(super) async fn run(name: &str, data: &Path) -> Result<(), Box<dyn Error>> {
    match name {
        "bytes" => stored_bytes(&data.join("lake")).await,
        "live" => stored_bytes(&data.join("live-lake")).await,
        "scan" => scan(data).await,
        "import" => import_lines(data).await,
        "rebuild" => rebuild(data).await,
        "audit" => audit(data, &["token/length", "token/logprob_value"], Some(IMPORTED)).await,
        "checks" => audit(data, &[], None).await,
        "columns" => columns(data).await,
        "derive" => {
            let clock = Clock::start();
            phases::derive(&data.join("lake")).await?;
            clock.stop(Value::Null, None, Value::Null)
        }
        "build" => {
            let clock = Clock::start();
            phases::build(&data.join("lake")).await?;
            let bytes = table_bytes(&lake_at(&data.join("lake")).await?, "samples").await?;
            clock.stop(Value::Null, Some(bytes), Value::Null)
        }
        "append" => {
            let clock = Clock::start();
            let (lake, report) = phases::import_files(&data.join("lake"), &[data.join("piece")]).await?;
            let rows = report.tables.get("calls").map_or(0, |count| count.added);
            clock.stop(json!(rows), Some(table_bytes(&lake, "calls").await?), Value::Null)
        }
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
        "broadcast" => broadcast(data).await,
        "duplicates" => query(&data.join("lake"), DUPLICATES).await,
        "pack" => {
            let sql = "SELECT max(bin) + 1 FROM (\
                       SELECT pack(prompt_token_count, 32768) OVER (ORDER BY rollout_id) AS bin FROM rollouts)";
            query(&data.join("million-lake"), sql).await
        }
        other => match other.strip_prefix("check:") {
            Some(check) => audit(data, &[check], None).await,
            None => Err(format!("there is no task {other}").into()),
        },
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

/// The files of a lake's calls.
pub(crate) async fn call_files(root: &Path) -> Result<Vec<PathBuf>, Box<dyn Error>> {
    let snapshot = lake_at(root).await?.snapshot().await?;
    Ok(snapshot.table("calls").files.iter().map(|file| root.join(&file.path)).collect())
}

/// The lists that are nearly all bytes of a lake, in the order of a file.
pub(crate) const TOKENS: [&str; 3] = ["prompt_suffix", "output_token_ids", "output_logprobs"];

/// Reads [`TOKENS`] of a file of calls.
pub(crate) fn token_batches(file: &Path) -> Result<ParquetRecordBatchReader, Box<dyn Error>> {
    let reader = ParquetRecordBatchReaderBuilder::try_new(File::open(file)?)?;
    let fields = reader.schema().fields().iter().enumerate();
    let roots: Vec<usize> =
        fields.filter(|(_, field)| TOKENS.contains(&field.name().as_str())).map(|(at, _)| at).collect();
    let mask = ProjectionMask::roots(reader.parquet_schema(), roots);
    Ok(reader.with_projection(mask).build()?)
}

async fn stored_bytes(lake: &Path) -> Result<(), Box<dyn Error>> {
    let clock = Clock::start();
    let mut parts = serde_json::Map::new();
    for file in call_files(lake).await? {
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
    let mut tokens = 0;
    for file in call_files(&data.join("lake")).await? {
        tokens += tokens_of(&file)?;
    }
    clock.stop(json!(tokens), Some(tokens * 4), Value::Null)
}

/// Rows of lists that are read in one go.
const SCAN_ROWS: usize = 1024;

/// Reads [`TOKENS`] of a file of calls as a session does, and counts their items.
fn tokens_of(path: &Path) -> Result<u64, Box<dyn Error>> {
    let file = File::open(path)?;
    let reader = ParquetRecordBatchReaderBuilder::try_new(file.try_clone()?)?;
    let mut tokens = 0;
    for group in reader.metadata().row_groups() {
        for (place, column) in group.columns().iter().enumerate() {
            let name = column.column_path().parts().first().map_or("", String::as_str);
            let Some(item) = TOKENS.contains(&name).then(|| item_of(reader.schema(), name)).flatten() else {
                continue;
            };
            let (start, length) = column.byte_range();
            let bytes = file.get_bytes(start, usize::try_from(length)?)?;
            let mut chunk = ListChunk::try_new(bytes, start, group, place, None, Much::Whole)?;
            let mut left = usize::try_from(group.num_rows())?;
            while left > 0 {
                let rows = left.min(SCAN_ROWS);
                let mut lists = Lists::new(item, rows).ok_or("a list of tokens has other items")?;
                chunk.read(rows, &mut lists)?;
                tokens += lists.finish()?.as_list::<i32>().values().len() as u64;
                left -= rows;
            }
        }
    }
    Ok(tokens)
}

fn item_of<'a>(schema: &'a Schema, name: &str) -> Option<&'a FieldRef> {
    match schema.field_with_name(name).ok()?.data_type() {
        DataType::List(item) => Some(item),
        _ => None,
    }
}

async fn import_lines(data: &Path) -> Result<(), Box<dyn Error>> {
    let folder = data.join("imported-lake");
    if folder.exists() {
        std::fs::remove_dir_all(&folder)?;
    }
    let sources = ["runs", "rollouts", "calls"].map(|table| data.join(format!("jsonl/{table}.jsonl")));
    let clock = Clock::start();
    let (lake, report) = phases::import_files(&folder, &sources).await?;
    let calls = report.tables.get("calls").map_or(0, |count| count.added);
    clock.stop(json!(calls), Some(table_bytes(&lake, "calls").await?), Value::Null)
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

async fn broadcast(data: &Path) -> Result<(), Box<dyn Error>> {
    let session = open(&data.join("lake")).await?;
    let clock = Clock::start();
    let (mut sum, mut tokens) = (0.0, 0_u64);
    let mut rows = session.stream(BROADCAST).await?;
    while let Some(batch) = rows.try_next().await? {
        let advantages = batch.column(0).as_list::<i32>().values().as_primitive::<Float64Type>();
        tokens += advantages.len() as u64;
        // A null's value is not a number.
        sum += advantages.values().iter().filter(|value| value.is_finite()).map(|value| value.abs()).sum::<f64>();
    }
    clock.stop(json!(sum), Some(tokens * 8), json!({ "tokens": tokens }))
}

async fn audit(data: &Path, checks: &[&str], at: Option<u64>) -> Result<(), Box<dyn Error>> {
    let session = open_at(&data.join("lake"), at).await?;
    let clock = Clock::start();
    let report = phases::audit(&session, checks).await?;
    let found: Vec<u64> = report.checks.iter().map(|count| count.violation).collect();
    clock.stop(json!(found), None, Value::Null)
}

async fn columns(data: &Path) -> Result<(), Box<dyn Error>> {
    let session = open(&data.join("lake")).await?;
    let clock = Clock::start();
    let rows = phases::read_needs(&session).await?;
    clock.stop(json!(rows), None, Value::Null)
}

async fn export_rows(data: &Path) -> Result<(), Box<dyn Error>> {
    let session = open(&data.join("lake")).await?;
    let clock = Clock::start();
    let (tokens, bytes) = phases::export_build(&session, &data.join("exported")).await?;
    clock.stop(json!(tokens), Some(bytes), Value::Null)
}

async fn lookup(data: &Path) -> Result<(), Box<dyn Error>> {
    let rollouts = lake_at(&data.join("lake")).await?.snapshot().await?.table("rollouts").rows();
    // The one the peer looks for: neither first nor last in its file.
    let id = nth_rollout_id(rollouts * 7 / 9);
    let clock = Clock::start();
    let lake = lake_at(&data.join("lake")).await?;
    let session = phases::session(&lake, None).await?;
    let sql = format!(
        "SELECT call_id, prompt_token_ids, output_token_ids, output_logprobs FROM calls WHERE rollout_id = '{id}'"
    );
    let rows = session.collect(&sql).await?;
    let tokens: usize = rows.iter().map(|batch| batch.column(1).as_list::<i32>().values().len()).sum();
    let calls: usize = rows.iter().map(RecordBatch::num_rows).sum();
    // As a store over HTTP would be asked, from the opening of the lake on.
    let requests = json!({ "requests": lake.requests().total(), "bytes read": lake.bytes_read() });
    clock.stop(json!([calls, tokens]), None, requests)
}
