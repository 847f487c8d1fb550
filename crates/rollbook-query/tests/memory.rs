//! 8,192 calls of 60k prompt tokens (2 GB of prompts) stay below 1 GB: streamed, filtered, sorted with spilling, joined.
//!
//! Peak memory is the process's, so the questions take turns where they share one.

#![expect(clippy::unwrap_used, reason = "a test that cannot set its stage fails")]
#![expect(clippy::print_stderr, reason = "the peak is worth reading where the test passes, too")]

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{Array, AsArray, Int32Array, Int32Builder, ListBuilder, RecordBatch, StringArray, new_null_array};
use arrow::datatypes::DataType;
use async_trait::async_trait;
use futures::StreamExt;
use rollbook_lake::{Change, DataFile, Entry, Intent, Lake, LakeOptions, Prepare, Snapshot};
use rollbook_query::{Session, SessionOptions};
use tempfile::TempDir;
use tokio::sync::Mutex;

const CALLS: usize = 8_192;
const ROLLOUTS: usize = 4;
const FIRST_PROMPT: usize = 58_976;
const PER_ROLLOUT: usize = CALLS / ROLLOUTS;
const LIMIT: usize = 1 << 30;

/// One chain: each call's prompt is the context before it; each output is one token.
fn chain(rollout: usize) -> RecordBatch {
    let table = rollbook_schema::table("calls").unwrap();
    let schema = table.physical();
    let name = format!("rollout-{rollout}");
    let columns = schema
        .fields()
        .iter()
        .map(|field| -> Arc<dyn Array> {
            let indices = || (0..i32::try_from(PER_ROLLOUT).unwrap()).collect::<Int32Array>();
            let context = |index: i32| i32::try_from(FIRST_PROMPT).unwrap() + index;
            match field.name().as_str() {
                "run_id" => Arc::new(StringArray::from(vec!["run"; PER_ROLLOUT])),
                "rollout_id" => Arc::new(StringArray::from(vec![name.as_str(); PER_ROLLOUT])),
                // Spread, so that sorting by it moves every row.
                "call_id" => Arc::new(
                    (0..PER_ROLLOUT)
                        .map(|index| Some(format!("{:04}-{rollout}", (index * 997) % PER_ROLLOUT)))
                        .collect::<StringArray>(),
                ),
                "stored_index" | "call_index" => Arc::new(indices()),
                "base_index" => {
                    Arc::new(indices().iter().map(|i| i.filter(|i| *i > 0).map(|i| i - 1)).collect::<Int32Array>())
                }
                "base_len" => {
                    Arc::new(indices().iter().map(|i| i.filter(|i| *i > 0).map(context)).collect::<Int32Array>())
                }
                "prompt_len" => Arc::new(indices().iter().map(|i| i.map(context)).collect::<Int32Array>()),
                "output_len" => Arc::new(Int32Array::from(vec![1; PER_ROLLOUT])),
                "prompt_suffix" => lists(field.data_type(), |index| if index == 0 { FIRST_PROMPT } else { 0 }),
                "output_token_ids" => lists(field.data_type(), |_| 1),
                _ => new_null_array(field.data_type(), PER_ROLLOUT),
            }
        })
        .collect();
    RecordBatch::try_new(schema, columns).unwrap()
}

fn lists(data_type: &DataType, length: impl Fn(usize) -> usize) -> Arc<dyn Array> {
    let item = match data_type {
        DataType::List(item) => Some(item),
        _ => None,
    }
    .unwrap();
    let mut builder = ListBuilder::new(Int32Builder::new()).with_field(Arc::clone(item));
    for index in 0..PER_ROLLOUT {
        for place in 0..length(index) {
            // As varied as tokens are, so that nothing compresses away.
            let token = (place * 7_919 + index * 31) % 50_021;
            builder.values().append_value(i32::try_from(token).unwrap());
        }
        builder.append(true);
    }
    Arc::new(builder.finish())
}

struct Add(Vec<DataFile>);

#[async_trait]
impl Prepare for Add {
    async fn changes(&mut self, _head: &Snapshot, _won: &[Entry]) -> rollbook_lake::Result<Vec<Change>> {
        Ok(vec![Change { table: "calls".to_owned(), add: self.0.clone(), remove: Vec::new() }])
    }
}

async fn lake(folder: &TempDir) -> Lake {
    let options = LakeOptions { env: BTreeMap::new(), clock: Arc::new(|| 0), author: "test".to_owned() };
    let lake = Lake::init(folder.path().join("lake").to_str().unwrap(), options).await.unwrap();
    let mut writer = lake.writer(rollbook_schema::table("calls").unwrap());
    for rollout in 0..ROLLOUTS {
        writer.write(&chain(rollout)).await.unwrap();
    }
    let files = writer.finish().await.unwrap();
    let base = lake.snapshot().await.unwrap();
    lake.commit(base, Intent::append("add"), &mut Add(files)).await.unwrap();
    lake
}

/// One question at a time.
static TURN: Mutex<()> = Mutex::const_new(());

/// Streams a statement; returns its rows and the tokens in its last column.
async fn run(memory_limit: usize, sql: &str) -> (usize, usize) {
    let _turn = TURN.lock().await;
    let folder = tempfile::tempdir().unwrap();
    let lake = lake(&folder).await;
    let options = SessionOptions { memory_limit, threads: 2, spill_dir: Some(folder.path().to_owned()) };
    let session = Session::open(&lake, None, options).await.unwrap();
    let mut stream = session.stream(sql).await.unwrap();
    let (mut rows, mut tokens, mut largest) = (0, 0, 0);
    while let Some(batch) = stream.next().await {
        let batch = batch.unwrap();
        rows += batch.num_rows();
        let prompts = batch.columns().last().unwrap().as_list::<i32>();
        tokens += prompts.offsets().lengths().sum::<usize>();
        largest = largest.max(batch.num_rows());
    }
    let peak = peak_bytes();
    eprintln!("{sql}: {rows} rows, {tokens} tokens, at most {largest} rows a batch, peak {} MB", peak >> 20);
    assert!(peak < LIMIT, "peak {peak} bytes");
    (rows, tokens)
}

/// The most memory this process has had.
fn peak_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() << 10
}

/// What the lake holds, worked out by hand: n prompts of length f, f + 1, … in each rollout.
fn all() -> (usize, usize) {
    (CALLS, ROLLOUTS * (PER_ROLLOUT * FIRST_PROMPT + PER_ROLLOUT * (PER_ROLLOUT - 1) / 2))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streaming_all_prompts() {
    assert_eq!(run(256 << 20, "SELECT call_id, prompt_token_ids FROM calls").await, all());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn below_a_filter() {
    let sql = "SELECT call_id, prompt_token_ids FROM calls WHERE call_index % 2 = 0 AND prompt_token_ids[1] = 0";
    assert_eq!(run(256 << 20, sql).await.0, CALLS / 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn below_a_sort_that_spills() {
    assert_eq!(run(512 << 20, "SELECT call_id, prompt_token_ids FROM calls ORDER BY call_id").await, all());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn below_a_repartition() {
    let sql = "SELECT c.call_id, c.prompt_token_ids FROM calls AS c JOIN (SELECT call_id, count(*) FROM calls GROUP BY call_id) AS d ON c.call_id = d.call_id";
    assert_eq!(run(384 << 20, sql).await, all());
}
