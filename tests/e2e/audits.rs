//! Audits as a scheduled job runs them: statuses, formats, what is new, quarantine.

use std::os::unix::fs::PermissionsExt;

use rollbook_testing::calculator_run;
use rollbook_tests::{S3, Scratch};
use serde_json::json;

fn imported() -> Scratch {
    let scratch = Scratch::new();
    calculator_run::write_tables(&scratch.path("run")).unwrap();
    scratch.ok(&["init", "lake"]);
    scratch.ok(&["import", "tables", "run", "--lake", "lake"]);
    scratch
}

#[test]
fn statuses_and_formats_serve_a_job() {
    let scratch = imported();
    // 14 breaks and the logprobs are violations; nobody declares a broken rule here.
    let xml = scratch.run(&["audit", "--lake", "lake", "--format", "junit", "--no-record"]).ended(1).text();
    scratch.write("audit.xml", &xml);
    let read = scratch.python("read_junit.py", &["audit.xml"]);
    assert_eq!(read["failures"]["token/prefix"], json!(14), "{read}");
    let checks = scratch.ok(&["checks", "--format", "json"]).json().as_array().unwrap().len();
    assert_eq!(read["cases"], json!(checks));
    scratch.run(&["audit", "--lake", "lake", "--fail-on", "never", "--no-record"]).ended(0);
    scratch.run(&["audit", "--lake", "lake", "--check", "no/such", "--no-record"]).ended(2).saying(&["token/prefix"]);
    scratch.run(&["audit", "--lake", "lake", "--since", "soon"]).ended(2).saying(&["last"]);
    scratch.run(&["audit", "--lake", "nowhere"]).ended(3);
    // A file that is gone is no clean audit.
    let calls = std::fs::read_dir(scratch.path("lake/calls")).unwrap().flatten().map(|entry| entry.path());
    let part = calls.into_iter().find(|path| path.extension().is_some_and(|end| end == "parquet")).unwrap();
    std::fs::rename(&part, scratch.path("away")).unwrap();
    let away = scratch.run(&["audit", "--lake", "lake", "--no-record"]).ended(3);
    assert!(away.stdout.is_empty(), "{}", away.text());
}

