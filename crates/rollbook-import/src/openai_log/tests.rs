//! Shapes of servers, and what is wrong with lines.

use rstest::rstest;

use crate::tests::{cell, gather, log, samples};
use crate::{ImportOptions, importer};

fn cells<const N: usize>(lines: &str, columns: [&str; N]) -> [String; N] {
    let read = log(lines);
    assert_eq!(read.reasons(), Vec::<String>::new());
    columns.map(|column| cell(&read.tables["calls"], column, 0))
}

#[test]
fn samples_of_three_servers_map() {
    let read = gather(importer("openai-log").unwrap(), &[samples("openai_log")], &ImportOptions::default()).unwrap();
    let calls = &read.tables["calls"];
    let row = |column: &str| [0, 1, 2].map(|row| cell(calls, column, row));
    assert_eq!(row("call_id"), ["c-3", "c-1", "c-2"]);
    assert_eq!(row("protocol"), ["sglang.generate", "chat.completions", "completions"]);
    assert_eq!(row("engine"), ["sglang", "null", "null"]);
    assert_eq!(row("prompt_token_ids"), ["[1, 5]", "[1, 5, 6]", "[1, 5, 6, 7, 2, 8]"]);
    assert_eq!(row("prompt_exactness"), ["engine", "engine", "engine"]);
    assert_eq!(row("prompt_sent_len"), ["2", "null", "6"]);
    assert_eq!(row("output_token_ids"), ["[7, 2]", "[7, 2]", "[9]"]);
    assert_eq!(row("output_logprobs"), ["[-0.25, -0.125]", "[-0.5, null]", "[-1.5]"]);
    assert_eq!(row("output_text"), ["x", "a", "b"]);
    assert_eq!(row("finish_reason"), ["stop", "stop", "length"]);
    assert_eq!(row("stop_token"), ["2", "null", "9"]);
    assert_eq!(row("response_id"), ["abc", "chatcmpl-1", "cmpl-2"]);
    assert_eq!(row("temperature"), ["1.0", "0.7", "null"]);
    assert_eq!(row("top_k"), ["null", "20", "null"]);
    assert_eq!(row("max_tokens"), ["4", "8", "null"]);
    assert_eq!(row("seed"), ["null", "5", "null"]);
    assert_eq!(row("usage_cached_prompt_tokens"), ["1", "1", "null"]);
    assert_eq!(row("policy_version"), ["5", "3", "null"]);
    let two = "[{start: 0, policy_version: 3}, {start: 1, policy_version: 4}]";
    assert_eq!(row("policy_spans"), ["[{start: 0, policy_version: 5}]", two, "null"]);
    assert_eq!(row("parsed"), ["null", "null", "null"]);
    let response = "{\"text\":\"x\",\"meta_info\":{\"id\":\"abc\",\"finish_reason\":{\"type\":\"stop\",\"matched\":2},\
         \"prompt_tokens\":2,\"completion_tokens\":2,\"cached_tokens\":1,\"weight_version\":\"5\",\
         \"input_token_logprobs\":[[null,1,null],[-2.0,5,null]]}}";
    assert_eq!(row("response")[0], response);
    assert_eq!((read.rows("rollouts"), read.rows("runs")), (1, 1));
    assert_eq!(cell(&read.tables["rollouts"], "task_id", 0), "t-1");
}

#[test]
fn ids_come_from_token_strings_where_no_list_gives_them() {
    let line = r#"{"metadata":{},"response":{"id":"r","choices":[{"message":{"content":"x"},"logprobs":{"content":[{"token":"token_id:4","logprob":-1},{"token":"token_id:5","logprob":-9999.0}]}}]}}"#;
    let columns = ["output_token_ids", "output_exactness", "output_logprobs", "prompt_exactness", "call_id"];
    assert_eq!(cells(line, columns), ["[4, 5]", "engine", "[-1.0, -9999.0]", "absent", "r"]);
}

#[test]
fn other_servers_put_ids_elsewhere() {
    let litellm = r#"{"response":{"id":"r","choices":[{"provider_specific_fields":{"token_ids":[4]},"message":{}}]}}"#;
    assert_eq!(cells(litellm, ["output_token_ids", "protocol"]), ["[4]", "chat.completions"]);
    let sglang = r#"{"response":{"id":"r","choices":[{"prompt_token_ids":[1],"response_token_ids":[4],"matched_stop":"END","message":{}}],"metadata":{"weight_version":"7"}}}"#;
    let columns = ["prompt_token_ids", "output_token_ids", "stop_string", "policy_version"];
    assert_eq!(cells(sglang, columns), ["[1]", "[4]", "END", "7"]);
    let extended = r#"{"response":{"id":"r","choices":[{"message":{}}],"sglext":{"input_ids":[1],"output_ids":[4]}}}"#;
    assert_eq!(cells(extended, ["prompt_token_ids", "output_token_ids"]), ["[1]", "[4]"]);
    let sent = r#"{"request":{"prompt":[1,2]},"response":{"id":"r","choices":[{"text":"x"}]}}"#;
    let columns = ["prompt_token_ids", "prompt_exactness", "output_token_ids", "output_exactness", "logprobs_source"];
    assert_eq!(cells(sent, columns), ["[1, 2]", "assumed", "null", "absent", "absent"]);
}

