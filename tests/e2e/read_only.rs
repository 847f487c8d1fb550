//! SQL only reads, and a refused statement leaves no trace.

use std::path::Path;

use rollbook_tests::Scratch;

const CALL: &str =
    r#"{"run_id":"r","rollout_id":"a","call_id":"c","call_index":0,"prompt_token_ids":[1],"output_token_ids":[2]}"#;

/// Every path below a folder.
fn tree(folder: &Path) -> Vec<String> {
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            paths.extend(tree(&path));
        }
        paths.push(path.display().to_string());
    }
    paths.sort();
    paths
}

#[test]
fn what_would_write_or_reach_outside_is_refused() {
    let scratch = Scratch::new();
    scratch.write("run/calls.jsonl", CALL);
    scratch.write("secret.csv", "a,b\n1,2\n");
    scratch.ok(&["init", "lake"]);
    scratch.ok(&["import", "tables", "run", "--lake", "lake"]);
    let before = tree(&scratch.path("."));
    for sql in [
        "COPY calls TO 'out.parquet'",
        "COPY (SELECT 1) TO 'out.csv' STORED AS CSV",
        "SET datafusion.execution.batch_size = 1",
        "RESET datafusion.execution.batch_size",
        "CREATE TABLE t AS SELECT 1",
        "CREATE VIEW t AS SELECT 1",
        "CREATE EXTERNAL TABLE t STORED AS CSV LOCATION 'secret.csv'",
        "CREATE SCHEMA s",
        "CREATE FUNCTION f(x INT) RETURNS INT RETURN x",
        "INSERT INTO calls SELECT * FROM calls",
        "UPDATE calls SET call_id = 'x'",
        "DELETE FROM calls",
        "DROP TABLE calls",
        "TRUNCATE TABLE calls",
        "EXPLAIN ANALYZE INSERT INTO calls SELECT * FROM calls",
        "SELECT * FROM '/etc/passwd'",
        "SELECT * FROM 'secret.csv'",
        "SELECT * FROM \"secret.csv\"",
        "SELECT * FROM 'http://127.0.0.1:1/x.parquet'",
        "SELECT * FROM 's3://bucket/x.parquet'",
        "WITH t AS (SELECT * FROM 'secret.csv') SELECT * FROM t",
        "SELECT * FROM read_csv('secret.csv')",
        "SELECT 1; DROP TABLE calls",
        "PREPARE p AS SELECT 1",
        "EXECUTE p",
        "BEGIN",
    ] {
        let ran = scratch.run(&["sql", "--lake", "lake", "-c", sql]).ended(2);
        assert!(ran.stderr.starts_with("error: ") && ran.stdout.is_empty(), "{sql}: {ran:?}");
        assert!(!ran.stderr.contains("panicked"), "{sql}: {}", ran.stderr);
    }
    assert_eq!(tree(&scratch.path(".")), before);
    assert_eq!(scratch.number("lake", "SELECT count(*) FROM calls"), 1);
}

fn recipe(kind: &str, select: &str) -> String {
    format!("-- @kind {kind}\n-- @doc A recipe of a test.\n-- @formula none\n{select}\n")
}

#[test]
fn a_recipe_that_cannot_run_says_why_and_writes_nothing() {
    let scratch = Scratch::new();
    scratch.write("run/calls.jsonl", CALL);
    scratch.write("run/rollouts.jsonl", r#"{"run_id":"r","rollout_id":"a","step":1,"group_id":"g"}"#);
    scratch.ok(&["init", "lake"]);
    scratch.ok(&["import", "tables", "run", "--lake", "lake"]);
    let before = tree(&scratch.path("lake"));
    let cases: &[(&str, &str, &[&str])] = &[
        ("random.sql", "SELECT run_id, rollout_id, random() AS value FROM rollouts", &["random"]),
        ("now.sql", "SELECT run_id, rollout_id, CAST(now() AS BIGINT) * 1.0 AS value FROM rollouts", &["now"]),
        ("syntax.sql", "SELECT run_id,\n  rollout_id, 1.0 AS value FORM rollouts WHERE", &["syntax.sql", "line 5"]),
        ("column.sql", "SELECT run_id, rollout_id FROM rollouts", &["value", "double"]),
        ("unknown.sql", "SELECT run_id, rollout_id, nothing AS value FROM rollouts", &["nothing"]),
        ("file.sql", "SELECT run_id, rollout_id, 1.0 AS value FROM '/etc/passwd'", &["/etc/passwd"]),
        ("write.sql", "DELETE FROM rollouts", &["DELETE"]),
        ("parameter.sql", "SELECT run_id, rollout_id, $bonus AS value FROM rollouts", &["bonus"]),
    ];
    for (file, select, said) in cases {
        scratch.write(file, recipe("reward", select));
        let ran = scratch.run(&["reward", file, "--lake", "lake"]).ended(2).saying(said);
        assert!(!ran.stderr.contains("panicked"), "{file}: {}", ran.stderr);
    }
    scratch.write("bare.sql", "SELECT run_id, rollout_id, 1.0 AS value FROM rollouts");
    scratch.run(&["reward", "bare.sql", "--lake", "lake"]).ended(2).saying(&["@kind"]);
    let unknown = ["reward", "verifier_value", "--lake", "lake", "--param", "verifire=x"];
    scratch.run(&unknown).ended(2).saying(&["verifire", "verifier"]);
    scratch.run(&["reward", "nothing_like_it", "--lake", "lake"]).ended(2).saying(&["verifier_value"]);
    scratch.run(&["credit", "grpo", "--reward", "none", "--lake", "lake"]).ended(2).saying(&["none"]);
    assert_eq!(tree(&scratch.path("lake")), before);
}
