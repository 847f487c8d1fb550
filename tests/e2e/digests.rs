//! The same recipe over the same rows gives the same content digest, however the rows came and whatever memory there is.

use rollbook_testing::calculator_run;
use rollbook_tests::Scratch;
use serde_json::Value;

#[test]
fn content_digests_do_not_depend_on_how_rows_came() {
    let scratch = Scratch::new();
    calculator_run::write_tables(&scratch.path("run")).unwrap();
    scratch.ok(&["init", "whole"]);
    scratch.ok(&["import", "tables", "run", "--lake", "whole"]);
    // Another lake gets the calls first, last rollouts first, and the rest in a second import.
    let reversed: Vec<String> = scratch.read("run/calls.jsonl").lines().rev().map(str::to_owned).collect();
    scratch.write("calls/calls.jsonl", reversed.join("\n"));
    scratch.ok(&["init", "parts"]);
    scratch.ok(&["import", "tables", "calls", "--lake", "parts"]);
    scratch.ok(&["import", "tables", "run", "--lake", "parts"]);
    let [whole, parts] = [("whole", "512"), ("parts", "64")].map(|(lake, memory)| digests(&scratch, lake, memory));
    assert_eq!(whole, parts);
    // Again in the same lake, beside the first.
    assert_eq!(digests(&scratch, "whole", "512"), whole);
    assert_eq!(scratch.number("whole", "SELECT count(*) FROM derivations"), 10);
    assert_eq!(scratch.number("whole", "SELECT count(*) FROM credits"), 3 * 384);
}

/// The content digests of a reward, three credits and a build.
fn digests(scratch: &Scratch, lake: &str, memory: &str) -> Vec<Value> {
    let reward = ["reward", "verifier_value"];
    let credit = |name: &'static str| ["credit", name, "--reward", "verifier_value"];
    let build = ["build", "merged", "--credit", "grpo", "--max-tokens", "2048", "--objective", "rollout"];
    let commands = [&reward[..], &credit("grpo"), &credit("dr_grpo"), &credit("rloo"), &build];
    let run = |command: &[&str]| {
        let arguments = [command, &["--lake", lake, "--memory-limit", memory, "--format", "json"]].concat();
        let digest = scratch.ok(&arguments).json()["content_digest"].clone();
        assert!(digest.as_str().is_some_and(|text| text.len() > 64), "{digest}");
        digest
    };
    commands.into_iter().map(run).collect()
}
