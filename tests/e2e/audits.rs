//! Audits as a scheduled job runs them: statuses, formats, what is new, quarantine.

use std::os::unix::fs::PermissionsExt;

use rollbook_testing::calculator_run;
use rollbook_tests::Scratch;
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
