//! How a call's request continues its parent's, as two functions that the view `transitions` uses.
//!
//! ```text
//! parent   [m0, m1] answered by a      child   [m0, m1, a, m3]     extends
//!                                              [m0, m2]            rewrites
//! ```

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, StringArray, StringBuilder};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Int64Type};
use datafusion::common::Result;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};
use serde_json::Value;

const EXTENDS: &str = "extends";
const REWRITES: &str = "rewrites";

/// `message_relation(request, parent_request, parent_response, parent_choice)`.
pub(super) fn message_relation() -> ScalarUDF {
    ScalarUDF::from(Relation::new("message_relation", messages))
}

/// `text_relation(request, parent_request, parent_output_text, parent_choice)`, for requests that carry the prompt as text.
pub(super) fn text_relation() -> ScalarUDF {
    ScalarUDF::from(Relation::new("text_relation", texts))
}

/// Compares one call with its parent.
type Compare = fn(&str, &str, Option<&str>, i64) -> Option<&'static str>;

#[derive(Debug)]
struct Relation {
    name: &'static str,
    signature: Signature,
    compare: Compare,
}

impl Relation {
    fn new(name: &'static str, compare: Compare) -> Self {
        let types = vec![DataType::Utf8, DataType::Utf8, DataType::Utf8, DataType::Int64];
        Self { name, signature: Signature::exact(types, Volatility::Immutable), compare }
    }
}

impl PartialEq for Relation {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Relation {}

impl std::hash::Hash for Relation {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl ScalarUDFImpl for Relation {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arg_types: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let arrays = ColumnarValue::values_to_arrays(&args.args)?;
        let text = |index: usize| -> Result<StringArray> {
            Ok(cast(&arrays[index], &DataType::Utf8)?.as_string::<i32>().clone())
        };
        let (child, parent, answer) = (text(0)?, text(1)?, text(2)?);
        let choices = cast(&arrays[3], &DataType::Int64)?;
        let choices = choices.as_primitive::<Int64Type>();
        let mut out = StringBuilder::new();
        for row in 0..child.len() {
            let relation = if child.is_null(row) || parent.is_null(row) {
                None
            } else {
                let answer = answer.is_valid(row).then(|| answer.value(row));
                let choice = if choices.is_valid(row) { choices.value(row) } else { 0 };
                (self.compare)(child.value(row), parent.value(row), answer, choice)
            };
            out.append_option(relation);
        }
        Ok(ColumnarValue::Array(Arc::new(out.finish()) as ArrayRef))
    }
}

/// Messages extend when the parent's come first, unchanged, and its answer follows them if anything does.
fn messages(child: &str, parent: &str, response: Option<&str>, choice: i64) -> Option<&'static str> {
    let (child, parent) = (messages_of(child)?, messages_of(parent)?);
    let Some(rest) = child.strip_prefix(parent.as_slice()) else {
        return Some(REWRITES);
    };
    let answer = response.and_then(|response| answer_of(response, choice));
    Some(match (rest.first(), answer) {
        (Some(next), Some(answer)) if next["role"] == "assistant" && !same_answer(next, &answer) => REWRITES,
        _ => EXTENDS,
    })
}

fn messages_of(request: &str) -> Option<Vec<Value>> {
    match serde_json::from_str::<Value>(request).ok()?.get_mut("messages")?.take() {
        Value::Array(messages) => Some(messages),
        _ => None,
    }
}

fn answer_of(response: &str, choice: i64) -> Option<Value> {
    let mut response: Value = serde_json::from_str(response).ok()?;
    let choices = response.get_mut("choices")?.as_array_mut()?;
    let place = choices
        .iter()
        .position(|one| one["index"].as_i64() == Some(choice))
        .or_else(|| (choices.len() == 1).then_some(0))?;
    Some(choices.get_mut(place)?.get_mut("message")?.take())
}

/// A client may drop empty fields of an answer; what is said and called must be the same.
fn same_answer(next: &Value, answer: &Value) -> bool {
    ["content", "tool_calls", "reasoning_content"].iter().all(|key| {
        let empty = |value: &Value| match value {
            Value::Null => true,
            Value::String(text) => text.is_empty(),
            Value::Array(items) => items.is_empty(),
            _ => false,
        };
        let (next, answer) = (&next[*key], &answer[*key]);
        next == answer || (empty(next) && empty(answer))
    })
}

/// Text extends when the child's prompt starts with the parent's prompt and what was answered.
fn texts(child: &str, parent: &str, answer: Option<&str>, _choice: i64) -> Option<&'static str> {
    let child: Value = serde_json::from_str(child).ok()?;
    let parent: Value = serde_json::from_str(parent).ok()?;
    let rest = child["prompt"].as_str()?.strip_prefix(parent["prompt"].as_str()?);
    Some(match (rest, answer?) {
        (Some(rest), answer) if rest.starts_with(answer) => EXTENDS,
        _ => REWRITES,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARENT: &str = r#"{"messages":[{"role":"user","content":"hi"}]}"#;
    const ANSWER: &str = r#"{"choices":[{"index":0,"message":{"role":"assistant","content":"yo"}}]}"#;

    #[test]
    fn history_with_the_answer_extends() {
        let child = r#"{"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":"yo"},{"role":"user","content":"more"}]}"#;
        assert_eq!(messages(child, PARENT, Some(ANSWER), 0), Some(EXTENDS));
    }

    #[test]
    fn another_answer_or_history_rewrites() {
        let other = r#"{"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":"no"}]}"#;
        assert_eq!(messages(other, PARENT, Some(ANSWER), 0), Some(REWRITES));
        let summary = r#"{"messages":[{"role":"user","content":"summary"}]}"#;
        assert_eq!(messages(summary, PARENT, Some(ANSWER), 0), Some(REWRITES));
    }

    #[test]
    fn requests_without_messages_are_not_judged() {
        assert_eq!(messages(r#"{"prompt":"x"}"#, PARENT, Some(ANSWER), 0), None);
        assert_eq!(messages("not json", PARENT, None, 0), None);
    }

    #[test]
    fn text_prompts_are_compared_as_text() {
        let (parent, child) = (r#"{"prompt":"a"}"#, r#"{"prompt":"abc"}"#);
        assert_eq!(texts(child, parent, Some("b"), 0), Some(EXTENDS));
        assert_eq!(texts(child, parent, Some("c"), 0), Some(REWRITES));
        assert_eq!(texts(child, parent, None, 0), None);
    }
}
