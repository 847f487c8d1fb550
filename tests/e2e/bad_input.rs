//! Sources with something wrong in them: rejected with file, line and field, or kept for the audit to find.

use std::io::{BufWriter, Write};
use std::path::Path;

use rollbook_tests::{Ran, Scratch};
use serde_json::{Value, json};

fn call(id: &str, rest: &str) -> String {
    format!(
        r#"{{"run_id":"r","rollout_id":"a","call_id":"{id}","call_index":0,"prompt_token_ids":[1,2],"output_token_ids":[3,4],{rest}}}"#
    )
}

const LOGPROBS: &str = r#""output_logprobs":[-0.5,-0.25]"#;
const ROLLOUT: &str = r#"{"run_id":"r","rollout_id":"a","step":1,"group_id":"g","status":"completed"}"#;

/// Imports lines of calls into a new lake.
fn import(scratch: &Scratch, calls: &str) -> Ran {
    scratch.write("run/calls.jsonl", calls);
    scratch.ok(&["init", "lake"]);
    scratch.ok(&["import", "tables", "run", "--lake", "lake"])
}

fn ids(scratch: &Scratch) -> Vec<Value> {
    let rows = scratch.rows("lake", "SELECT call_id FROM calls ORDER BY call_id");
    rows.into_iter().map(|row| row["call_id"].clone()).collect()
}

/// The violations of a check.
fn violations(scratch: &Scratch, check: &str) -> Vec<Value> {
    let report =
        scratch.run(&["audit", "--lake", "lake", "--check", check, "--no-record", "--format", "json"]).ended(1).json();
    let findings = report["findings"].as_array().unwrap();
    findings.iter().filter(|finding| finding["outcome"] == "violation").cloned().collect()
}

#[test]
fn broken_deep_and_foreign_lines_are_rejected_and_the_rest_goes_in() {
    let scratch = Scratch::new();
    let deep = format!("\"extra\":{}{}", "[".repeat(10_000), "]".repeat(10_000));
    let outside = call("outside", LOGPROBS).replace("[3,4]", "[3,3000000000]");
    let negative = call("negative", LOGPROBS).replace("[1,2]", "[-2147483649,2]");
    let null = call("null", LOGPROBS).replace("[3,4]", "[3,null]");
    let text = call("text", LOGPROBS).replace("[3,4]", "[3,\"4\"]");
    let lines = [
        call("first", LOGPROBS),
        "{\"run_id\": \"r\", oops".to_owned(),
        call("deep", &deep),
        outside,
        negative,
        null,
        text,
        "[1,2,3]".to_owned(),
        call("last", LOGPROBS),
    ];
    let ran = import(&scratch, &lines.join("\n"));
    assert!(ran.text().contains("7 rejected"), "{}\n{}", ran.text(), ran.stderr);
    assert_eq!(ids(&scratch), [json!("first"), json!("last")]);
    let rejects = scratch.rows("lake", "SELECT line, field, reason FROM rejects ORDER BY line");
    let places: Vec<i64> = rejects.iter().map(|reject| reject["line"].as_i64().unwrap()).collect();
    assert_eq!(places, [2, 3, 4, 5, 6, 7, 8]);
    let reason = |index: usize| rejects[index]["reason"].as_str().unwrap();
    assert!(reason(1).contains("nested deeper"), "{}", reason(1));
    assert!(reason(2).contains("3000000000") && reason(2).contains("int32"), "{}", reason(2));
    assert!(reason(3).contains("-2147483649") && reason(3).contains("int32"), "{}", reason(3));
    for index in [2, 4, 5] {
        let field = rejects[index]["field"].as_str().unwrap();
        assert!(field.contains("output_token_ids"), "{field}");
    }
}

/// Writes three calls, the second with a prompt that takes so many megabytes.
fn write_huge(path: &Path, megabytes: usize) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    let mut file = BufWriter::new(std::fs::File::create(path).unwrap());
    writeln!(file, "{}", call("before", LOGPROBS)).unwrap();
    let head = r#"{"run_id":"r","rollout_id":"a","call_id":"huge","output_token_ids":[3],"prompt_token_ids":[1"#;
    file.write_all(head.as_bytes()).unwrap();
    let megabyte = ",1234".repeat(200_000);
    for _ in 0..megabytes {
        file.write_all(megabyte.as_bytes()).unwrap();
    }
    write!(file, "]}}\n{}\n", call("after", LOGPROBS)).unwrap();
    file.into_inner().unwrap();
}

