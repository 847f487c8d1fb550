//! Imports in little memory: rows that exceed it are sorted on disk, and what is stored is the same.

use rollbook_testing::generate::write::{Format, write_tables};
use rollbook_testing::generate::{Generator, Options, Size};
use rollbook_tests::Scratch;

/// Eight rollouts of forty turns: their rows are some 3 MB as prefix deltas, shared by eight tables' sorts.
#[test]
fn an_import_beyond_its_memory_spills_and_stores_the_same() {
    let scratch = Scratch::new();
    let options = Options { groups: 2, turns: 40.0, ..Options::of(Size::S) };
    write_tables(&scratch.path("run"), Generator::new(options), Format::Parquet).unwrap();
    for (lake, limit) in [("roomy", "512"), ("tight", "8")] {
        scratch.ok(&["init", lake]);
        scratch.ok(&["import", "tables", "run", "--lake", lake, "--memory-limit", limit]);
    }
    let tables = [
        ("rollouts", "rollout_id"),
        ("calls", "call_id"),
        ("environment_records", "record_id"),
        ("scores", "score_id"),
        ("policies", "policy_version"),
    ];
    for (table, key) in tables {
        let columns = match table {
            "calls" => {
                "call_id, prompt_digest, prompt_token_ids[length(prompt_token_ids)] AS last, output_token_ids, output_logprobs, parent_prefix_len"
            }
            _ => "*",
        };
        let sql = format!("SELECT {columns} FROM {table} ORDER BY {key}");
        let rows = |lake: &str| scratch.ok(&["sql", "-c", &sql, "--lake", lake, "--format", "ndjson"]).text();
        let without_import = |text: String| -> Vec<serde_json::Value> {
            text.lines()
                .map(|line| {
                    let mut row: serde_json::Value = serde_json::from_str(line).unwrap();
                    let fields = row.as_object_mut().unwrap();
                    fields.remove("import_id");
                    fields.remove("created_at");
                    row
                })
                .collect()
        };
        let (roomy, tight) = (without_import(rows("roomy")), without_import(rows("tight")));
        assert!(!roomy.is_empty(), "{table} is empty");
        assert_eq!(roomy, tight, "{table}");
    }
}
