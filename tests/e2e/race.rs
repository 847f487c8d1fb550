//! Eight processes import eight parts of one run into one lake on S3 at once.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Stdio;

use rollbook_testing::calculator_run;
use rollbook_tests::{S3, Scratch};
use serde_json::{Value, json};

const PARTS: usize = 8;
/// Rollouts of part 1 that part 0 has as well.
const SHARED: usize = 20;

#[test]
fn eight_processes_import_into_one_run_and_every_call_arrives_once() {
    let s3 = S3::start();
    let scratch = Scratch::with(s3.server.env());
    calculator_run::write_tables(&scratch.path("run")).unwrap();
    let parts = split(&scratch);
    assert_eq!(parts.iter().map(BTreeSet::len).sum::<usize>(), 384 + SHARED);
    let lake = "s3://lakes/race";
    scratch.ok(&["init", lake]);
    let sources: Vec<String> = (0..PARTS).map(|part| format!("part-{part}")).collect();
    import_at_once(&scratch, lake, &sources);
    assert_eq!(scratch.snapshot(lake), 8);
    let calls = "SELECT count(*), count(DISTINCT call_id), sum(prompt_len), sum(output_len), \
                 count(*) FILTER (WHERE token_digest(prompt_token_ids) = prompt_digest), count(step), count(group_id) FROM calls";
    let expected = [1335, 1335, 248_300, 16_379, 1335, 1335, 1335].map(|number| json!(number));
    assert_eq!(scratch.row(lake, calls), expected);
    for (table, rows) in [
        ("rollouts_history", 384),
        ("scores_history", 384),
        ("environment_records", 1000),
        ("runs_history", 1),
        ("policies_history", 1),
        ("encodings_history", 1),
        ("imports", 8),
    ] {
        assert_eq!(scratch.number(lake, &format!("SELECT count(*) FROM {table}")), rows, "{table}");
    }
    let report = scratch.run(&["audit", "--lake", lake, "--format", "json", "--check", "rollout/*"]).ended(0).json();
    assert_eq!(report["snapshot"], 8);
    let read = scratch.python("read_tables.py", &[lake, "calls", "rollouts"]);
    assert_eq!((&read["calls"]["rows"], &read["rollouts"]["rows"]), (&json!(1335), &json!(384)));
}

/// Imports every source in a process of its own, all at once.
fn import_at_once(scratch: &Scratch, lake: &str, sources: &[String]) {
    let start = |source: &String| {
        let mut command = scratch.command(&["import", "tables", source, "--lake", lake]);
        command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let children: Vec<_> = sources.iter().map(start).collect();
    for child in children {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn one_source_imported_by_four_at_once_is_in_once() {
    let scratch = Scratch::new();
    calculator_run::write_tables(&scratch.path("run")).unwrap();
    scratch.ok(&["init", "lake"]);
    import_at_once(&scratch, "lake", &vec!["run".to_owned(); 4]);
    assert_eq!(scratch.snapshot("lake"), 1);
    assert_eq!(scratch.number("lake", "SELECT count(*) FROM calls"), 1335);
    assert_eq!(scratch.number("lake", "SELECT count(*) FROM imports"), 1);
}

#[test]
fn six_writers_of_one_rollout_make_six_revisions() {
    let scratch = Scratch::new();
    scratch.ok(&["init", "lake"]);
    let sources: Vec<String> = (1..=6).map(|writer| format!("from-{writer}")).collect();
    for source in &sources {
        let rollout = format!(r#"{{"run_id":"r","rollout_id":"a","step":1,"termination_reason":"{source}"}}"#);
        scratch.write(&format!("{source}/rollouts.jsonl"), rollout);
    }
    import_at_once(&scratch, "lake", &sources);
    let history =
        scratch.rows("lake", "SELECT revision, termination_reason AS by FROM rollouts_history ORDER BY revision");
    let revisions: Vec<i64> = history.iter().map(|row| row["revision"].as_i64().unwrap()).collect();
    assert_eq!(revisions, [1, 2, 3, 4, 5, 6]);
    let writers: BTreeSet<&str> = history.iter().map(|row| row["by"].as_str().unwrap()).collect();
    assert_eq!(writers.len(), 6);
    // The newest is the current one.
    let current = scratch.row("lake", "SELECT revision, termination_reason FROM rollouts");
    assert_eq!(current, [history[5]["revision"].clone(), history[5]["by"].clone()]);
}

/// Writes the parts: each has its rollouts with all that hangs on them, and the run, its policy and its encoding.
fn split(scratch: &Scratch) -> Vec<BTreeSet<String>> {
    let id = |line: &str| -> String {
        let row: Value = serde_json::from_str(line).unwrap();
        row["rollout_id"].as_str().unwrap().to_owned()
    };
    let rollouts: Vec<String> = scratch.read("run/rollouts.jsonl").lines().map(id).collect();
    let mut parts: Vec<BTreeSet<String>> = vec![BTreeSet::new(); PARTS];
    for (index, rollout) in rollouts.iter().enumerate() {
        parts[index % PARTS].insert(rollout.clone());
    }
    let shared: Vec<String> = parts[1].iter().take(SHARED).cloned().collect();
    parts[0].extend(shared);
    for table in ["calls", "environment_records", "rollouts", "scores"] {
        let text = scratch.read(&format!("run/{table}.jsonl"));
        let mut lines: BTreeMap<String, Vec<&str>> = BTreeMap::new();
        text.lines().for_each(|line| lines.entry(id(line)).or_default().push(line));
        for (part, members) in parts.iter().enumerate() {
            let chosen: Vec<&str> = members.iter().filter_map(|member| lines.get(member)).flatten().copied().collect();
            scratch.write(&format!("part-{part}/{table}.jsonl"), chosen.join("\n"));
        }
    }
    for table in ["encodings", "policies", "runs"] {
        let text = scratch.read(&format!("run/{table}.jsonl"));
        (0..PARTS).for_each(|part| scratch.write(&format!("part-{part}/{table}.jsonl"), &text));
    }
    parts
}
