//! init, import, sql, audit, reward, credit, build, export, verify, and other people's readers at the end: the same on a
//! folder and on S3.

use std::collections::BTreeMap;

use rollbook_testing::{calculator_run, checksum};
use rollbook_tests::{S3, Scratch};
use serde_json::{Value, json};

#[test]
fn whole_way_on_a_folder() {
    let scratch = Scratch::new();
    let lake = scratch.path("lake").display().to_string();
    whole_way(&scratch, &lake);
}

#[test]
fn whole_way_on_s3() {
    let s3 = S3::start();
    whole_way(&Scratch::with(s3.server.env()), "s3://lakes/team/a");
}

fn whole_way(scratch: &Scratch, lake: &str) {
    calculator_run::write_tables(&scratch.path("run")).unwrap();
    scratch.ok(&["init", lake]);
    scratch.ok(&["import", "tables", "run", "--lake", lake]);
    count(scratch, lake);
    audit_of_the_run(scratch, lake);
    derive(scratch, lake);
    audit_of_the_build(scratch, lake);
    export(scratch, lake);
    other_readers(scratch, lake);
}

/// The figures of the run's README.
fn count(scratch: &Scratch, lake: &str) {
    let calls = "SELECT count(*), sum(prompt_len), sum(output_len), sum(cardinality(prompt_token_ids)) FROM calls";
    assert_eq!(scratch.row(lake, calls), [json!(1335), json!(248_300), json!(16_379), json!(248_300)]);
    let rollouts = "SELECT count(*), count(DISTINCT group_id) FROM rollouts";
    assert_eq!(scratch.row(lake, rollouts), [json!(384), json!(48)]);
    let kinds = "SELECT kind, count(*) AS calls FROM calls GROUP BY kind ORDER BY kind";
    assert_eq!(
        scratch.rows(lake, kinds),
        [json!({"kind": "act", "calls": 1232}), json!({"kind": "compact", "calls": 103})]
    );
    let scores = "SELECT count(value), round(avg(value), 2), count(DISTINCT verifier) FROM scores";
    assert_eq!(scratch.row(lake, scores), [json!(384), json!(0.48), json!(2)]);
    // Whole prompts are 248,300 tokens; what lies in the files is read by neither of our own readers.
    let stored = scratch.python("stored_tokens.py", &[lake]);
    assert_eq!(stored["calls"], 1335);
    assert!(stored["suffix_tokens"].as_i64().unwrap() <= 92_884, "{stored}");
}

/// The number of findings of every check that found something, undeclared ones aside.
fn found(report: &Value) -> BTreeMap<String, (i64, i64)> {
    let checks = report["checks"].as_array().unwrap().iter();
    checks
        .map(|check| {
            let counts = (check["violation"].as_i64().unwrap(), check["rule"].as_i64().unwrap());
            (check["check"].as_str().unwrap().to_owned(), counts)
        })
        .filter(|(_, counts)| *counts != (0, 0))
        .collect()
}

fn audit_of_the_run(scratch: &Scratch, lake: &str) {
    let report = scratch.run(&["audit", "--lake", lake, "--format", "json"]).ended(1).json();
    let expected =
        [("token/logprob_value".to_owned(), (6, 0)), ("token/prefix".to_owned(), (14, 0))].into_iter().collect();
    assert_eq!(found(&report), expected);
    let findings = report["findings"].as_array().unwrap();
    let of = |check: &str| findings.iter().filter(move |finding| finding["check"] == check).collect::<Vec<_>>();
    let tokens: i64 = of("token/logprob_value").iter().map(|finding| finding["length"].as_i64().unwrap()).sum();
    assert_eq!(tokens, 8);
    assert!(of("token/prefix").iter().all(|finding| finding["position_in"] == "prompt"
        && finding["position"].is_i64()
        && finding["layer"] == "encoding"));
    // They are recorded, in a snapshot of their own.
    let recorded =
        "SELECT \"check\", count(*) AS findings FROM findings WHERE outcome = 'violation' GROUP BY 1 ORDER BY 1";
    assert_eq!(
        scratch.rows(lake, recorded),
        [json!({"check": "token/logprob_value", "findings": 6}), json!({"check": "token/prefix", "findings": 14})]
    );
    // What fails the audit can be chosen.
    scratch.ok(&["audit", "--lake", lake, "--no-record", "--fail-on", "never"]);
    scratch.ok(&["audit", "--lake", lake, "--no-record", "--check", "token/length", "--check", "token/digest"]);
    scratch.run(&["audit", "--lake", lake, "--check", "token/nothing"]).ended(2);
}

