//! A trainer's own dump is judged like a build of ours: one row with doubled weights is found.

use rollbook_testing::calculator_run;
use rollbook_tests::Scratch;
use serde_json::{Value, json};

const LAKE: &str = "ours";

#[test]
fn a_row_with_doubled_weights_is_found_in_an_imported_build() {
    let scratch = Scratch::new();
    calculator_run::write_tables(&scratch.path("run")).unwrap();
    scratch.ok(&["init", LAKE]);
    scratch.ok(&["import", "tables", "run", "--lake", LAKE]);
    scratch.ok(&["reward", "verifier_value", "--lake", LAKE]);
    scratch.ok(&["credit", "grpo", "--reward", "verifier_value", "--lake", LAKE]);
    scratch.ok(&[
        "build",
        "merged",
        "--credit",
        "grpo",
        "--max-tokens",
        "4096",
        "--objective",
        "rollout",
        "--lake",
        LAKE,
    ]);
    let columns = "build_id, run_id, step, epoch, optimizer_step, micro_batch, rank, row_index, token_ids, \
                   position_ids, action_mask, logprobs, advantages, loss_weights, segments";
    let mut samples = scratch.rows(LAKE, &format!("SELECT {columns} FROM samples ORDER BY row_index"));
    let build = scratch.rows(LAKE, "SELECT build_id, run_id, objective_unit, objective_scope FROM builds");
    assert!(samples.len() > 2);

    let clean = imported(&scratch, "clean", &build, &samples);
    assert!(clean.is_empty(), "{clean:?}");

    for weight in samples[1]["loss_weights"].as_array_mut().unwrap() {
        *weight = json!(weight.as_f64().unwrap() * 2.0);
    }
    let doubled = imported(&scratch, "doubled", &build, &samples);
    // Nearly every rollout's share changes: those of the row grow, the others shrink.
    let in_row: Vec<&str> = samples[1]["segments"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|segment| segment["rollout_id"].as_str())
        .collect();
    for rollout in &in_row {
        assert!(doubled.iter().any(|finding| finding["rollout_id"] == *rollout), "{rollout} is not accused");
    }
    assert!(doubled.iter().all(|finding| finding["build_id"] == build[0]["build_id"]));
}

/// Imports the run with a build into a lake of its own, and returns what is found in the build.
fn imported(scratch: &Scratch, lake: &str, build: &[Value], samples: &[Value]) -> Vec<Value> {
    let source = format!("source-{lake}");
    let lines = |rows: &[Value]| rows.iter().map(Value::to_string).collect::<Vec<_>>().join("\n");
    calculator_run::write_tables(&scratch.path(&source)).unwrap();
    scratch.write(&format!("{source}/builds.jsonl"), lines(build));
    scratch.write(&format!("{source}/samples.jsonl"), lines(samples));
    scratch.ok(&["init", lake]);
    scratch.ok(&["import", "tables", &source, "--lake", lake, "--strict"]);
    let checks = ["audit", "--lake", lake, "--check", "pack/*", "--fail-on", "never", "--format", "json"];
    let report = scratch.ok(&checks).json();
    // The run has no reference model and no metrics.
    let is_idle = |check: &Value| check["check"] == "pack/kl_mask" || check["check"] == "pack/metric";
    let examined: Vec<&Value> = report["checks"].as_array().unwrap().iter().filter(|check| !is_idle(check)).collect();
    assert!(examined.iter().all(|check| check["examined"].as_i64().unwrap() > 0), "{examined:?}");
    let mut findings = report["findings"].as_array().unwrap().clone();
    // The credits were left behind, so whether the advantages are theirs is undeclared.
    findings.retain(|finding| finding["outcome"] != "undeclared");
    // A doubled weight is a doubled learning rate of that row as well.
    let is_told = |finding: &Value| finding["check"] == "pack/weight" || finding["check"] == "pack/scale";
    assert!(findings.iter().all(is_told), "{findings:?}");
    findings
}
