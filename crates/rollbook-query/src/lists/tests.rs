//! Against `DataFusion`'s own reader: the same plan without the operator.

use std::collections::BTreeMap;
use std::fs::File;
use std::sync::Arc;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::Int64Type;
use arrow::util::display::array_value_to_string;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::datasource::MemTable;
use datafusion::physical_plan::{ExecutionPlan, collect, displayable};
use datafusion::prelude::SessionContext;
use parquet::file::reader::{FileReader, SerializedFileReader};
use rollbook_lake::WriterLimits;
use rollbook_lake::codec::Encoder;
use serde_json::{Value, json};

use super::ListsExec;
use crate::fixture::{Scratch, batch};
use crate::session::Session;

/// One call; lengths, nulls and masks differ from call to call.
fn call(file: usize, rollout: usize, index: usize) -> Value {
    let length = (rollout * 31 + index * 17) % 97;
    let ids: Vec<usize> = (0..length).map(|n| (n * n + 7 * file + 3 * rollout + index) % 200_000).collect();
    let logprobs: Vec<Option<f64>> =
        (0_u32..97).take(length).map(|n| (n % 11 != 3).then_some(-0.25 * f64::from(n))).collect();
    let mut call = json!({"run_id": "r", "step": rollout / 7, "group_id": "g", "rollout_id": format!("f{file}r{rollout:02}"),
        "call_id": format!("f{file}r{rollout:02}c{index}"), "call_index": index, "prompt_token_ids": [1, 2, 3],
        "output_token_ids": ids, "output_len": length});
    if index % 3 != 1 {
        call["output_logprobs"] = json!(logprobs);
    }
    if index % 4 == 2 {
        call["sampled_mask"] = json!((0..length).map(|n| n % 5 != 0).collect::<Vec<_>>());
    }
    call
}

/// Three files of several row groups each.
async fn lake() -> Scratch {
    let scratch = Scratch::new().await;
    for number in 0..3 {
        let limits = WriterLimits { row_group_bytes: 4_000, ..WriterLimits::default() };
        let mut writer = scratch.lake.writer_with(rollbook_schema::table("calls").unwrap(), limits);
        let mut encoder = Encoder::new(1 << 20);
        for rollout in 0..20 {
            let rows: Vec<Value> = (0..7).map(|index| call(number, rollout, index)).collect();
            writer.write(&encoder.encode(&batch("calls", &Value::Array(rows))).unwrap()).await.unwrap();
        }
        let files = writer.finish().await.unwrap();
        for file in &files {
            let path = scratch.folder.path().join("lake").join(&file.path);
            let groups = SerializedFileReader::new(File::open(path).unwrap()).unwrap().num_row_groups();
            assert!(groups > 2, "{groups} row groups");
        }
        scratch.publish("calls", files).await;
    }
    scratch
}

/// Rows by their first column.
fn by_id(batches: &[RecordBatch]) -> BTreeMap<String, Vec<String>> {
    let mut rows = BTreeMap::new();
    for batch in batches {
        for row in 0..batch.num_rows() {
            let values = batch.columns().iter().map(|column| array_value_to_string(column, row).unwrap());
            let mut values: Vec<String> = values.collect();
            let id = values.remove(0);
            assert_eq!(rows.insert(id, values), None, "a row comes twice");
        }
    }
    rows
}

async fn plan(session: &Session, sql: &str) -> Arc<dyn ExecutionPlan> {
    session.sql(sql).await.unwrap().create_physical_plan().await.unwrap()
}

async fn rows(session: &Session, plan: Arc<dyn ExecutionPlan>) -> BTreeMap<String, Vec<String>> {
    by_id(&collect(plan, session.sql("SELECT 1").await.unwrap().task_ctx().into()).await.unwrap())
}

fn without(plan: Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
    let taken_out = plan.transform_up(|node| {
        let input =
            node.downcast_ref::<ListsExec>().and_then(|lists| lists.children().first().map(|&input| Arc::clone(input)));
        Ok(input.map_or_else(|| Transformed::no(node), Transformed::yes))
    });
    taken_out.unwrap().data
}

fn shown(plan: &Arc<dyn ExecutionPlan>) -> String {
    displayable(plan.as_ref()).indent(false).to_string()
}