#[rstest]
#[case::length(r#"[{"token":"a","logprob":-1}]"#)]
#[case::other_ids(r#"[{"token":"token_id:4","logprob":-1},{"token":"token_id:6","logprob":-2}]"#)]
#[case::empty("[]")]
fn logprobs_of_other_tokens_are_null_kept_and_counted(#[case] content: &str) {
    let line = format!(
        "{{\"response\":{{\"id\":\"r\",\"choices\":[{{\"token_ids\":[4,5],\"logprobs\":{{\"content\":{content}}}}}]}}}}"
    );
    let read = log(&line);
    let calls = &read.tables["calls"];
    assert_eq!(cell(calls, "output_token_ids", 0), "[4, 5]");
    assert_eq!(cell(calls, "output_logprobs", 0), "null");
    assert_eq!(cell(calls, "logprobs_source", 0), "absent");
    assert!(cell(calls, "extra", 0).starts_with("{\"output_logprobs\":["), "{}", cell(calls, "extra", 0));
    assert_eq!(
        read.notes,
        ["1 calls whose logprobs do not belong to their ids: stored as null, the list kept in extra"]
    );
}

#[test]
fn several_choices_are_several_calls_and_a_parent_is_the_selected_one() {
    let choices = r#"[{"index":0,"token_ids":[4],"message":{"content":"a"}},{"index":1,"token_ids":[5],"message":{"content":"b"}}]"#;
    let line = |id: &str, more: &str, choices: &str| {
        format!(
            "{{\"metadata\":{{\"run_id\":\"r\",\"call_id\":\"{id}\"{more}}},\"response\":{{\"id\":\"x\",\
             \"prompt_token_ids\":[1],\"choices\":{choices},\"usage\":{{\"prompt_tokens\":1,\"completion_tokens\":2}}}}}}"
        )
    };
    let one = r#"[{"index":0,"token_ids":[6]}]"#;
    let lines = [
        // A child may stand before its parent.
        line("c", ",\"parent_call_id\":\"a\"", one),
        line("a", ",\"selected_index\":1", choices),
        line("b", "", choices),
        line("d", ",\"parent_call_id\":\"b\"", one),
        line("e", ",\"parent_call_id\":\"c\"", one),
    ]
    .join("\n");
    let read = log(&lines);
    assert_eq!(read.reasons(), Vec::<String>::new());
    let calls = &read.tables["calls"];
    let column = |name: &str| (0..calls.num_rows()).map(|row| cell(calls, name, row)).collect::<Vec<_>>();
    assert_eq!(column("call_id"), ["c", "a/0", "a/1", "b/0", "b/1", "d", "e"]);
    assert_eq!(column("parent_call_id"), ["a/1", "null", "null", "null", "null", "null", "c"]);
    assert_eq!(column("choice_index"), ["null", "0", "1", "0", "1", "null", "null"]);
    assert_eq!(column("is_selected"), ["null", "false", "true", "null", "null", "null", "null"]);
    assert_eq!(column("output_token_ids"), ["[6]", "[4]", "[5]", "[4]", "[5]", "[6]", "[6]"]);
    assert_eq!(column("extra")[5], "{\"parent_call_id\":\"b\"}");
    assert_eq!(column("usage_output_tokens"), ["2", "null", "null", "null", "null", "2", "2"]);
    assert!(column("response")[2].contains("\"b\"") && !column("response")[2].contains("\"a\""));
}

#[test]
fn native_answers_in_a_list_are_choices() {
    let line = r#"{"metadata":{"call_id":"c"},"request":{"input_ids":[1]},"response":[{"text":"a","output_ids":[4],"meta_info":{"id":"p","completion_tokens":1}},{"text":"b","output_ids":[5],"meta_info":{"id":"q","completion_tokens":1}}]}"#;
    let read = log(line);
    let calls = &read.tables["calls"];
    let column = |name: &str| [0, 1].map(|row| cell(calls, name, row));
    assert_eq!(column("call_id"), ["c/0", "c/1"]);
    assert_eq!(column("output_token_ids"), ["[4]", "[5]"]);
    assert_eq!(column("response_id"), ["p", "q"]);
    assert_eq!(column("usage_output_tokens"), ["1", "1"]);
    assert_eq!(column("response")[1], "{\"text\":\"b\",\"meta_info\":{\"id\":\"q\",\"completion_tokens\":1}}");
}

