//! Files of several row groups, decoded by several partitions.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Int32Array, ListArray, RecordBatch};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{DataType, Int32Type};
use rollbook_lake::WriterLimits;
use rollbook_lake::codec::Encoder;
use serde_json::json;

use crate::fixture::{Scratch, batch};
use crate::session::{Session, SessionOptions};

/// Ids that no compression makes smaller.
struct Ids(u64);

impl Ids {
    fn take(&mut self, count: usize) -> Vec<i32> {
        let mut next = || {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            i32::try_from(self.0 >> 33).unwrap()
        };
        (0..count).map(|_| next()).collect()
    }
}

/// Rollouts whose prompts grow by so many tokens a call, half of them sampled: rows a call, and the prompt of each.
fn calls(rollouts: usize, calls: usize, new: usize) -> (Vec<RecordBatch>, BTreeMap<String, Vec<i32>>) {
    let mut ids = Ids(7);
    let (mut rows, mut prompts) = (Vec::new(), BTreeMap::new());
    for rollout in 0..rollouts {
        let mut prompt = ids.take(50);
        for call in 0..calls {
            let output = ids.take(new / 2);
            let name = format!("r{rollout:02}c{call}");
            let keys = json!([{"run_id": "r", "step": 0, "group_id": "g", "rollout_id": format!("r{rollout:02}"),
                "call_id": name, "call_index": call, "prompt_token_ids": [], "output_token_ids": []}]);
            rows.push(with_tokens(&batch("calls", &keys), &prompt, &output));
            prompts.insert(name, prompt.clone());
            prompt.extend(output);
            prompt.extend(ids.take(new / 2));
        }
    }
    (rows, prompts)
}

fn with_tokens(row: &RecordBatch, prompt: &[i32], output: &[i32]) -> RecordBatch {
    let columns = row.schema_ref().fields().iter().zip(row.columns()).map(|(field, column)| -> ArrayRef {
        let tokens = match (field.name().as_str(), field.data_type()) {
            ("prompt_token_ids", DataType::List(item)) => (item, prompt),
            ("output_token_ids", DataType::List(item)) => (item, output),
            _ => return Arc::clone(column),
        };
        let values = Arc::new(Int32Array::from(tokens.1.to_vec()));
        Arc::new(ListArray::new(Arc::clone(tokens.0), OffsetBuffer::from_lengths([tokens.1.len()]), values, None))
    });
    RecordBatch::try_new(row.schema(), columns.collect()).unwrap()
}

/// A lake of one file whose row groups are small.
async fn lake_of(rows: &[RecordBatch]) -> Scratch {
    let scratch = Scratch::new().await;
    let limits = WriterLimits { row_group_bytes: 100_000, ..WriterLimits::default() };
    let mut writer = scratch.lake.writer_with(rollbook_schema::table("calls").unwrap(), limits);
    let mut encoder = Encoder::new(1 << 20);
    for row in rows {
        writer.write(&encoder.encode(row).unwrap()).await.unwrap();
    }
    let files = writer.finish().await.unwrap();
    assert_eq!(files.len(), 1);
    scratch.publish("calls", files).await;
    scratch
}

async fn prompts_of(session: &Session, sql: &str) -> BTreeMap<String, Vec<i32>> {
    let mut found = BTreeMap::new();
    for rows in session.collect(sql).await.unwrap() {
        let (ids, prompts) = (rows.column(0).as_string::<i32>(), rows.column(1).as_list::<i32>());
        for row in 0..rows.num_rows() {
            let prompt = prompts.value(row).as_primitive::<Int32Type>().values().to_vec();
            assert!(found.insert(ids.value(row).to_owned(), prompt).is_none());
        }
    }
    found
}

async fn plan_of(session: &Session, sql: &str) -> String {
    let plan = session.sql(sql).await.unwrap().create_physical_plan().await.unwrap();
    datafusion::physical_plan::displayable(plan.as_ref()).indent(false).to_string()
}

const PROMPTS: &str = "SELECT call_id, prompt_token_ids FROM calls";

#[tokio::test(flavor = "multi_thread")]
async fn partitions_share_a_file_whose_row_groups_hold_whole_rollouts() {
    let (rows, expected) = calls(20, 6, 3_000);
    let scratch = lake_of(&rows).await;
    let session = scratch.session().await;
    let plan = plan_of(&session, PROMPTS).await;
    assert!(plan.contains("2 groups"), "{plan}");
    assert_eq!(prompts_of(&session, PROMPTS).await, expected);
    let one = prompts_of(&session, &format!("{PROMPTS} WHERE rollout_id = 'r13' AND call_index > 2")).await;
    assert_eq!(one.keys().collect::<Vec<_>>(), ["r13c3", "r13c4", "r13c5"]);
    assert!(one.iter().all(|(call, prompt)| expected[call] == *prompt));
    let first = session.collect(&format!("{PROMPTS} ORDER BY call_id LIMIT 7")).await.unwrap();
    assert_eq!(first.iter().map(RecordBatch::num_rows).sum::<usize>(), 7);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_partition_reads_a_file_whose_row_groups_end_within_a_rollout() {
    let (rows, expected) = calls(1, 9, 40_000);
    let scratch = lake_of(&rows).await;
    let session = scratch.session().await;
    let plan = plan_of(&session, PROMPTS).await;
    assert!(plan.contains("1 group"), "{plan}");
    assert_eq!(prompts_of(&session, PROMPTS).await, expected);
}

#[tokio::test]
async fn one_thread_reads_files_as_they_were_written() {
    let scratch = Scratch::new().await;
    let mut written = Vec::new();
    // Their names are drawn: that they ascend by chance does not happen.
    for rollout in 0..12 {
        let name = format!("r{:02}", 11 - rollout);
        let keys = json!([{"run_id": "r", "step": 0, "group_id": "g", "rollout_id": name, "call_id": name,
            "call_index": 0, "prompt_token_ids": [1], "output_token_ids": [2]}]);
        let mut writer = scratch.lake.writer(rollbook_schema::table("calls").unwrap());
        writer.write(&Encoder::new(1 << 20).encode(&batch("calls", &keys)).unwrap()).await.unwrap();
        scratch.publish("calls", writer.finish().await.unwrap()).await;
        written.push(name);
    }
    let options = SessionOptions { threads: 1, ..SessionOptions::default() };
    let session = Session::open(&scratch.lake, None, options).await.unwrap();
    let batches = session.collect("SELECT call_id FROM calls").await.unwrap();
    let texts = batches.iter().flat_map(|batch| batch.column(0).as_string::<i32>().iter().flatten());
    assert_eq!(texts.collect::<Vec<_>>(), written);
}