#[tokio::test]
async fn rows_are_those_of_the_scan() {
    let scratch = lake().await;
    let session = scratch.session().await;
    for (sql, count) in [
        ("SELECT call_id, output_token_ids, output_logprobs, sampled_mask FROM calls", 420),
        ("SELECT call_id, output_token_ids, output_logprobs FROM calls WHERE output_len > 60", 159),
        ("SELECT call_id, output_logprobs, step FROM calls WHERE rollout_id = 'f1r13'", 7),
        ("SELECT call_id, output_logprobs, sampled_mask FROM calls WHERE call_index = 6 AND step = 1", 21),
        ("SELECT call_id, sampled_mask FROM calls WHERE call_id = 'f2r19c2'", 1),
        ("SELECT call_id, prompt_token_ids, output_token_ids FROM calls WHERE step = 2", 126),
        (
            "SELECT calls.call_id, calls.output_token_ids FROM calls JOIN \
             (SELECT call_id FROM calls WHERE call_index = 2 AND output_len < 20) AS few ON calls.call_id = few.call_id",
            9,
        ),
        (
            "SELECT calls.call_id, calls.output_logprobs FROM calls JOIN \
             (SELECT call_id FROM calls WHERE call_index = 5 AND output_len > 90) AS few ON calls.call_id = few.call_id",
            6,
        ),
    ] {
        let with = plan(&session, sql).await;
        assert!(shown(&with).contains("ListsExec: lists=["), "{}", shown(&with));
        let found = rows(&session, Arc::clone(&with)).await;
        let expected = rows(&session, without(plan(&session, sql).await)).await;
        assert_eq!(found, expected, "{sql}");
        assert_eq!(found.len(), count, "{sql}");
    }
}

#[tokio::test]
async fn a_limit_stays_one() {
    let scratch = lake().await;
    let session = scratch.session().await;
    let all = rows(&session, plan(&session, "SELECT call_id, output_token_ids FROM calls").await).await;
    let some = rows(&session, plan(&session, "SELECT call_id, output_token_ids FROM calls LIMIT 9").await).await;
    assert_eq!(some.len(), 9);
    assert!(some.iter().all(|(id, row)| all.get(id) == Some(row)));
}

#[tokio::test]
async fn scans_without_lists_are_left_alone() {
    let scratch = lake().await;
    let session = scratch.session().await;
    let plan = plan(&session, "SELECT call_id, output_len FROM calls").await;
    assert!(!shown(&plan).contains("ListsExec"), "{}", shown(&plan));
}

#[tokio::test]
async fn a_damaged_page_is_told_with_file_and_column() {
    let scratch = lake().await;
    let file = scratch.lake.snapshot().await.unwrap().table("calls").files[0].path.clone();
    let path = scratch.folder.path().join("lake").join(&file);
    let reader = SerializedFileReader::new(File::open(&path).unwrap()).unwrap();
    let columns = reader.metadata().row_group(0).columns();
    let ids = columns.iter().find(|column| column.column_path().string().starts_with("output_token_ids")).unwrap();
    let (start, length) = ids.byte_range();
    let mut bytes = std::fs::read(&path).unwrap();
    for byte in &mut bytes[usize::try_from(start).unwrap()..usize::try_from(start + length).unwrap()] {
        *byte = 0xff;
    }
    std::fs::write(&path, bytes).unwrap();
    let session = scratch.session().await;
    let error = session.collect("SELECT call_id, output_token_ids FROM calls").await.unwrap_err().to_string();
    assert!(error.contains(&file) && error.contains("output_token_ids"), "{error}");
}

/// The same calls in memory, for `DataFusion` as it comes.
async fn in_memory(session: &Session) -> SessionContext {
    let columns = "call_id, step, call_index, output_len, output_token_ids, output_logprobs, sampled_mask";
    let rows = session.collect(&format!("SELECT {columns} FROM calls")).await.unwrap();
    let context = SessionContext::new();
    let table = MemTable::try_new(rows[0].schema(), vec![rows]).unwrap();
    context.register_table("calls", Arc::new(table)).unwrap();
    context
}

