//! Calls of tools as model families write them in a text.
//!
//! | family            | a call                                                                            |
//! |-------------------|-----------------------------------------------------------------------------------|
//! | Hermes, Qwen      | `<tool_call>{"name": …, "arguments": …}</tool_call>`                              |
//! | Qwen coder        | `<function=NAME><parameter=KEY>value</parameter></function>`                      |
//! | Mistral           | `[TOOL_CALLS][{"name": …, "arguments": …}]`, `[TOOL_CALLS]NAME[ARGS]{…}`          |
//! | Kimi              | `<\|tool_call_begin\|>functions.NAME:0<\|tool_call_argument_begin\|>{…}<\|tool_call_end\|>` |
//! | `DeepSeek`        | `<｜tool▁call▁begin｜>NAME<｜tool▁sep｜>{…}<｜tool▁call▁end｜>`                     |
//! | gpt-oss           | `… to=functions.NAME … <\|message\|>{…}<\|call\|>`                                |
//! | Llama             | `{"name": …, "parameters": …}` and nothing else                                   |

use serde_json::Value;

use super::answer::ToolCall;

/// A call of a tool as a text writes it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Written {
    pub(super) name: String,
    /// The arguments where the format writes them as JSON.
    pub(super) arguments: Option<Value>,
    /// All that stands between the marks.
    inner: String,
}

/// The calls of a text, as far as its format is known.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Calls {
    /// How many end as they should.
    pub(super) closed: usize,
    /// How many begin: the last one may have been cut off, and some parsers take it.
    pub(super) opened: usize,
    /// Those of which name and place are known; empty where one of them is not understood.
    pub(super) read: Vec<Written>,
    /// Whether the format has no marks, so that a text of this shape need not be a call.
    pub(super) is_bare: bool,
}

/// Reads the calls that a text writes.
pub(super) fn calls(text: &str) -> Calls {
    let marked = [
        ("<tool_call>", "</tool_call>", in_tool_call as fn(&str) -> Option<Vec<Written>>),
        ("<function=", "</function>", function),
        ("<|tool_call_begin|>", "<|tool_call_end|>", kimi),
        ("<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>", deepseek),
        (" to=functions.", "<|call|>", harmony),
    ];
    for (open, close, read) in marked {
        let opened = text.matches(open).count();
        let parts: Vec<&str> =
            text.split(open).skip(1).filter_map(|part| part.split_once(close)).map(|(inner, _)| inner).collect();
        if !parts.is_empty() {
            let read = parts.iter().map(|inner| read(inner)).collect::<Option<Vec<_>>>().unwrap_or_default().concat();
            return Calls { closed: parts.len(), opened, read, is_bare: false };
        }
    }
    if let Some((_, rest)) = text.split_once("[TOOL_CALLS]") {
        let read = mistral(rest).unwrap_or_default();
        return Calls { closed: read.len(), opened: read.len(), read, is_bare: false };
    }
    let read = bare(text).unwrap_or_default();
    Calls { closed: read.len(), opened: read.len(), read, is_bare: true }
}

impl Written {
    fn of(name: &str, arguments: Option<Value>, inner: &str) -> Option<Self> {
        let name = name.trim();
        (!name.is_empty()).then(|| Self { name: name.to_owned(), arguments, inner: inner.to_owned() })
    }

    /// A call that is a JSON object with its name.
    fn of_json(value: &Value) -> Option<Self> {
        let arguments = ["arguments", "parameters", "input"].iter().find_map(|key| value.get(key));
        let arguments = arguments.map(|given| match given {
            Value::String(text) => serde_json::from_str(text).unwrap_or_else(|_no_json| given.clone()),
            other => other.clone(),
        });
        Self::of(value.get("name")?.as_str()?, arguments, &value.to_string())
    }

    /// Whether a parsed call has this one's name; parsers may leave out the namespace.
    pub(super) fn is_named(&self, name: &str) -> bool {
        self.name == name || self.name.rsplit(['.', ':', '/']).next() == Some(name)
    }

    /// Whether a parsed call has this one's arguments.
    pub(super) fn has_arguments(&self, call: &ToolCall, leaves: fn(&Value) -> Vec<String>) -> bool {
        match &self.arguments {
            Some(given) => *given == call.arguments || leaves(given) == leaves(&call.arguments),
            None => leaves(&call.arguments).iter().all(|leaf| self.inner.contains(leaf.as_str())),
        }
    }

    /// What a finding shows of the arguments.
    pub(super) fn shown(&self) -> String {
        self.arguments.as_ref().map_or_else(|| self.inner.clone(), ToString::to_string)
    }
}

fn in_tool_call(inner: &str) -> Option<Vec<Written>> {
    if let Ok(value) = serde_json::from_str::<Value>(inner.trim()) {
        return Some(vec![Written::of_json(&value)?]);
    }
    let function_in = inner.split_once("<function=").and_then(|(_, rest)| rest.split_once("</function>"));
    function(function_in?.0)
}

fn function(inner: &str) -> Option<Vec<Written>> {
    let (name, rest) = inner.split_once('>')?;
    Some(vec![Written::of(name.trim_matches(['"', ' ']), None, rest)?])
}

