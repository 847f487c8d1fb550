//! The run comes as tables and as an engine's log, and gives the same calls from either.

use rollbook_testing::calculator_run;
use rollbook_tests::Scratch;
use serde_json::Value;

const CALLS: &str = "SELECT run_id, rollout_id, call_id, call_index, parent_call_id, kind, break_reason, \
     prompt_token_ids, output_token_ids, output_logprobs, prompt_len, output_len, prompt_digest, output_digest, \
     parent_prefix_len, prompt_exactness, output_exactness, logprobs_source, policy_version, finish_reason \
     FROM calls ORDER BY call_id";

#[test]
fn tables_and_log_give_the_same_calls() {
    let scratch = Scratch::new();
    calculator_run::write_tables(&scratch.path("run")).unwrap();
    calculator_run::write_openai_log(&scratch.path("log")).unwrap();
    let mut forms = Vec::new();
    for (format, source) in [("tables", "run"), ("openai-log", "log/requests.jsonl")] {
        let lake = format!("lake-{format}");
        scratch.ok(&["init", &lake]);
        scratch.ok(&["import", format, source, "--lake", &lake]);
        forms.push(scratch.rows(&lake, CALLS));
    }
    let [tables, log] = &forms[..] else { panic!("two forms") };
    assert_eq!((tables.len(), log.len()), (1335, 1335));
    for (one, other) in tables.iter().zip(log) {
        assert_eq!(one, other);
    }
    source_agrees(&scratch, tables);
}

/// Both could be wrong alike: the lake's calls are those of the source's own lines.
fn source_agrees(scratch: &Scratch, calls: &[Value]) {
    let text = scratch.read("run/calls.jsonl");
    let mut lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    lines.sort_by(|one, other| one["call_id"].as_str().cmp(&other["call_id"].as_str()));
    for (line, call) in lines.iter().zip(calls) {
        for column in ["call_id", "rollout_id", "call_index", "parent_call_id", "break_reason", "prompt_token_ids"] {
            assert_eq!(line[column], call[column], "{column} of {}", call["call_id"]);
        }
        assert_eq!(line["output_token_ids"], call["output_token_ids"]);
        assert_eq!(floats(&line["output_logprobs"]), floats(&call["output_logprobs"]), "{}", call["call_id"]);
    }
}

/// As floats: the source writes doubles, the column holds floats.
#[expect(clippy::cast_possible_truncation, reason = "the column holds floats")]
fn floats(list: &Value) -> Vec<Option<u32>> {
    list.as_array().unwrap().iter().map(|value| value.as_f64().map(|number| (number as f32).to_bits())).collect()
}
