//! Templates against what transformers renders (`tests/expected.json`, made by `tests/small.py`), and what they may not do.

use std::fs;
use std::path::PathBuf;

use serde_json::{Map, Value, json};

use super::*;
use crate::conversation::Form;
use crate::tokenizer::Tokenizer;

const EXPECTED: &str = include_str!("../../tests/expected.json");
const SMALL: &str = include_str!("../../tests/small/chat_template.jinja");
const SMALL_TOKENIZER: &[u8] = include_bytes!("../../tests/small/tokenizer.json");

fn expected() -> Value {
    serde_json::from_str(EXPECTED).unwrap()
}

fn special_tokens() -> Map<String, Value> {
    let tokens = json!({"bos_token": "<|endoftext|>", "eos_token": "<|im_end|>"});
    tokens.as_object().unwrap().clone()
}

fn rendered(template: &Template, request: &Value) -> Result<String> {
    let conversation = Conversation::from_request(&request.to_string(), &Map::new())?.in_form(Form::Transformers);
    template.render(&conversation, &special_tokens(), None)
}

/// Files that are not part of the repository.
pub(super) fn shared(path: &str) -> Option<PathBuf> {
    let beside = || PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared"));
    let root = std::env::var_os("ROLLBOOK_SHARED").map_or_else(beside, PathBuf::from);
    let path = root.join("data").join(path);
    if path.exists() {
        return Some(path);
    }
    println!("skipped: {} is not there; ROLLBOOK_SHARED names the folder", path.display());
    None
}

fn verify(template: &str, tokenizer: &[u8], cases: &Value) {
    let (template, tokenizer) = (Template::new(template).unwrap(), Tokenizer::from_bytes(tokenizer).unwrap());
    for case in cases.as_array().unwrap() {
        let found = rendered(&template, &case["request"]);
        let Some(text) = case["text"].as_str() else {
            // Python has an exception there: we may have another message, but no prompt.
            assert!(found.is_err(), "{} gave {found:?}", case["request"]);
            continue;
        };
        assert_eq!(found.unwrap(), text);
        assert_eq!(json!(tokenizer.encode(text).unwrap()), case["ids"], "{text}");
    }
}

#[test]
fn the_small_template_renders_and_encodes_as_in_python() {
    verify(SMALL, SMALL_TOKENIZER, &expected()["small"]);
}

#[test]
fn each_construct_renders_as_in_python() {
    for case in expected()["snippets"].as_array().unwrap() {
        let template = Template::new(case["template"].as_str().unwrap()).unwrap();
        let found = rendered(&template, &case["request"]).unwrap();
        assert_eq!(found, case["text"].as_str().unwrap(), "{}", case["template"]);
    }
}

#[test]
fn qwen3_and_smollm2_render_and_encode_as_in_python() {
    for (name, folder) in [("qwen3", "tokenizers/qwen3"), ("smollm2", "calculator-run")] {
        if let Some(folder) = shared(folder) {
            let template = fs::read_to_string(folder.join("chat_template.jinja")).unwrap();
            verify(&template, &fs::read(folder.join("tokenizer.json")).unwrap(), &expected()[name]);
        }
    }
}

pub(super) fn failure(template: &str, request: &Value) -> Error {
    match Template::new(template) {
        Ok(template) => rendered(&template, request).unwrap_err(),
        Err(error) => error,
    }
}

#[test]
fn what_goes_wrong_has_its_kind_and_its_line() {
    let request = json!({"messages": [{"role": "user", "content": "hi"}]});
    let unclosed = failure("a\nb\n{% if x %}", &request);
    assert_eq!((unclosed.kind(), unclosed.line()), (ErrorKind::Invalid, Some(3)));
    let refused = failure("\n{{ raise_exception('roles must alternate') }}", &request);
    assert_eq!((refused.kind(), refused.line()), (ErrorKind::Refused, Some(2)));
    assert!(refused.to_string().contains("roles must alternate"), "{refused}");
    let failed = failure("{{ messages[0].content + 1 }}", &request);
    assert_eq!(failed.kind(), ErrorKind::Failed);
}

#[test]
fn a_template_that_does_not_end_is_stopped() {
    let request = json!({"messages": []});
    let endless = "{% for a in range(99999) %}{% for b in range(99999) %}{% set x = a * b %}{% endfor %}{% endfor %}";
    assert_eq!(failure(endless, &request).kind(), ErrorKind::Exhausted);
    let huge = "{% for a in range(99999) %}{{ 'x' * 10000 }}{% endfor %}";
    assert_eq!(failure(huge, &request).kind(), ErrorKind::Exhausted);
}

#[test]
fn a_template_reads_nothing() {
    let request = json!({"messages": []});
    for template in [
        "{% include '/etc/hostname' %}",
        "{% import 'chat' as c %}{{ c }}",
        "{% extends '/etc/hostname' %}",
        "{{ open('/etc/hostname') }}",
        "{{ env }}{{ environ.PATH.x }}",
    ] {
        assert!(matches!(failure(template, &request).kind(), ErrorKind::Failed | ErrorKind::Invalid), "{template}");
    }
}

#[test]
fn the_time_is_the_records() {
    let template = Template::new("{{ strftime_now('%Y-%m-%d') }}").unwrap();
    let conversation = Conversation::from_request(r#"{"messages": []}"#, &Map::new()).unwrap();
    let at = |now| template.render(&conversation, &Map::new(), now);
    assert_eq!(at(Some(1_795_910_400_000_000)).unwrap(), "2026-11-29");
    assert_eq!(at(None).unwrap_err().kind(), ErrorKind::Failed);
}
