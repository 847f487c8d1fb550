//! Messages and answers, read for what they mean: formats say the same in several ways.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, BooleanArray};
use datafusion::arrow::datatypes::DataType;
use datafusion::logical_expr::ScalarUDF;
use serde_json::Value;

use super::super::row_function::RowFunction;
use super::{choices, text, texts};

/// A call of a tool.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ToolCall {
    pub(crate) id: Option<String>,
    pub(crate) name: String,
    /// Parsed where they are JSON, whether they were given as text or as a value.
    pub(crate) arguments: Value,
}

/// What an assistant said. A member that the record does not speak of is none.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Answer {
    pub(crate) content: Option<String>,
    pub(crate) reasoning: Option<String>,
    pub(crate) tool_calls: Option<Vec<ToolCall>>,
}

impl Answer {
    /// Reads a message or what a parser gave; none where the value is no object.
    pub(crate) fn of(value: &Value) -> Option<Self> {
        let members = value.as_object()?;
        let reasoning = ["reasoning_content", "reasoning", "thinking"].iter().find_map(|name| members.get(*name));
        Some(Self {
            content: members.get("content").and_then(content),
            reasoning: reasoning.and_then(content).filter(|text| !text.is_empty()),
            tool_calls: members.get("tool_calls").map(tool_calls),
        })
    }

    /// Whether a parser took anything out of the text.
    pub(crate) fn holds_parsed(&self) -> bool {
        self.reasoning.is_some() || self.tool_calls.as_ref().is_some_and(|calls| !calls.is_empty())
    }

    fn or(self, other: Self) -> Self {
        Self {
            content: self.content.or(other.content),
            reasoning: self.reasoning.or(other.reasoning),
            tool_calls: self.tool_calls.or(other.tool_calls),
        }
    }
}

/// The text of a content: itself, its text parts joined, nothing for null. None where it holds more than text.
pub(super) fn content(value: &Value) -> Option<String> {
    match value {
        Value::Null => Some(String::new()),
        Value::String(text) => Some(text.clone()),
        Value::Array(parts) => parts
            .iter()
            .map(|part| part.as_str().or_else(|| part.get("text").and_then(Value::as_str)))
            .collect::<Option<Vec<_>>>()
            .map(|texts| texts.concat()),
        _ => None,
    }
}

fn tool_calls(value: &Value) -> Vec<ToolCall> {
    value.as_array().into_iter().flatten().filter_map(tool_call).collect()
}

fn tool_call(call: &Value) -> Option<ToolCall> {
    let function = call.get("function").filter(|inner| inner.is_object()).unwrap_or(call);
    let arguments = ["arguments", "input", "args"].iter().find_map(|name| function.get(*name)).unwrap_or(&Value::Null);
    Some(ToolCall {
        id: call.get("id").and_then(Value::as_str).map(str::to_owned),
        name: function.get("name")?.as_str()?.to_owned(),
        arguments: match arguments {
            Value::String(text) => serde_json::from_str(text).unwrap_or_else(|_no_json| arguments.clone()),
            other => other.clone(),
        },
    })
}

/// The messages of a request, of a state that holds them, or a bare list of them.
pub(super) fn messages(json: &str) -> Option<Vec<Value>> {
    match serde_json::from_str(json).ok()? {
        Value::Array(messages) if messages.iter().all(|message| message["role"].is_string()) => Some(messages),
        Value::Object(mut members) => match members.remove("messages")? {
            Value::Array(messages) => Some(messages),
            _ => None,
        },
        _ => None,
    }
}

/// What a call answered: what the parsers gave, and what they leave out as the response has it.
pub(crate) fn answer_of(parsed: Option<&str>, response: Option<&str>, choice: i64) -> Option<Answer> {
    let read = |json: Option<&str>| serde_json::from_str::<Value>(json?).ok();
    let parsed = read(parsed).and_then(|value| Answer::of(&value));
    let response = read(response).and_then(|value| Answer::of(message_of(&value, choice)?));
    match (parsed, response) {
        (Some(parsed), Some(response)) => Some(parsed.or(response)),
        (parsed, response) => parsed.or(response),
    }
}

/// The message of a response: that of its choice, or the response itself where it has a content.
fn message_of(response: &Value, choice: i64) -> Option<&Value> {
    let Some(choices) = response.get("choices").and_then(Value::as_array) else {
        return response.get("message").or(Some(response)).filter(|message| message.get("content").is_some());
    };
    let one = choices.iter().find(|one| one["index"].as_i64() == Some(choice));
    one.or_else(|| choices.first().filter(|_| choices.len() == 1))?.get("message")
}

pub(super) fn holds_parsed() -> ScalarUDF {
    let arguments = vec![DataType::Utf8, DataType::Utf8, DataType::Int64];
    RowFunction::udf("holds_parsed", arguments, DataType::Boolean, |arrays, rows| {
        let (parsed, responses, choices) = (texts(arrays, 0)?, texts(arrays, 1)?, choices(arrays, 2)?);
        let found = (0..rows).map(|row| {
            let choice = choices.get(row).copied().unwrap_or_default();
            answer_of(text(&parsed, row), text(&responses, row), choice).map(|answer| answer.holds_parsed())
        });
        Ok(Arc::new(found.collect::<BooleanArray>()) as ArrayRef)
    })
}

pub(super) fn has_messages() -> ScalarUDF {
    RowFunction::udf("has_messages", vec![DataType::Utf8], DataType::Boolean, |arrays, rows| {
        let json = texts(arrays, 0)?;
        let found = (0..rows).map(|row| Some(text(&json, row).is_some_and(|json| messages(json).is_some())));
        Ok(Arc::new(found.collect::<BooleanArray>()) as ArrayRef)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_same_call_in_two_formats_is_one() {
        let openai = json!({"content": null, "tool_calls": [
            {"id": "t", "type": "function", "function": {"name": "f", "arguments": "{\"a\": 1}"}}]});
        let plain = json!({"content": "", "tool_calls": [{"id": "t", "name": "f", "arguments": {"a": 1}}]});
        assert_eq!(Answer::of(&openai), Answer::of(&plain));
        assert!(Answer::of(&plain).unwrap().holds_parsed());
    }

    #[test]
    fn what_the_parser_leaves_out_is_the_responses() {
        let response =
            json!({"choices": [{"index": 1, "message": {"content": "b"}}, {"index": 0, "message": {"content": "a"}}]});
        let parsed = r#"{"reasoning_content": "hm"}"#;
        let answer = answer_of(Some(parsed), Some(&response.to_string()), 0).unwrap();
        assert_eq!((answer.content.as_deref(), answer.reasoning.as_deref()), (Some("a"), Some("hm")));
        let bare = answer_of(None, Some(r#"{"content": "x"}"#), 0).unwrap();
        assert_eq!((bare.content.as_deref(), bare.holds_parsed()), (Some("x"), false));
        assert_eq!(answer_of(None, Some(r#"{"id": "x"}"#), 0), None);
        assert_eq!(answer_of(Some("no json"), None, 0), None);
    }
}
