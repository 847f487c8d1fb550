//! verl's catalogue of turn-wise tokenization against whole renderings: each case by the layer that broke.
//!
//! The catalogue has no token ids, but the texts around the boundaries; the models' own tokenizers are not needed to see that these
//! texts differ, so Qwen3's stands for them.

use std::fs;

use serde_json::{Map, Value};

use super::tests::{failure, shared};
use super::*;
use crate::difference::{Inherited, first_difference};
use crate::tokenizer::Tokenizer;

/// What the evidence of the two Mistral v0.1 cases says of its template.
const MISTRAL: &str = "\
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content'] %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}
{{- bos_token }}
{%- for message in loop_messages %}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
        {{- raise_exception('After the optional system message, conversation roles must alternate user/assistant/user/assistant/...') }}
    {%- endif %}
    {%- if message['role'] == 'user' %}
        {{- ' [INST] ' + message['content'] + ' [/INST]' }}
    {%- elif message['role'] == 'assistant' %}
        {{- ' ' + message['content'] + eos_token }}
    {%- else %}
        {{- raise_exception('Only user and assistant roles are supported, with the exception of an initial optional system message!') }}
    {%- endif %}
{%- endfor %}";

fn cases() -> Option<Vec<Value>> {
    let path = shared("verl/ct_vs_legacy_mismatch_cases.jsonl")?;
    Some(fs::read_to_string(path).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect())
}

/// The boundary after the first tool call, turn by turn and as the template renders it, where a case has both.
fn boundaries(case: &Value) -> Option<(String, String)> {
    let pairs = [
        ("/full_apply_chat_template/legacy_boundary", "/full_apply_chat_template/canonical_tool_response_boundary"),
        ("/boundaries/legacy_after_first_tool_call", "/boundaries/full_apply_chat_template_before_first_tool_response"),
        ("/boundaries/legacy_first_tool_response", "/boundaries/full_apply_chat_template_first_tool_response"),
        ("/template_evidence/legacy_tool_response_boundary", "/template_evidence/full_tool_response_boundary"),
    ];
    let text = |place: &str| case.pointer(place).and_then(Value::as_str).map(|text| text.replace("\\n", "\n"));
    pairs.iter().find_map(|(legacy, full)| Some((text(legacy)?, text(full)?)))
}

#[test]
fn mismatches_differ_in_text_behind_the_call_and_not_in_cuts() {
    let (Some(cases), Some(folder)) = (cases(), shared("tokenizers/qwen3")) else { return };
    let tokenizer = Tokenizer::from_bytes(&fs::read(folder.join("tokenizer.json")).unwrap()).unwrap();
    let mut judged = 0;
    for case in &cases {
        let Some((legacy, full)) = boundaries(case) else { continue };
        let sampled = legacy.split_inclusive("</tool_call>").next().unwrap();
        let inherited = tokenizer.encode(sampled).unwrap().len();
        let (observed, expected) = (tokenizer.encode(&legacy).unwrap(), tokenizer.encode(&full).unwrap());
        let found = first_difference(&tokenizer, &observed, &expected, Inherited::Tokens(inherited)).unwrap().unwrap();
        assert!(found.is_text && found.position >= inherited, "{}: {found:?}", case["case_id"]);
        judged += 1;
    }
    assert_eq!((cases.len(), judged), (16, 6));
}

#[test]
fn mistral_renders_and_refuses_as_the_evidence_says() {
    let Some(cases) = cases() else { return };
    let of = |name: &str| cases.iter().find(|case| case["case_id"].as_str().unwrap().starts_with(name)).unwrap();
    let evidence = &of("mistral_7b_instruct_v01")["initialize_system_prompt_evidence"];
    let template = Template::new(MISTRAL).unwrap();
    let tokens: Map<String, Value> =
        serde_json::json!({"bos_token": "<s>", "eos_token": "</s>"}).as_object().unwrap().clone();
    let request = |roles: &[&str]| {
        let messages: Vec<Value> = roles.iter().map(|role| serde_json::json!({"role": role, "content": ""})).collect();
        serde_json::json!({"messages": messages, "add_generation_prompt": false})
    };
    let rendered = |roles: &[&str]| {
        let conversation = Conversation::from_request(&request(roles).to_string(), &Map::new()).unwrap();
        template.render(&conversation, &tokens, None).unwrap()
    };
    assert_eq!(rendered(&["user"]), evidence["token1_text"].as_str().unwrap());
    assert_eq!(rendered(&["user", "assistant", "user"]), evidence["alternating_probe_text"].as_str().unwrap());
    let probes = &of("mistral_v01_template")["direct_probe_results"];
    for (roles, probe) in
        [(&["user", "tool"][..], "user_tool"), (&["user", "assistant", "tool"], "user_assistant_tool")]
    {
        let error = failure(MISTRAL, &request(roles));
        let said = probes[probe].as_str().unwrap().trim_start_matches("TemplateError: ");
        assert!(error.kind() == ErrorKind::Refused && error.message().ends_with(said), "{error}");
    }
    let twice = failure(MISTRAL, &request(&["user", "user"]));
    assert!(twice.message().ends_with(evidence["token2_error"].as_str().unwrap()), "{twice}");
}