fn derive(scratch: &Scratch, lake: &str) {
    scratch.ok(&["reward", "verifier_value", "--lake", lake]);
    scratch.ok(&["credit", "grpo", "--reward", "verifier_value", "--lake", lake]);
    let rewards =
        "SELECT count(*), sum(r.value) = sum(s.value) AS equal FROM rewards r JOIN scores s USING (rollout_id)";
    assert_eq!(scratch.row(lake, rewards), [json!(384), json!(true)]);
    // 42 of the 48 groups have variance; in the others nobody is better than anybody.
    let groups = "SELECT count(*) FROM (SELECT r.group_id FROM credits c JOIN rollouts r USING (run_id, rollout_id) \
                  GROUP BY r.group_id HAVING max(abs(c.value)) > 0)";
    assert_eq!(scratch.number(lake, groups), 42);
    scratch.ok(&[
        "build",
        "merged",
        "--credit",
        "grpo",
        "--max-tokens",
        "2048",
        "--objective",
        "rollout",
        "--lake",
        lake,
    ]);
    // Eight sampled tokens have no logprob; all others train.
    let left_out = "SELECT reason, CAST(sum(length) AS BIGINT) AS tokens FROM exclusions GROUP BY reason";
    assert_eq!(scratch.rows(lake, left_out), [json!({"reason": "no_logprob", "tokens": 8})]);
}

fn audit_of_the_build(scratch: &Scratch, lake: &str) {
    let report = scratch.run(&["audit", "--lake", lake, "--format", "json"]).ended(1).json();
    let checks: Vec<String> = found(&report).into_keys().collect();
    assert_eq!(checks, ["token/logprob_value", "token/prefix"]);
    let examined = |name: &str| {
        let checks = report["checks"].as_array().unwrap();
        checks.iter().find(|check| check["check"] == name).unwrap()["examined"].as_i64().unwrap()
    };
    assert_eq!(examined("pack/once"), 16_379 - 8);
    assert_eq!(examined("pack/weight"), 384);
    assert!(examined("token/coverage") > 0);
    scratch.ok(&["audit", "--lake", lake, "--check", "pack/*", "--check", "token/coverage", "--fail-on", "undeclared"]);
}

fn export(scratch: &Scratch, lake: &str) {
    let on_s3 = lake.starts_with("s3://");
    scratch.write(
        "calls.parquet",
        scratch.ok(&["sql", "--lake", lake, "--format", "parquet", "-c", "SELECT * FROM calls"]).stdout,
    );
    for format in ["parquet", "arrow"] {
        let dest = format!("batches-{format}");
        scratch.ok(&["export", "merged", &dest, "--format", format, "--lake", lake]);
        scratch.ok(&["verify", &dest]);
        let checked = scratch.python("check_export.py", &[&dest, "calls.parquet"]);
        assert_eq!((&checked["trained"], &checked["rollouts"]), (&json!(16_371), &json!(384)), "{checked}");
        assert_eq!(checked["optimizer_steps"], 1);
        let manifest: Value = serde_json::from_str(&scratch.read(&format!("{dest}/manifest.json"))).unwrap();
        assert_eq!(manifest["rows"], checked["rows"]);
        assert_eq!(manifest["tokens"], checked["tokens"]);
    }
    if on_s3 {
        let dest = "s3://lakes/batches";
        scratch.ok(&["export", "merged", dest, "--format", "parquet", "--lake", lake]);
        scratch.ok(&["verify", dest]);
    }
    // A changed byte is found.
    let file = std::fs::read_dir(scratch.path("batches-parquet")).unwrap().flatten().map(|entry| entry.path());
    let file = file.into_iter().find(|path| path.extension().is_some_and(|end| end == "parquet")).unwrap();
    let mut bytes = std::fs::read(&file).unwrap();
    bytes[1_000] ^= 1;
    std::fs::write(&file, bytes).unwrap();
    let told = scratch.run(&["verify", "batches-parquet"]).ended(1).text();
    assert!(told.contains(file.file_name().unwrap().to_str().unwrap()), "{told}");
}

/// deltalake and Polars know nothing of us, and get the rows that we count.
fn other_readers(scratch: &Scratch, lake: &str) {
    let read = scratch.python("read_tables.py", &[lake]);
    let status = scratch.status(lake);
    let tables = status["tables"].as_object().unwrap();
    assert_eq!(read.as_object().unwrap().len(), tables.len());
    for (name, table) in tables {
        let theirs = &read[name];
        assert_eq!((&theirs["rows"], &theirs["version"]), (&table["rows"], &table["version"]), "{name}");
    }
    for (table, keys) in [
        ("calls", "run_id, rollout_id, call_id, prompt_len, output_len, output_digest"),
        ("scores", "run_id, score_id"),
        ("environment_records", "run_id, record_id"),
        ("samples", "build_id, epoch, step, micro_batch, rank, row_index"),
    ] {
        let rows = scratch.rows(lake, &format!("SELECT {keys} FROM {table}"));
        let texts: Vec<Vec<Option<String>>> = rows.iter().map(texts).collect();
        let sum = checksum::of_rows(texts.iter().map(|row| row.iter().map(Option::as_deref).collect()));
        assert_eq!(read[table]["keys"].as_i64(), Some(sum), "{table}");
    }
}

/// The values of a row as Python's `str` writes them.
fn texts(row: &Value) -> Vec<Option<String>> {
    let text = |value: &Value| match value {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    };
    row.as_object().unwrap().values().map(text).collect()
}