#[test]
fn a_line_of_200_megabytes_is_rejected_without_being_held() {
    let scratch = Scratch::new();
    scratch.ok(&["init", "lake"]);
    write_huge(&scratch.path("run/calls.jsonl"), 200);
    let (ran, peak) = scratch.measured(&["import", "tables", "run", "--lake", "lake"]);
    let ran = ran.ended(0).saying(&["calls.jsonl, line 2"]);
    assert!(ran.text().contains("1 rejected"), "{}", ran.text());
    assert_eq!(ids(&scratch), [json!("after"), json!("before")]);
    let reject = scratch.row("lake", "SELECT line, reason, octet_length(raw) < 10000 FROM rejects");
    assert_eq!((&reject[0], &reject[2]), (&json!(2), &json!(true)));
    assert!(reject[1].as_str().unwrap().contains("limit"), "{reject:?}");
    // A line of half the length takes as much.
    write_huge(&scratch.path("shorter/calls.jsonl"), 100);
    let (ran, half) = scratch.measured(&["import", "tables", "shorter", "--lake", "lake", "--dry-run"]);
    assert!(ran.ended(0).text().contains("1 would be rejected"));
    assert!(peak < half + 50_000_000, "{peak} bytes held, {half} for half the line");
}

#[test]
fn unequal_lengths_are_kept_in_tables_and_found() {
    let scratch = Scratch::new();
    scratch.write("run/rollouts.jsonl", ROLLOUT);
    let short = call("short", "\"output_logprobs\":[-0.5]");
    import(&scratch, &[call("even", LOGPROBS), short].join("\n"));
    let kept =
        scratch.row("lake", "SELECT cardinality(output_logprobs), output_len FROM calls WHERE call_id = 'short'");
    assert_eq!(kept, [json!(1), json!(2)]);
    let found = violations(&scratch, "token/length");
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!((&found[0]["call_id"], &found[0]["expected"]), (&json!("short"), &json!("2")));
}

#[test]
fn unequal_lengths_in_an_engines_log_become_null_and_are_counted() {
    let scratch = Scratch::new();
    let line = |id: &str, logprobs: &[f64]| {
        let each = logprobs.iter().zip(["token_id:3", "token_id:4"]);
        let content: Vec<Value> = each.map(|(value, token)| json!({"token": token, "logprob": value})).collect();
        json!({
            "metadata": {"run_id": "r", "rollout_id": "a", "call_id": id, "call_index": 0},
            "request": {"model": "m", "messages": []},
            "response": {"id": id, "prompt_token_ids": [1, 2], "choices": [{
                "index": 0, "message": {"role": "assistant", "content": "x"}, "finish_reason": "stop",
                "token_ids": [3, 4], "logprobs": {"content": content}}]},
        })
        .to_string()
    };
    scratch.write("log.jsonl", [line("even", &[-0.5, -0.25]), line("short", &[-0.5])].join("\n"));
    scratch.ok(&["init", "lake"]);
    let ran = scratch.ok(&["import", "openai-log", "log.jsonl", "--lake", "lake"]);
    assert!(ran.stderr.contains("1 calls whose logprobs do not belong to their ids"), "{}", ran.stderr);
    let calls =
        "SELECT call_id, output_token_ids AS ids, output_logprobs AS logprobs, extra FROM calls ORDER BY call_id";
    let calls = scratch.rows("lake", calls);
    assert_eq!((&calls[0]["ids"], &calls[0]["logprobs"]), (&json!([3, 4]), &json!([-0.5, -0.25])));
    assert_eq!((&calls[1]["ids"], &calls[1]["logprobs"]), (&json!([3, 4]), &Value::Null));
    let extra: Value = serde_json::from_str(calls[1]["extra"].as_str().unwrap()).unwrap();
    assert_eq!(extra, json!({"output_logprobs": [-0.5]}));
}

