//! Every snapshot stays readable, and the history says what each of them did.

use rollbook_tests::Scratch;
use serde_json::{Value, json};

fn call(id: &str) -> String {
    format!(
        r#"{{"run_id":"r","rollout_id":"{id}","call_id":"{id}","call_index":0,"prompt_token_ids":[1],"output_token_ids":[2],"output_logprobs":[-0.5]}}"#
    )
}

#[test]
fn an_earlier_snapshot_is_read_as_it_was() {
    let scratch = Scratch::new();
    scratch.ok(&["init", "lake"]);
    for id in ["a", "b", "c"] {
        scratch.write(&format!("{id}/calls.jsonl"), call(id));
        scratch.write(&format!("{id}/rollouts.jsonl"), format!(r#"{{"run_id":"r","rollout_id":"{id}","step":3}}"#));
        scratch.ok(&["import", "tables", id, "--lake", "lake"]);
    }
    let sql = "SELECT string_agg(call_id, ',' ORDER BY call_id) AS ids FROM calls";
    for (at, ids) in [("0", Value::Null), ("1", json!("a")), ("2", json!("a,b")), ("3", json!("a,b,c"))] {
        let ran = scratch.ok(&["sql", "--lake", "lake", "--at", at, "--format", "ndjson", "-c", sql]);
        assert_eq!(ran.json()["ids"], ids, "{at}");
        let status = scratch.ok(&["status", "--lake", "lake", "--at", at, "--format", "json"]).json();
        let rows: i64 = at.parse().unwrap();
        assert_eq!((&status["snapshot"], &status["tables"]["calls"]["rows"]), (&json!(rows), &json!(rows)));
    }
    let audit = scratch.run(&["audit", "--lake", "lake", "--at", "2", "--no-record", "--format", "json"]).json();
    let examined = |check: &str| {
        let found = audit["checks"].as_array().unwrap().iter().find(|count| count["check"] == check);
        found.unwrap()["examined"].clone()
    };
    assert_eq!((&audit["snapshot"], examined("token/length")), (&json!(2), json!(2)));
    scratch
        .run(&["sql", "--lake", "lake", "--at", "9", "-c", sql])
        .ended(2)
        .saying(&["no such snapshot (snapshot: 9)", "history"]);
    scratch.run(&["status", "--lake", "lake", "--at", "9"]).ended(2).saying(&["no such snapshot (snapshot: 9)"]);
}

#[test]
fn the_history_names_what_each_snapshot_did() {
    let scratch = Scratch::new();
    scratch.ok(&["init", "lake"]);
    scratch.write("run/calls.jsonl", call("a"));
    scratch.ok(&["import", "tables", "run", "--lake", "lake"]);
    scratch.run(&["audit", "--lake", "lake"]).ended(1);
    let history = scratch.ok(&["history", "--lake", "lake", "--format", "json"]).json();
    let entries = history.as_array().unwrap();
    let told: Vec<_> = entries.iter().map(|entry| (&entry["snapshot"], &entry["reason"], &entry["changed"])).collect();
    assert_eq!(told[0].2, &json!(["audits", "findings"]));
    assert_eq!(told[1], (&json!(1), &json!("import tables"), &json!(["calls", "imports"])));
    assert_eq!((told[2].0, told[2].1), (&json!(0), &json!("init")));
    assert!(entries.iter().all(|entry| entry["kind"] == "append"));
    assert_eq!((&entries[1]["parent"], &entries[1]["tables"]["calls"]), (&json!(0), &json!(1)));
    let digest = entries[1]["source_digest"].as_str().unwrap();
    assert!(digest.starts_with("sha256:") && digest.len() == 71, "{digest}");
    let from = |arguments: &[&str]| {
        let all = [&["history", "--lake", "lake", "--format", "json"], arguments].concat();
        let entries = scratch.ok(&all).json();
        entries.as_array().unwrap().iter().map(|entry| entry["snapshot"].as_i64().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!((from(&["--at", "1"]), from(&["--limit", "1"])), (vec![1, 0], vec![2]));
}
