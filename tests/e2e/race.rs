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
    let children: Vec<_> = (0..PARTS)
        .map(|part| {
            let source = format!("part-{part}");
            let mut command = scratch.command(&["import", "tables", &source, "--lake", lake]);
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        })
        .collect();
    for child in children {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
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