#[test]
fn doubled_call_ids_are_kept_and_found() {
    let scratch = Scratch::new();
    scratch.write("run/rollouts.jsonl", ROLLOUT);
    let other = call("twice", LOGPROBS).replace("[3,4]", "[3,5]");
    import(&scratch, &[call("once", LOGPROBS), call("twice", LOGPROBS), other].join("\n"));
    assert_eq!(ids(&scratch), [json!("once"), json!("twice"), json!("twice")]);
    let found = violations(&scratch, "rollout/duplicate");
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0]["call_id"], "twice");
    // A later source that says something else of a known call adds it, and it is found as well.
    scratch.write("later/calls.jsonl", call("once", LOGPROBS).replace("[3,4]", "[3,6]"));
    scratch.ok(&["import", "tables", "later", "--lake", "lake"]);
    let found = violations(&scratch, "rollout/duplicate");
    let mut named: Vec<&str> = found.iter().map(|finding| finding["call_id"].as_str().unwrap()).collect();
    named.sort_unstable();
    assert_eq!(named, ["once", "twice"]);
}

#[test]
fn a_call_without_its_rollout_goes_in_and_is_found() {
    let scratch = Scratch::new();
    import(&scratch, &call("alone", LOGPROBS));
    assert_eq!(ids(&scratch), [json!("alone")]);
    let found = violations(&scratch, "rollout/orphan");
    assert_eq!((found.len(), &found[0]["rollout_id"]), (1, &json!("a")));
    // With the rollout it is clean, and takes its step and group from it.
    scratch.write("later/rollouts.jsonl", ROLLOUT);
    scratch.ok(&["import", "tables", "later", "--lake", "lake"]);
    scratch.ok(&["audit", "--lake", "lake", "--check", "rollout/orphan"]);
    assert_eq!(scratch.row("lake", "SELECT step, group_id FROM calls"), [json!(1), json!("g")]);
}

#[test]
fn rows_without_a_run_take_the_one_given() {
    let scratch = Scratch::new();
    let nameless = |id: &str| call(id, LOGPROBS).replace("\"run_id\":\"r\",", "");
    scratch.write("run/calls.jsonl", nameless("c"));
    scratch.ok(&["init", "lake"]);
    let dry = ["import", "tables", "run", "--lake", "lake", "--dry-run", "--format", "json"];
    // Nothing of it would go in, which is no success.
    let lost = scratch.run(&dry).ended(1).json();
    assert_eq!((&lost["rejected"], &lost["rejects"][0]["field"]), (&json!(1), &json!("calls.run_id")), "{lost}");
    scratch.ok(&["import", "tables", "run", "--lake", "lake", "--run", "mine"]);
    assert_eq!(scratch.row("lake", "SELECT run_id, call_id FROM calls"), [json!("mine"), json!("c")]);
}

#[test]
fn a_sequence_longer_than_a_row_is_named_and_nothing_is_written() {
    let scratch = Scratch::new();
    scratch.write("run/rollouts.jsonl", ROLLOUT);
    scratch.write(
        "run/scores.jsonl",
        r#"{"run_id":"r","rollout_id":"a","score_id":"s","verifier":"v","value":1.0,"is_valid":true}"#,
    );
    let exact = format!(
        r#"{LOGPROBS},"prompt_exactness":"engine","output_exactness":"engine","logprobs_source":"engine","policy_version":1"#
    );
    import(&scratch, &call("long", &exact));
    scratch.ok(&["reward", "verifier_value", "--lake", "lake"]);
    scratch.ok(&["credit", "grpo", "--reward", "verifier_value", "--lake", "lake"]);
    let build = |most: &'static str| {
        scratch.run(&[
            "build",
            "merged",
            "--credit",
            "grpo",
            "--max-tokens",
            most,
            "--objective",
            "rollout",
            "--lake",
            "lake",
        ])
    };
    let before = scratch.status("lake");
    // Two prompt and two output tokens.
    build("3").ended(2).saying(&["rollout a", "call long", "4 tokens", "max-tokens 3"]);
    assert_eq!(scratch.status("lake"), before);
    build("4").ended(0);
    assert_eq!(scratch.row("lake", "SELECT count(*), max(cardinality(token_ids)) FROM samples"), [json!(1), json!(4)]);
}

#[test]
fn a_file_that_is_not_what_its_name_says_is_wrong_input_and_no_failure_of_the_store() {
    let scratch = Scratch::new();
    scratch.ok(&["init", "lake"]);
    for name in ["calls.parquet", "calls.arrow"] {
        let folder = name.replace('.', "-");
        scratch.write(&format!("{folder}/{name}"), "PAR1 and no more");
        scratch.run(&["import", "tables", &folder, "--lake", "lake"]).ended(2).saying(&[name, "what its name says"]);
    }
}
