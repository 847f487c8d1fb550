//! A real agent's run: what it costs to store, and that it comes back.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;

use serde_json::Value;

use super::rows::{Case, cases, decode_by, encode, lists, only};
use crate::codec::{needs_rebase, rebase_rollout};

/// The run's calls, where the data lies beside the repository or where `ROLLBOOK_SHARED` says.
fn calls() -> Option<Vec<Case>> {
    let beside = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared"));
    let shared = std::env::var_os("ROLLBOOK_SHARED").map_or(beside, PathBuf::from);
    let file = File::open(shared.join("data/calculator-run/tables/calls.jsonl")).ok()?;
    let call = |line: String| {
        let line: Value = serde_json::from_str(&line).unwrap();
        let text = |name: &str| line[name].as_str().map(str::to_owned);
        let tokens = |name: &str| {
            let ids = line[name].as_array()?.iter();
            Some(ids.map(|id| i32::try_from(id.as_i64().unwrap()).unwrap()).collect())
        };
        let compact = |text: String| serde_json::from_str::<Value>(&text).unwrap().to_string();
        Case {
            rollout: text("rollout_id"),
            id: text("call_id"),
            index: line["call_index"].as_i64().map(|index| i32::try_from(index).unwrap()),
            parent: text("parent_call_id"),
            prompt: tokens("prompt_token_ids"),
            output: tokens("output_token_ids"),
            request: text("request").map(compact),
        }
    };
    Some(BufReader::new(file).lines().map(|line| call(line.unwrap())).collect())
}

#[test]
fn calculator_run_stores_little_of_its_prompts() {
    let Some(calls) = calls() else {
        println!("skipped: no calculator-run beside the repository; set ROLLBOOK_SHARED");
        return;
    };
    let stored = encode(&calls);
    let whole: usize = calls.iter().filter_map(|call| call.prompt.as_ref()).map(Vec::len).sum();
    let mut by_rollout: BTreeMap<_, Vec<Case>> = BTreeMap::new();
    for call in &calls {
        by_rollout.entry(call.rollout.clone()).or_default().push(call.clone());
    }
    let mut suffixes = 0;
    for (rollout, own) in &by_rollout {
        let rows = only(&stored, rollout.as_deref());
        assert_eq!(&cases(&decode_by(&rows, 3, 2_000)), own, "{rollout:?}");
        let joined =
            if needs_rebase(std::slice::from_ref(&rows)).unwrap() { rebase_rollout(&[rows]).unwrap() } else { rows };
        suffixes += lists(&joined, "prompt_suffix").iter().flatten().map(Vec::len).sum::<usize>();
    }
    // Both figures were counted in Python over the same file.
    println!("{suffixes} of {whole} prompt tokens stored in {} rollouts", by_rollout.len());
    assert_eq!(whole, 248_300);
    assert!(suffixes <= 92_884, "{suffixes} tokens stored");
}