#[test]
fn tool_calls_and_reasoning_are_parsed_and_unknown_members_kept() {
    let line = r#"{"metadata":{"call_id":"c","colour":"red"},"trace":[1, 2],"response":"{\"choices\": [{\"message\": {\"role\": \"assistant\", \"content\": null, \"reasoning_content\": \"hm\", \"tool_calls\": [{\"id\": 1}]}, \"finish_reason\": \"tool_calls\"}]}"}"#;
    let columns = ["parsed", "output_text", "extra", "finish_reason"];
    let parsed = "{\"reasoning_content\":\"hm\",\"tool_calls\":[{\"id\":1}]}";
    assert_eq!(cells(line, columns), [parsed, "null", "{\"colour\":\"red\",\"trace\":[1,2]}", "tool_calls"]);
    assert_eq!(log(line).notes, ["metadata.colour: no column, kept in extra", "trace: no column, kept in extra"]);
}

#[test]
fn a_call_without_an_answer_or_an_id_is_a_call() {
    let lines = "{\"request\":{\"model\":\"m\",\"messages\":[]}}\n{\"request\":{\"model\":\"n\"},\"response\":null}\n";
    let read = log(lines);
    let calls = &read.tables["calls"];
    assert_eq!(calls.num_rows(), 2);
    let id = cell(calls, "call_id", 0);
    assert!(id.starts_with("line-") && id.len() == 37 && id != cell(calls, "call_id", 1));
    assert_eq!(id, cell(&log(lines).tables["calls"], "call_id", 0));
    assert_eq!(cell(calls, "model", 1), "n");
    assert_eq!(cell(calls, "output_exactness", 1), "absent");
    assert_eq!((read.rows("rollouts"), read.rows("runs")), (0, 0));
}

#[test]
fn the_run_of_the_options_is_that_of_lines_without_one() {
    let folder = crate::tests::folder(&[("log.jsonl", b"{\"metadata\":{\"rollout_id\":\"o\"},\"request\":{}}\n")]);
    let options = ImportOptions { run_id: Some("r".to_owned()), strict: true };
    let read = gather(importer("openai-log").unwrap(), &[folder.path().join("log.jsonl")], &options).unwrap();
    for table in ["runs", "rollouts", "calls"] {
        assert_eq!(cell(&read.tables[table], "run_id", 0), "r");
    }
}

#[rstest]
#[case::broken("{\"request\": {", "1 request: broken JSON at byte 13: expected a key, found the end")]
#[case::nothing("{\"metadata\":{}}", "1 -: neither a request nor a response")]
#[case::no_object("3", "1 -: a line that is no JSON object")]
#[case::chunks(
    r#"{"response":[{"object":"chat.completion.chunk","choices":[]}]}"#,
    "1 response[0].object: a chunk of a stream; log the assembled response"
)]
#[case::text(r#"{"response":"not json"}"#, "1 response: a string that holds no JSON")]
#[case::null_id(
    r#"{"response":{"choices":[{"token_ids":[1,null]}]}}"#,
    "1 response.choices[0].token_ids[1]: null inside a list that cannot hold one"
)]
#[case::wide_id(
    r#"{"response":{"prompt_token_ids":[4294967296]}}"#,
    "1 response.prompt_token_ids[0]: 4294967296 is outside int32"
)]
#[case::text_logprob(
    r#"{"response":{"choices":[{"logprobs":{"content":[{"logprob":"x"}]}}]}}"#,
    "1 response.choices[0].logprobs.content[0].logprob: a string where a number is expected"
)]
#[case::step(
    r#"{"metadata":{"step":"first"},"request":{}}"#,
    "1 metadata.step: a string where integer of 64 bits is expected"
)]
#[case::time(
    r#"{"started_at":"now","request":{}}"#,
    "1 started_at: a string that is no RFC 3339 time with a zone, such as 2026-01-31T08:00:00Z"
)]
#[case::usage(
    r#"{"response":{"choices":[{"text":"a"},{"text":"b"}],"usage":{"prompt_tokens":1e10}}}"#,
    "1 response.usage.prompt_tokens: 10000000000 is outside int32"
)]
fn a_bad_line_is_a_reject_and_the_rest_goes_in(#[case] line: &str, #[case] expected: &str) {
    let good = r#"{"metadata":{"run_id":"r","rollout_id":"o","call_id":"good"},"request":{}}"#;
    let read = log(&format!("{line}\n{good}\n"));
    assert_eq!(read.reasons(), [expected]);
    assert_eq!((read.rows("calls"), read.rows("rollouts"), read.rows("runs")), (1, 1, 1));
    assert_eq!(cell(&read.tables["calls"], "call_id", 0), "good");
}
