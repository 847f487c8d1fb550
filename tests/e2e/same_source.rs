//! What an import adds, and what it leaves alone: the same source twice, dry runs, strict ones, rejects.

use rollbook_testing::calculator_run;
use rollbook_tests::Scratch;
use serde_json::{Value, json};

#[test]
fn the_same_source_twice_adds_nothing() {
    let scratch = Scratch::new();
    calculator_run::write_tables(&scratch.path("run")).unwrap();
    scratch.ok(&["init", "lake"]);
    let first = scratch.ok(&["import", "tables", "run", "--lake", "lake", "--format", "json"]).json();
    assert_eq!((&first["snapshot"], &first["already_in"]), (&json!(1), &json!(false)));
    assert_eq!(first["tables"]["calls"], json!({"read": 1335, "added": 1335, "known": 0}));
    // Where it lies does not matter, what it holds does.
    std::fs::rename(scratch.path("run"), scratch.path("elsewhere")).unwrap();
    let again = scratch.ok(&["import", "tables", "elsewhere", "--lake", "lake"]).text();
    assert!(again.contains("in the lake already") && again.contains("snapshot 1"), "{again}");
    assert_eq!(scratch.snapshot("lake"), 1);
    // The same rows in another source: nothing to add, and nobody is doubled.
    let text = scratch.read("elsewhere/calls.jsonl");
    let reversed: Vec<&str> = text.lines().rev().collect();
    scratch.write("elsewhere/calls.jsonl", reversed.join("\n"));
    let other = scratch.ok(&["import", "tables", "elsewhere", "--lake", "lake", "--format", "json"]).json();
    assert_eq!(other["tables"]["calls"], json!({"read": 1335, "added": 0, "known": 1335}));
    assert_eq!(other["tables"]["rollouts"], json!({"read": 384, "added": 0, "known": 384}));
    assert_eq!(scratch.number("lake", "SELECT count(*) FROM calls"), 1335);
    assert_eq!(scratch.number("lake", "SELECT count(*) FROM rollouts_history"), 384);
}

/// Every file of a lake with its content.
fn files(scratch: &Scratch, lake: &str) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    let mut folders = vec![scratch.path(lake)];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else {
                found.push((path.display().to_string(), std::fs::read(&path).unwrap()));
            }
        }
    }
    found.sort();
    found
}

#[test]
fn a_dry_run_counts_and_writes_nothing() {
    let scratch = Scratch::new();
    calculator_run::write_tables(&scratch.path("run")).unwrap();
    scratch.ok(&["init", "lake"]);
    let before = files(&scratch, "lake");
    let report = scratch.ok(&["import", "tables", "run", "--lake", "lake", "--dry-run", "--format", "json"]).json();
    assert_eq!((&report["snapshot"], &report["tables"]["calls"]["read"]), (&Value::Null, &json!(1335)));
    assert_eq!(files(&scratch, "lake"), before);
    scratch.ok(&["import", "tables", "run", "--lake", "lake"]);
    assert_eq!(scratch.number("lake", "SELECT count(*) FROM calls"), 1335);
}

const GOOD: &str = r#"{"run_id":"r","rollout_id":"a","call_id":"c1","call_index":0,"prompt_token_ids":[1,2],"output_token_ids":[3],"output_logprobs":[-0.5]}"#;

#[test]
fn rejects_are_counted_named_and_kept() {
    let scratch = Scratch::new();
    let broken = r#"{"run_id":"r","rollout_id":"a","call_id":"c2","prompt_token_ids":[1,2"#;
    let wrong_type = GOOD.replace("c1", "c3").replace("\"call_index\":0", "\"call_index\":\"first\"");
    scratch.write("run/calls.jsonl", format!("{GOOD}\n{broken}\n{wrong_type}\n{}\n", GOOD.replace("c1", "c4")));
    scratch.ok(&["init", "lake"]);
    // Strict: nothing goes in.
    let before = files(&scratch, "lake");
    let strict = scratch.run(&["import", "tables", "run", "--lake", "lake", "--strict"]).ended(2);
    assert!(strict.stderr.contains("calls.jsonl") && strict.stderr.contains('2'), "{}", strict.stderr);
    assert_eq!(files(&scratch, "lake"), before);
    // Else the rest does.
    let ran = scratch.ok(&["import", "tables", "run", "--lake", "lake"]).saying(&["calls.jsonl, line 2", "line 3"]);
    assert!(ran.text().contains("2 rejected"), "{}", ran.text());
    let calls = scratch.rows("lake", "SELECT call_id FROM calls ORDER BY call_id");
    assert_eq!(calls, [json!({"call_id": "c1"}), json!({"call_id": "c4"})]);
    let rejects = scratch.rows("lake", "SELECT file, line, field, raw FROM rejects ORDER BY line");
    assert_eq!(rejects.len(), 2);
    assert_eq!((&rejects[0]["line"], &rejects[0]["raw"]), (&json!(2), &json!(broken)));
    assert_eq!((&rejects[1]["line"], &rejects[1]["field"]), (&json!(3), &json!("calls.call_index")));
    assert!(rejects.iter().all(|reject| reject["file"] == "calls.jsonl"), "{rejects:?}");
    // A source with a reject is in as well: the second time adds neither rows nor rejects.
    scratch.ok(&["import", "tables", "run", "--lake", "lake"]);
    assert_eq!(scratch.number("lake", "SELECT count(*) FROM rejects"), 2);
}