#[test]
fn an_audit_of_what_is_new_finds_nothing_twice() {
    let scratch = imported();
    scratch.run(&["audit", "--lake", "lake", "--since", "last"]).ended(1);
    let again = scratch.run(&["audit", "--lake", "lake", "--since", "last", "--format", "json"]).ended(0).json();
    assert_eq!(again["findings"], json!([]));
    // A call of a rollout that is there, whose digest is not that of its tokens.
    let calls = r#"{"run_id":"other","rollout_id":"a","call_id":"c","call_index":0,"prompt_token_ids":[1],"prompt_digest":"sha256:00","output_token_ids":[2],"output_logprobs":[-1.0]}"#;
    scratch.write("more/calls.jsonl", calls);
    scratch.write("more/rollouts.jsonl", r#"{"run_id":"other","rollout_id":"a"}"#);
    scratch.ok(&["import", "tables", "more", "--lake", "lake"]);
    let new =
        scratch.run(&["audit", "--lake", "lake", "--since", "last", "--check", "token/*", "--format", "json"]).ended(1);
    let new = new.json();
    let found: Vec<_> = new["findings"].as_array().unwrap().iter().filter(|f| f["outcome"] == "violation").collect();
    assert!(found.iter().all(|finding| finding["run_id"] == "other"), "{found:?}");
    assert!(found.iter().any(|finding| finding["check"] == "token/digest"), "{found:?}");
    let digest = new["checks"].as_array().unwrap().iter().find(|check| check["check"] == "token/digest").unwrap();
    assert_eq!(digest["examined"], json!(2), "{digest}");
}

#[test]
fn a_lake_that_may_only_be_read_is_audited() {
    let scratch = imported();
    let folders = ["lake", "lake/_rollbook/snapshots", "lake/audits", "lake/findings", "lake/audits/_delta_log"];
    let allow = |mode: u32| {
        for folder in folders {
            std::fs::set_permissions(scratch.path(folder), std::fs::Permissions::from_mode(mode)).unwrap();
        }
    };
    allow(0o555);
    let may_write = std::fs::write(scratch.path("lake/probe"), "x").is_ok();
    let ran = scratch.run(&["audit", "--lake", "lake", "--format", "json"]);
    allow(0o755);
    // Whoever runs as root may write all the same.
    if !may_write {
        let ran = ran.ended(1).saying(&["not recorded"]);
        assert!(!ran.json()["findings"].as_array().unwrap().is_empty());
        assert_eq!(scratch.number("lake", "SELECT count(*) FROM audits"), 0);
    }
}

#[test]
fn what_is_quarantined_is_built_without_until_it_is_lifted() {
    let scratch = imported();
    scratch.ok(&["reward", "verifier_value", "--lake", "lake"]);
    scratch.ok(&["credit", "grpo", "--reward", "verifier_value", "--lake", "lake"]);
    let build = |name: &str, more: &[&str]| {
        let mut words = vec!["build", "merged", "--credit", "grpo", "--max-tokens", "8192", "--objective", "rollout"];
        words.extend(["--name", name, "--lake", "lake"]);
        words.extend(more);
        scratch.ok(&words)
    };
    build("before", &[]);
    scratch.run(&["audit", "--lake", "lake", "--check", "token/prefix", "--quarantine"]).ended(1).saying(&["14"]);
    // The same audit once more adds nothing.
    scratch
        .run(&["audit", "--lake", "lake", "--check", "token/prefix", "--quarantine"])
        .ended(1)
        .saying(&["0 rollouts"]);
    build("without", &[]);
    let reasons = "SELECT count(DISTINCT call_id) FROM exclusions AS e JOIN builds AS b ON b.build_id = e.build_id
        JOIN derivations AS d ON d.derivation_id = b.derivation_id WHERE e.reason = 'quarantined' AND d.name = ";
    assert_eq!(scratch.number("lake", &format!("{reasons}'without'")), 14);
    build("all-the-same", &["--include-quarantined"]);
    assert_eq!(scratch.number("lake", &format!("{reasons}'all-the-same'")), 0);
    let listed = scratch.ok(&["quarantine", "list", "--lake", "lake", "--format", "json"]).json();
    assert_eq!(listed["quarantine"].as_array().unwrap().len(), 14);
    let audit = listed["quarantine"][0]["audit_id"].as_str().unwrap().to_owned();
    scratch.ok(&["quarantine", "lift", &audit, "--lake", "lake"]);
    build("lifted", &[]);
    assert_eq!(scratch.number("lake", &format!("{reasons}'lifted'")), 0);
    scratch.run(&["quarantine", "lift", &audit, "--lake", "lake"]).ended(2).saying(&["nothing stands"]);
}

/// Rows of an imported build: each step numbers its rows from 0.
fn imported_build() -> Scratch {
    let scratch = Scratch::new();
    let (mut rollouts, mut calls, mut samples) = (String::new(), String::new(), String::new());
    for (step, row) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        let rollout = format!("r{step}{row}");
        rollouts += &json!({"run_id": "run", "rollout_id": rollout, "step": step, "group_id": rollout}).to_string();
        let output = [10 + step, 20 + row, 2];
        calls += &json!({
            "run_id": "run", "step": step, "rollout_id": rollout, "call_id": format!("c{step}{row}"), "call_index": 0,
            "prompt_token_ids": [1], "prompt_exactness": "engine", "output_token_ids": output, "output_exactness": "engine",
            "output_logprobs": [-0.11, -0.23, -0.37], "logprobs_source": "engine", "policy_version": 1,
        })
        .to_string();
        // Row 1 of step 0 holds another token than its call gave.
        let first = if (step, row) == (0, 1) { 99 } else { output[0] };
        let segment = |start: i32, length: i32, source: &str| {
            json!({"start": start, "length": length, "sequence_index": 0, "rollout_id": rollout,
                   "call_id": format!("c{step}{row}"), "source": source, "source_start": 0, "trained": source == "output"})
        };
        samples += &json!({
            "run_id": "run", "step": step, "rollout_id": rollout, "build_id": "build", "epoch": 0, "optimizer_step": step,
            "micro_batch": 0, "rank": 0, "row_index": row, "token_ids": [1, first, output[1], 2],
            "action_mask": [false, true, true, true], "segments": [segment(0, 1, "prompt"), segment(1, 3, "output")],
        })
        .to_string();
        for lines in [&mut rollouts, &mut calls, &mut samples] {
            lines.push('\n');
        }
    }
    scratch.write("run/runs.jsonl", r#"{"run_id":"run"}"#);
    scratch.write("run/rollouts.jsonl", &rollouts);
    scratch.write("run/calls.jsonl", &calls);
    scratch.write("run/samples.jsonl", &samples);
    scratch.write(
        "run/builds.jsonl",
        r#"{"build_id":"build","run_id":"run","origin":"imported","objective_unit":"token"}"#,
    );
    scratch.ok(&["init", "lake"]);
    scratch.ok(&["import", "tables", "run", "--lake", "lake"]);
    scratch
}

#[test]
fn a_quarantined_row_stays_out_of_exports_until_it_is_lifted() {
    let scratch = imported_build();
    let audit = ["audit", "--lake", "lake", "--check", "token/equal", "--quarantine"];
    scratch.run(&audit).ended(1);
    let listed = scratch.ok(&["quarantine", "list", "--lake", "lake", "--format", "json"]).json();
    let things = listed["quarantine"].as_array().unwrap();
    assert_eq!(things.len(), 1, "{listed}");
    let thing = &things[0];
    assert_eq!((&thing["level"], &thing["step"], &thing["row_index"]), (&json!("sample"), &json!(0), &json!(1)));
    let rows = |dest: &str, more: &[&str]| {
        let mut words = vec!["export", "build", dest, "--format", "parquet", "--lake", "lake", "--accept-assumed"];
        words.extend(more);
        let ran = scratch.ok(&words);
        let manifest = std::fs::read_to_string(scratch.path(dest).join("manifest.json")).unwrap();
        let manifest: serde_json::Value = serde_json::from_str(&manifest).unwrap();
        (manifest["rows"].as_u64().unwrap(), ran.text() + &ran.stderr)
    };
    // Row 1 of step 1 is another row.
    let (left, said) = rows("without", &[]);
    assert_eq!(left, 3);
    assert!(said.contains("1 quarantined rows"), "{said}");
    assert_eq!(rows("all", &["--include-quarantined"]).0, 4);
    let id = thing["quarantine_id"].as_str().unwrap().to_owned();
    scratch.ok(&["quarantine", "lift", &id, "--lake", "lake"]);
    assert_eq!(rows("lifted", &[]).0, 4);
    // Found again it stands again.
    scratch.run(&audit).ended(1);
    assert_eq!(rows("again", &[]).0, 3);
}

#[test]
fn a_copied_run_is_seen_by_a_scheduled_audit() {
    let scratch = imported_build();
    let audit = ["audit", "--lake", "lake", "--check", "rollout/run", "--since", "last", "--format", "json"];
    let violations = |report: &serde_json::Value| {
        let findings = report["findings"].as_array().unwrap();
        findings.iter().filter(|finding| finding["outcome"] == "violation").count()
    };
    assert_eq!(violations(&scratch.run(&audit).ended(0).json()), 0);
    let calls = std::fs::read_to_string(scratch.path("run/calls.jsonl")).unwrap();
    let calls = calls.replace("\"run_id\":\"run\"", "\"run_id\":\"copy\",\"response_id\":\"one\"");
    scratch.write("first/calls.jsonl", calls.replace("\"copy\"", "\"origin\""));
    let rollouts = std::fs::read_to_string(scratch.path("run/rollouts.jsonl")).unwrap();
    scratch.write("first/rollouts.jsonl", rollouts.replace("\"run_id\":\"run\"", "\"run_id\":\"origin\""));
    scratch.ok(&["import", "tables", "first", "--lake", "lake"]);
    assert_eq!(violations(&scratch.run(&audit).ended(0).json()), 0);
    scratch.write("second/calls.jsonl", &calls);
    scratch.write("second/rollouts.jsonl", rollouts.replace("\"run_id\":\"run\"", "\"run_id\":\"copy\""));
    scratch.ok(&["import", "tables", "second", "--lake", "lake"]);
    let found = scratch.run(&audit).ended(1).json();
    assert_eq!(violations(&found), 4, "{found}");
    // The other run is seen, too, where one is asked about; it is not accused.
    let of_run = ["audit", "--lake", "lake", "--check", "rollout/run", "--no-record", "--format", "json", "--run"];
    let of_copy = scratch.run(&[&of_run[..], &["copy"]].concat()).ended(1).json();
    assert_eq!(violations(&of_copy), 4, "{of_copy}");
    assert_eq!(violations(&scratch.run(&[&of_run[..], &["origin"]].concat()).ended(0).json()), 0);
    // Told once.
    assert_eq!(violations(&scratch.run(&audit).ended(0).json()), 0);
}

#[test]
fn a_key_that_may_only_read_audits_a_lake_on_s3() {
    let s3 = S3::start();
    let lake = "s3://lakes/audited";
    let owner = Scratch::with(s3.server.env());
    calculator_run::write_tables(&owner.path("run")).unwrap();
    owner.ok(&["init", lake]);
    owner.ok(&["import", "tables", "run", "--lake", lake]);
    let reader = Scratch::with(s3.server.env_reading());
    let prefix = ["audit", "--lake", lake, "--check", "token/prefix"];
    let audit = |more: &[&str]| reader.run(&[&prefix, more].concat());
    let report = audit(&["--format", "json"]).ended(1).saying(&["not recorded"]).json();
    assert_eq!(report["checks"][0]["violation"], json!(14), "{report}");
    // Nothing is recorded, so all is new.
    let last = audit(&["--since", "last", "--format", "json"]).ended(1).saying(&["not recorded"]).json();
    assert_eq!(last["findings"], report["findings"]);
    audit(&["--since", "0", "--format", "json"]).ended(1).saying(&["not recorded"]);
    let xml = audit(&["--format", "junit"]).ended(1).saying(&["not recorded"]).text();
    reader.write("audit.xml", &xml);
    assert_eq!(reader.python("read_junit.py", &["audit.xml"])["failures"]["token/prefix"], json!(14));
    // The findings come out all the same; what was asked for beside them did not happen, and that is an error.
    let quarantined = audit(&["--quarantine", "--format", "json"]).ended(3).saying(&["not recorded"]);
    assert_eq!(quarantined.json()["findings"], report["findings"]);
    assert_eq!(owner.number(lake, "SELECT (SELECT count(*) FROM audits) + (SELECT count(*) FROM quarantine)"), 0);
    // What was recorded by another counts for `last`.
    owner.run(&prefix).ended(1);
    let after = audit(&["--since", "last", "--format", "json"]).ended(0).json();
    assert_eq!(after["findings"], json!([]));
}

#[test]
fn one_wrong_row_of_four_with_one_number_is_quarantined_alone() {
    let scratch = Scratch::new();
    let (mut rollouts, mut calls, mut samples) = (String::new(), String::new(), String::new());
    let places = [(0, 0), (0, 1), (1, 0), (1, 1)];
    for (at, (rank, micro_batch)) in places.into_iter().enumerate() {
        let (rollout, call) = (format!("r{at}"), format!("c{at}"));
        rollouts += &json!({"run_id": "run", "rollout_id": rollout, "step": 0, "group_id": rollout}).to_string();
        calls += &json!({
            "run_id": "run", "rollout_id": rollout, "call_id": call, "call_index": 0, "prompt_token_ids": [1],
            "prompt_exactness": "engine", "output_token_ids": [10 + at, 2], "output_exactness": "engine",
            "output_logprobs": [-0.11, -0.23], "logprobs_source": "engine", "policy_version": 1,
        })
        .to_string();
        // On rank 1 the second micro-batch holds another token than its call gave, and the first one other positions.
        let token = if at == 3 { 99 } else { 10 + at };
        let positions = if at == 2 { [0, 7, 2] } else { [0, 1, 2] };
        let segment = |start: i32, length: i32, source: &str| {
            json!({"start": start, "length": length, "sequence_index": 0, "rollout_id": rollout, "call_id": call,
                   "source": source, "source_start": 0, "trained": source == "output"})
        };
        samples += &json!({
            "run_id": "run", "step": 0, "rollout_id": rollout, "build_id": "build", "epoch": 0, "optimizer_step": 0,
            "micro_batch": micro_batch, "rank": rank, "row_index": 0, "token_ids": [1, token, 2],
            "position_ids": positions, "action_mask": [false, true, true],
            "segments": [segment(0, 1, "prompt"), segment(1, 2, "output")],
        })
        .to_string();
        for lines in [&mut rollouts, &mut calls, &mut samples] {
            lines.push('\n');
        }
    }
    scratch.write("run/runs.jsonl", r#"{"run_id":"run"}"#);
    scratch.write("run/rollouts.jsonl", &rollouts);
    scratch.write("run/calls.jsonl", &calls);
    scratch.write("run/samples.jsonl", &samples);
    scratch.write(
        "run/builds.jsonl",
        r#"{"build_id":"build","run_id":"run","origin":"imported","objective_unit":"token"}"#,
    );
    scratch.ok(&["init", "lake"]);
    scratch.ok(&["import", "tables", "run", "--lake", "lake"]);
    let audit = ["audit", "--lake", "lake", "--check", "token/equal", "--check", "pack/position"];
    let report = scratch.run(&[&audit[..], &["--quarantine", "--format", "json"]].concat()).ended(1).json();
    let place = |row: &serde_json::Value| (row["rank"].clone(), row["micro_batch"].clone(), row["row_index"].clone());
    let found = report["findings"].as_array().unwrap().iter().filter(|finding| finding["outcome"] == "violation");
    let mut found: Vec<_> = found.map(|finding| (finding["check"].clone(), place(finding))).collect();
    found.sort_by_key(|(check, _)| check.to_string());
    let at = |micro_batch: i32| (json!(1), json!(micro_batch), json!(0));
    assert_eq!(found, [(json!("pack/position"), at(0)), (json!("token/equal"), at(1))]);
    let listed = scratch.ok(&["quarantine", "list", "--lake", "lake", "--format", "json"]).json();
    let mut things: Vec<_> = listed["quarantine"].as_array().unwrap().iter().map(place).collect();
    things.sort_by_key(|(_, micro_batch, _)| micro_batch.to_string());
    assert_eq!(things, [at(0), at(1)]);
    let words = ["export", "build", "out", "--format", "parquet", "--lake", "lake", "--accept-assumed"];
    scratch.ok(&words);
    let manifest = std::fs::read_to_string(scratch.path("out").join("manifest.json")).unwrap();
    let manifest: serde_json::Value = serde_json::from_str(&manifest).unwrap();
    assert_eq!(manifest["rows"], json!(2));
}

#[test]
fn the_account_counts_trained_tokens_of_calls_that_are_not_there() {
    let scratch = imported_build();
    let calls = std::fs::read_to_string(scratch.path("run/calls.jsonl")).unwrap();
    let kept: Vec<&str> = calls.lines().filter(|line| !line.contains("\"c11\"")).collect();
    assert_eq!(kept.len(), 3);
    for table in ["runs", "rollouts", "samples", "builds"] {
        let rows = std::fs::read_to_string(scratch.path(&format!("run/{table}.jsonl"))).unwrap();
        scratch.write(&format!("lost/{table}.jsonl"), &rows);
    }
    scratch.write("lost/calls.jsonl", kept.join("\n"));
    scratch.ok(&["init", "other"]);
    scratch.ok(&["import", "tables", "lost", "--lake", "other"]);
    for (lake, trained, untraced) in [("lake", 12, 0), ("other", 9, 3)] {
        let lines = scratch.ok(&["weights", "build", "--lake", lake, "--format", "ndjson"]).text();
        let lines: Vec<serde_json::Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let tokens = |name: &str| lines.iter().find(|line| line["name"] == name).unwrap()["tokens"].clone();
        assert_eq!((tokens("trained"), tokens("untraced")), (json!(trained), json!(untraced)), "{lake}");
    }
}