fn with_json(name: &str, arguments: &str) -> Option<Vec<Written>> {
    let value = serde_json::from_str(arguments.trim()).ok();
    Some(vec![Written::of(name, value, arguments)?])
}

fn kimi(inner: &str) -> Option<Vec<Written>> {
    let (id, arguments) = inner.split_once("<|tool_call_argument_begin|>")?;
    let id = id.trim();
    let is_numbered = |name: &(&str, &str)| name.1.chars().all(|digit| digit.is_ascii_digit());
    with_json(id.rsplit_once(':').filter(is_numbered).map_or(id, |(name, _)| name), arguments)
}

fn deepseek(inner: &str) -> Option<Vec<Written>> {
    let (kind, rest) = inner.split_once("<｜tool▁sep｜>")?;
    match rest.split_once("```json") {
        // The older form says first what kind of tool it is.
        Some((name, arguments)) if kind.trim() == "function" => {
            with_json(name, arguments.trim_end().trim_end_matches("```"))
        }
        _ => with_json(kind, rest),
    }
}

fn harmony(inner: &str) -> Option<Vec<Written>> {
    let (head, arguments) = inner.split_once("<|message|>")?;
    with_json(head.split(|end: char| end.is_whitespace() || end == '<').next()?, arguments)
}

fn mistral(rest: &str) -> Option<Vec<Written>> {
    if rest.trim_start().starts_with('[') {
        let mut stream = serde_json::Deserializer::from_str(rest).into_iter::<Vec<Value>>();
        return stream.next()?.ok()?.iter().map(Written::of_json).collect();
    }
    let calls = rest.split("[TOOL_CALLS]").map(|call| {
        let (name, arguments) = call.split_once("[ARGS]")?;
        let name = name.split("[CALL_ID]").next()?;
        let mut stream = serde_json::Deserializer::from_str(arguments).into_iter::<Value>();
        Written::of(name, Some(stream.next()?.ok()?), arguments)
    });
    calls.collect()
}

/// A text that is nothing but calls as JSON.
fn bare(text: &str) -> Option<Vec<Written>> {
    let mut rest = text.trim().trim_start_matches("<|python_tag|>");
    for end in ["<|eom_id|>", "<|eot_id|>", "<|end_of_text|>"] {
        rest = rest.trim_end_matches(end).trim_end();
    }
    if !rest.starts_with(['{', '[']) {
        return None;
    }
    let mut calls = Vec::new();
    while !rest.is_empty() {
        let mut stream = serde_json::Deserializer::from_str(rest).into_iter::<Value>();
        let value = stream.next()?.ok()?;
        let values = if let Value::Array(items) = value { items } else { vec![value] };
        for value in &values {
            calls.push(Written::of_json(value).filter(|call| call.arguments.as_ref().is_some_and(Value::is_object))?);
        }
        rest = rest
            .get(stream.byte_offset()..)?
            .trim_start_matches(|between: char| between == ';' || between.is_whitespace());
    }
    Some(calls)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case::hermes("a <tool_call>\n{\"name\": \"get\", \"arguments\": {\"q\": \"x\"}}\n</tool_call>")]
    #[case::mistral("[TOOL_CALLS][{\"name\": \"get\", \"arguments\": {\"q\": \"x\"}}]</s>")]
    #[case::mistral_by_name("[TOOL_CALLS]get[CALL_ID]abc[ARGS]{\"q\": \"x\"}</s>")]
    #[case::kimi(
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.get:0<|tool_call_argument_begin|>{\"q\": \"x\"}<|tool_call_end|>"
    )]
    #[case::deepseek("<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get<｜tool▁sep｜>{\"q\": \"x\"}<｜tool▁call▁end｜>")]
    #[case::deepseek_older(
        "<｜tool▁call▁begin｜>function<｜tool▁sep｜>get\n```json\n{\"q\": \"x\"}\n```<｜tool▁call▁end｜>"
    )]
    #[case::gpt_oss("<|channel|>commentary to=functions.get <|constrain|>json<|message|>{\"q\": \"x\"}<|call|>")]
    #[case::llama("<|python_tag|>{\"name\": \"get\", \"parameters\": {\"q\": \"x\"}}<|eom_id|>")]
    fn each_family_writes_the_same_call(#[case] text: &str) {
        let found = calls(text);
        assert_eq!(found.closed, 1);
        let [call] = found.read.as_slice() else { panic!("{found:?}") };
        assert!(call.is_named("get"), "{call:?}");
        assert_eq!(call.arguments, Some(json!({"q": "x"})));
    }

    #[test]
    fn what_is_no_call_is_none() {
        for text in [
            "{\"answer\": 4}",
            "[1, 2]",
            "{\"name\": \"Ann\", \"age\": 3}",
            "so: {\"name\": \"a\", \"parameters\": {}}",
            "",
        ] {
            assert_eq!(calls(text).read, [], "{text}");
        }
    }

    #[test]
    fn a_call_that_is_cut_off_begins_and_does_not_end() {
        let found = calls("<tool_call>{\"name\": \"a\", \"arguments\": {}}</tool_call><tool_call>{\"name\": \"b\"");
        assert_eq!((found.closed, found.opened, found.read.len()), (1, 2, 1));
    }
}
