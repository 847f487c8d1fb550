//! Killed imports: whatever the moment, the lake shows a source whole or not at all, and the next run finishes the work.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rollbook_testing::calculator_run;
use rollbook_testing::generate::write::{Format, write_tables};
use rollbook_testing::generate::{Generator, Options};
use rollbook_tests::Scratch;
use serde_json::json;

fn start(scratch: &Scratch, arguments: &[&str]) -> Child {
    scratch.command(arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

#[test]
fn an_import_killed_at_any_moment_loses_and_doubles_nothing() {
    let scratch = Scratch::new();
    let options = Options { groups: 1, turns: 40.0, ..Options::default() };
    let written = write_tables(&scratch.path("run"), Generator::new(options), Format::Jsonl).unwrap();
    let import = |lake: &'static str| ["import", "tables", "run", "--lake", lake];
    // How long it takes undisturbed says where to kill it; a machine that was busy then is told longer than it takes.
    scratch.ok(&["init", "whole"]);
    let began = Instant::now();
    scratch.ok(&import("whole"));
    let whole = began.elapsed();
    scratch.ok(&["init", "lake"]);
    let counts = |lake: &str| {
        let sql = "SELECT count(*), count(DISTINCT call_id), coalesce(sum(prompt_len), 0), coalesce(sum(output_len), 0) FROM calls";
        scratch.row(lake, sql)
    };
    let all = [json!(written.calls), json!(written.calls), json!(written.prompt_tokens), json!(written.sampled_tokens)];
    assert_eq!(counts("whole"), all);
    let none = [json!(0), json!(0), json!(0), json!(0)];
    let mut killed = 0;
    for share in [2, 5, 10, 15, 20, 30, 40, 50, 60, 70, 80, 90, 95] {
        let mut child = start(&scratch, &import("lake"));
        std::thread::sleep(whole * share / 100);
        child.kill().unwrap();
        killed += u32::from(!child.wait().unwrap().success());
        let seen = counts("lake");
        assert!(seen == all || seen == none, "half an import is seen after {share} %: {seen:?}");
        if seen == all {
            break;
        }
    }
    assert!(killed >= 3, "only {killed} imports were killed");
    scratch.ok(&import("lake"));
    assert_eq!(counts("lake"), all);
    assert_eq!(
        scratch.number("lake", "SELECT count(*) FROM rollouts_history"),
        i64::try_from(written.rollouts).unwrap()
    );
    assert_eq!(scratch.snapshot("lake"), 1);
    // Nothing is left for another run, or for other people's readers.
    scratch.ok(&import("lake"));
    assert_eq!(scratch.snapshot("lake"), 1);
    let read = scratch.python("read_tables.py", &[&scratch.path("lake").display().to_string(), "calls", "rollouts"]);
    assert_eq!((&read["calls"]["rows"], &read["rollouts"]["rows"]), (&json!(written.calls), &json!(written.rollouts)));
}

/// The entry of a lake's snapshot, and the commits of a table in its Delta log.
fn entry(scratch: &Scratch, n: u32) -> PathBuf {
    scratch.path(&format!("lake/_rollbook/snapshots/{n:020}.json"))
}

fn commit(scratch: &Scratch, table: &str, version: u32) -> PathBuf {
    scratch.path(&format!("lake/{table}/_delta_log/{version:020}.json"))
}

#[test]
fn an_import_killed_between_publishing_and_applying_is_finished_by_the_next() {
    let scratch = Scratch::new();
    calculator_run::write_tables(&scratch.path("run")).unwrap();
    let call = r#"{"run_id":"other","rollout_id":"a","call_id":"c","prompt_token_ids":[1],"output_token_ids":[2]}"#;
    scratch.write("next/calls.jsonl", call);
    let tables = ["calls", "encodings", "environment_records", "imports", "policies", "rollouts", "runs", "scores"];
    // The moment is short: the process is killed as soon as the entry lies there, until a commit is missing.
    let missing: Vec<&str> = (0..40)
        .find_map(|_| {
            fs::remove_dir_all(scratch.path("lake")).ok();
            scratch.ok(&["init", "lake"]);
            let mut child = start(&scratch, &["import", "tables", "run", "--lake", "lake"]);
            let path = entry(&scratch, 1);
            let began = Instant::now();
            while !path.exists() {
                assert!(began.elapsed() < Duration::from_mins(1), "the import publishes nothing");
                std::hint::spin_loop();
            }
            child.kill().unwrap();
            child.wait().unwrap();
            let missing: Vec<&str> = tables.into_iter().filter(|table| !commit(&scratch, table, 1).exists()).collect();
            (!missing.is_empty()).then_some(missing)
        })
        .unwrap();
    // The entry is the commit: everything is seen, by a reader that writes nothing.
    assert!(entry(&scratch, 1).exists());
    assert_eq!(scratch.row("lake", "SELECT count(*), sum(prompt_len) FROM calls"), [json!(1335), json!(248_300)]);
    assert_eq!(scratch.number("lake", "SELECT count(*) FROM scores"), 384);
    assert!(missing.iter().all(|table| !commit(&scratch, table, 1).exists()), "a reader wrote");
    // The next writer, of something else, applies it first.
    scratch.ok(&["import", "tables", "next", "--lake", "lake"]);
    assert!(missing.iter().all(|table| commit(&scratch, table, 1).exists()), "{missing:?} are not applied");
    let again = scratch.ok(&["import", "tables", "run", "--lake", "lake"]).text();
    assert!(again.contains("in the lake already (snapshot 1)"), "{again}");
    assert_eq!(scratch.number("lake", "SELECT count(*) FROM calls"), 1336);
    let read = scratch.python("read_tables.py", &[&scratch.path("lake").display().to_string(), "calls", "scores"]);
    assert_eq!((&read["calls"]["rows"], &read["scores"]["rows"]), (&json!(1336), &json!(384)));
}

#[test]
fn a_deleted_delta_commit_changes_no_count_and_comes_back_byte_for_byte() {
    let scratch = Scratch::new();
    calculator_run::write_tables(&scratch.path("run")).unwrap();
    scratch.ok(&["init", "lake"]);
    scratch.ok(&["import", "tables", "run", "--lake", "lake"]);
    let paths = ["calls", "scores"].map(|table| commit(&scratch, table, 1));
    let texts = paths.clone().map(|path| fs::read(path).unwrap());
    for path in &paths {
        fs::remove_file(path).unwrap();
    }
    assert_eq!(scratch.row("lake", "SELECT count(*), sum(prompt_len) FROM calls"), [json!(1335), json!(248_300)]);
    assert_eq!(scratch.number("lake", "SELECT count(*) FROM scores"), 384);
    assert!(!paths[0].exists());
    // The next write touches neither table.
    scratch.ok(&["reward", "verifier_value", "--lake", "lake"]);
    assert_eq!(paths.map(|path| fs::read(path).unwrap()), texts);
    assert_eq!(scratch.number("lake", "SELECT count(*) FROM calls"), 1335);
}
