//! The same real run in both formats gives the same calls.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{Array, ListArray};
use arrow::compute::{SortColumn, lexsort_to_indices, take_record_batch};
use arrow::datatypes::Int32Type;
use arrow::record_batch::RecordBatch;
use tempfile::TempDir;

use super::{Gathered, cell, gather};
use crate::{ImportOptions, importer};

/// Unpacks the run as the repository ships it.
fn unpack(folder: &str, target: &Path) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(folder);
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let Some(name) = path.file_name().unwrap().to_str().unwrap().strip_suffix(".zst").map(str::to_owned) else {
            continue;
        };
        let bytes = zstd::decode_all(fs::File::open(path).unwrap()).unwrap();
        fs::write(target.join(name), bytes).unwrap();
    }
}

fn read(name: &str, path: PathBuf) -> Gathered {
    gather(importer(name).unwrap(), &[path], &ImportOptions { run_id: None, strict: true }).unwrap()
}

pub(crate) fn both() -> (Gathered, Gathered) {
    let (tables, log) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    unpack("rollbook-cli/quickstart/calculator-run", tables.path());
    unpack("rollbook-testing/fixtures/calculator-run", log.path());
    let path = |folder: &TempDir| folder.path().to_owned();
    (read("tables", path(&tables)), read("openai-log", path(&log)))
}

fn sorted(batch: &RecordBatch, key: &str) -> RecordBatch {
    let column = SortColumn { values: Arc::clone(batch.column_by_name(key).unwrap()), options: None };
    take_record_batch(batch, &lexsort_to_indices(&[column], None).unwrap()).unwrap()
}

fn tokens(batch: &RecordBatch, column: &str) -> usize {
    let lists = batch.column_by_name(column).unwrap().as_any().downcast_ref::<ListArray>().unwrap();
    arrow::array::AsArray::as_primitive::<Int32Type>(lists.values().as_ref()).len()
}

#[test]
fn both_formats_give_the_same_calls() {
    let (tables, log) = both();
    let (ours, theirs) = (sorted(&tables.tables["calls"], "call_id"), sorted(&log.tables["calls"], "call_id"));
    let same = [
        "run_id",
        "step",
        "group_id",
        "rollout_id",
        "call_id",
        "call_index",
        "parent_call_id",
        "turn_index",
        "kind",
        "break_reason",
        "prompt_token_ids",
        "prompt_exactness",
        "output_token_ids",
        "output_exactness",
        "output_logprobs",
        "logprobs_source",
        "policy_version",
        "output_text",
        "temperature",
        "finish_reason",
        "started_at",
        "finished_at",
        "model",
    ];
    for column in same {
        assert_eq!(ours.column_by_name(column), theirs.column_by_name(column), "{column}");
    }
    let (ours, theirs) = (&tables.tables["rollouts"], &log.tables["rollouts"]);
    let (ours, theirs) = (sorted(ours, "rollout_id"), sorted(theirs, "rollout_id"));
    for column in ["run_id", "rollout_id", "step", "group_id", "task_id"] {
        assert_eq!(ours.column_by_name(column), theirs.column_by_name(column), "{column}");
    }
}

/// The figures are the data's own README.
#[test]
fn the_counts_are_those_of_the_readme() {
    let (tables, log) = both();
    for gathered in [&tables, &log] {
        let calls = &gathered.tables["calls"];
        assert_eq!((gathered.rows("runs"), gathered.rows("rollouts"), calls.num_rows()), (1, 384, 1335));
        assert_eq!(tokens(calls, "prompt_token_ids"), 248_300);
        assert_eq!(tokens(calls, "output_token_ids"), 16_379);
        let logprobs = calls.column_by_name("output_logprobs").unwrap();
        let logprobs = logprobs.as_any().downcast_ref::<ListArray>().unwrap();
        assert_eq!(logprobs.values().null_count(), 8);
    }
    assert_eq!(tables.rows("scores"), 384);
    assert_eq!(tables.rows("environment_records"), 1000);
    assert_eq!(tables.notes, Vec::<String>::new());
    assert_eq!(log.notes, Vec::<String>::new());
    assert_eq!(tables.order, ["runs", "policies", "encodings", "rollouts", "calls", "environment_records", "scores"]);
}

#[test]
fn stored_json_is_compact_and_the_response_without_its_arrays() {
    let (tables, log) = both();
    let response = cell(&log.tables["calls"], "response", 0);
    assert!(response.starts_with("{\"id\":\"chatcmpl-call-"), "{response}");
    assert!(!response.contains("token_ids") && !response.contains("logprob\""), "{response}");
    let request = cell(&tables.tables["calls"], "request", 0);
    assert!(request.starts_with("{\"messages\":[{\"role\":\"system\",\"content\":\"Solve the task"), "{request}");
    assert_eq!(cell(&log.tables["calls"], "usage_prompt_tokens", 0), "138");
    assert_eq!(cell(&log.tables["calls"], "sampling", 0), "{\"temperature\":1.0,\"logprobs\":true}",);
}