#[tokio::test]
async fn what_is_made_of_lists_is_what_datafusion_makes() {
    let scratch = lake().await;
    let session = scratch.session().await;
    let memory = in_memory(&session).await;
    for (sql, reads, count) in [
        // Lengths alone, of lists that are there, empty, or null.
        (
            "SELECT call_id, cardinality(output_logprobs), array_length(sampled_mask) FROM calls",
            "cardinality(output_logprobs), cardinality(sampled_mask)",
            420,
        ),
        (
            "SELECT call_id FROM calls WHERE sampled_mask IS NULL AND output_logprobs IS NOT NULL",
            "cardinality(output_logprobs), cardinality(sampled_mask)",
            180,
        ),
        (
            "SELECT call_id, output_len FROM calls WHERE cardinality(sampled_mask) < output_len + 1 AND step = 1",
            "cardinality(sampled_mask)",
            42,
        ),
        (
            "SELECT call_id, coalesce(cardinality(output_logprobs), 7) + output_len AS n, call_index FROM calls \
            WHERE call_index < 3",
            "cardinality(output_logprobs)",
            180,
        ),
        (
            "SELECT call_id, 60 / (output_len - 31) AS n FROM calls WHERE cardinality(sampled_mask) <> 31",
            "cardinality(sampled_mask)",
            120,
        ),
        // A list that is read needs no length besides.
        (
            "SELECT call_id, output_logprobs, cardinality(output_logprobs) FROM calls WHERE output_logprobs IS NOT NULL",
            "output_logprobs",
            300,
        ),
        (
            "SELECT call_id, array_sum(output_token_ids), sampled_mask[2] FROM calls \
            WHERE cardinality(output_token_ids) = output_len AND output_token_ids[1] > 40",
            "output_token_ids, sampled_mask",
            193,
        ),
        (
            "SELECT call_id, array_to_string(output_logprobs, ' ') AS text, step FROM calls \
            WHERE cardinality(sampled_mask) > 3 OR (step = 2 AND output_logprobs IS NULL)",
            "output_logprobs, cardinality(sampled_mask)",
            153,
        ),
    ] {
        let with = plan(&session, sql).await;
        assert!(shown(&with).contains(&format!("ListsExec: lists=[{reads}]")), "{sql}\n{}", shown(&with));
        let found = rows(&session, Arc::clone(&with)).await;
        let expected = by_id(&memory.sql(sql).await.unwrap().collect().await.unwrap());
        assert_eq!(found, expected, "{sql}");
        assert_eq!(found.len(), count, "{sql}");
    }
}

#[tokio::test]
async fn our_own_length_reads_no_value() {
    let scratch = lake().await;
    let session = scratch.session().await;
    let sql = "SELECT call_id, len(output_logprobs) AS n FROM calls WHERE length(sampled_mask) = output_len";
    let with = plan(&session, sql).await;
    let reads = "ListsExec: lists=[cardinality(output_logprobs), cardinality(sampled_mask)]";
    assert!(shown(&with).contains(reads), "{}", shown(&with));
    let expected = sql.replace("len(output_logprobs)", "output_logprobs");
    let lists = session.collect(&expected).await.unwrap();
    let lengths =
        lists.iter().flat_map(|batch| batch.column(1).as_list::<i32>().iter().map(|list| list.map(|list| list.len())));
    let found = session.collect(sql).await.unwrap();
    let found = found.iter().flat_map(|batch| batch.column(1).as_primitive::<Int64Type>().iter());
    let (mut lengths, mut found): (Vec<_>, Vec<_>) =
        (lengths.collect(), found.map(|n| n.map(|n| usize::try_from(n).unwrap())).collect());
    lengths.sort_unstable();
    found.sort_unstable();
    assert_eq!(found, lengths);
    assert_eq!(found.len(), 120);
}

#[tokio::test]
async fn a_limit_counts_rows_that_pass() {
    let scratch = lake().await;
    let session = scratch.session().await;
    let sql = "SELECT call_id, cardinality(sampled_mask) AS n FROM calls WHERE sampled_mask IS NOT NULL LIMIT 50";
    let found = rows(&session, plan(&session, sql).await).await;
    assert_eq!(found.len(), 50);
    assert!(found.values().all(|row| !row[0].is_empty()), "{found:?}");
}

#[tokio::test]
async fn rows_are_counted_where_no_column_is_read() {
    let scratch = lake().await;
    let session = scratch.session().await;
    for (sql, count) in [
        ("SELECT count(*) FROM calls WHERE output_logprobs IS NULL", "120"),
        ("SELECT count(*) FROM calls WHERE cardinality(output_token_ids) = 0", "6"),
    ] {
        let found = session.collect(sql).await.unwrap();
        assert_eq!(array_value_to_string(found[0].column(0), 0).unwrap(), count, "{sql}");
    }
}
