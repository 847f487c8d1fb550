//! Compaction of a run that arrived in pieces: no row changes, prompts are stored as if one import had brought them.

use rollbook_testing::calculator_run;
use rollbook_tests::Scratch;
use serde_json::{Value, json};

const PIECES: usize = 6;

/// What anybody can see of calls, but for the file-bound `parent_prefix_len`.
const CALLS: &str = "SELECT call_id, step, group_id, rollout_id, call_index, parent_call_id, prompt_len, prompt_digest, \
                     token_digest(prompt_token_ids) AS digest, request, output_token_ids, output_logprobs, import_id \
                     FROM calls ORDER BY call_id";

/// Calls come first, each rollout's spread over all pieces; the rollouts that tell their steps come last.
fn arrive_in_pieces(scratch: &Scratch) {
    calculator_run::write_tables(&scratch.path("run")).unwrap();
    let calls = scratch.read("run/calls.jsonl");
    std::fs::remove_file(scratch.path("run/calls.jsonl")).unwrap();
    let strip = |line: &str| {
        let mut row: Value = serde_json::from_str(line).unwrap();
        let fields = row.as_object_mut().unwrap();
        fields.remove("step");
        fields.remove("group_id");
        row.to_string()
    };
    scratch.ok(&["init", "lake"]);
    for piece in 0..PIECES {
        let lines: Vec<String> = calls.lines().skip(piece).step_by(PIECES).map(strip).collect();
        let folder = format!("piece-{piece}");
        std::fs::create_dir(scratch.path(&folder)).unwrap();
        scratch.write(&format!("{folder}/calls.jsonl"), lines.join("\n"));
        scratch.ok(&["import", "tables", &folder, "--lake", "lake"]);
    }
    scratch.ok(&["import", "tables", "run", "--lake", "lake"]);
}

#[test]
fn a_run_in_pieces_becomes_one_file_and_the_same_rows() {
    let scratch = Scratch::new();
    arrive_in_pieces(&scratch);
    let rows = |at: &str| scratch.ok(&["sql", "-c", CALLS, "--lake", "lake", "--format", "ndjson", "--at", at]).text();
    let before = rows("7");
    assert_eq!(before.lines().count(), 1335);
    let report = scratch.ok(&["compact", "--lake", "lake", "--format", "json"]).json();
    assert_eq!(report["snapshot"], json!(8));
    let calls = &report["tables"]["calls"];
    assert_eq!([&calls["files_before"], &calls["files_after"], &calls["rows"]], [&json!(6), &json!(1), &json!(1335)]);
    assert!(calls["bytes_after"].as_u64() < calls["bytes_before"].as_u64(), "{calls}");
    assert_eq!(rows("8"), before);
    assert_eq!(rows("7"), before);
    // The run's README counts the extensions among the declared transitions; in one file no token is needed to see them.
    let unknown = "SELECT count(*) FROM calls WHERE parent_call_id IS NOT NULL AND parent_prefix_len IS NULL";
    assert_eq!(scratch.number("lake", unknown), 0);
    // As many suffix tokens as an import of the whole run stores, counted by a reader that is not ours.
    assert_eq!(scratch.python("stored_tokens.py", &["lake"])["suffix_tokens"], json!(92_884));
    let again = scratch.ok(&["compact", "--lake", "lake", "--format", "json"]).json();
    assert_eq!(again["snapshot"], Value::Null);
}
