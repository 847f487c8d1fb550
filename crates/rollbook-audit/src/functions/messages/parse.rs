//! Whether what a parser gave stands in the text it was read from.

use serde_json::Value;

use super::answer::{Answer, ToolCall};
use super::{Fault, written};

/// The text of an output.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Text<'a> {
    pub(crate) text: &'a str,
    /// The same without special tokens, as a server shows it.
    pub(crate) shown: &'a str,
    /// Whether it is all that the model wrote, not what a parser left of it.
    pub(crate) is_whole: bool,
}

impl Text<'_> {
    fn holds(&self, piece: &str) -> bool {
        self.text.contains(piece) || self.shown.contains(piece)
    }
}

/// Compares an answer with the text. A text that may be only what is left judges no more than it shows.
pub(crate) fn fault(text: Text<'_>, answer: &Answer, has_parse_error: bool) -> Option<Fault> {
    if let Some(content) = answer.content.as_deref().map(str::trim).filter(|content| !content.is_empty())
        && !text.holds(content)
    {
        return Some(Fault::new("content", None, text.text, content));
    }
    if let Some(reasoning) = answer.reasoning.as_deref().map(str::trim)
        && text.is_whole
        && !text.holds(reasoning)
    {
        return Some(Fault::new("reasoning", None, text.text, reasoning));
    }
    let calls = answer.tool_calls.as_deref().unwrap_or_default();
    let is_silent = has_parse_error || (calls.is_empty() && !text.is_whole && answer.tool_calls.is_none());
    if !is_silent && let Some(fault) = miscounted(text.text, calls.len()) {
        return Some(fault);
    }
    if let Some(fault) = crossed(text.text, calls) {
        return Some(fault);
    }
    let values = json_values(text.text);
    for (index, call) in calls.iter().enumerate() {
        if !text.text.contains(&call.name) {
            if text.is_whole {
                return Some(Fault::new("name", Some(index), text.text, &call.name));
            }
            continue;
        }
        if !holds_arguments(text.text, &values, call) {
            return Some(Fault::new("arguments", Some(index), text.text, &call.arguments.to_string()));
        }
    }
    None
}

/// What is left of a text behind the model's thoughts: a call that is only thought of may be parsed or not.
fn spoken(text: &str) -> &str {
    text.rsplit_once("</think>").map_or(text, |(_, spoken)| spoken)
}

/// Whether as many calls were parsed as the text writes in known marks.
fn miscounted(text: &str, parsed: usize) -> Option<Fault> {
    let all = written::calls(text);
    if all.closed == 0 || (all.is_bare && parsed == 0) {
        return None;
    }
    let said = written::calls(spoken(text));
    let least = if said.is_bare == all.is_bare { said.closed } else { 0 };
    if (least..=all.opened).contains(&parsed) {
        return None;
    }
    let (expected, observed) = (format!("{} calls of tools in the text", all.closed), format!("{parsed} parsed"));
    Some(Fault::new("tool_calls", None, &expected, &observed))
}

/// A parsed call that is not the one written at its place, where as many are written as parsed.
fn crossed(text: &str, calls: &[ToolCall]) -> Option<Fault> {
    let written = [text, spoken(text)].map(|text| written::calls(text).read);
    let written = written.iter().find(|written| !written.is_empty() && written.len() == calls.len())?;
    written.iter().zip(calls).enumerate().find_map(|(index, (written, call))| {
        if !written.is_named(&call.name) {
            return Some(Fault::new("name", Some(index), &written.name, &call.name));
        }
        let is_same = written.has_arguments(call, leaves);
        (!is_same).then(|| Fault::new("arguments", Some(index), &written.shown(), &call.arguments.to_string()))
    })
}

/// Whether the text holds the arguments: as JSON, or, in formats that are none, each value of them.
fn holds_arguments(text: &str, values: &[Value], call: &ToolCall) -> bool {
    let is_empty = match &call.arguments {
        Value::Null => true,
        Value::Object(members) => members.is_empty(),
        Value::String(text) => text.is_empty(),
        _ => false,
    };
    if is_empty || values.iter().any(|value| holds(value, &call.arguments)) {
        return true;
    }
    // JSON with another value for one of the names contradicts; no JSON at all is another format.
    if call.arguments.is_object() && values.iter().any(|value| names(value, &call.name)) {
        return false;
    }
    leaves(&call.arguments).iter().all(|leaf| text.contains(leaf.as_str()))
}

/// Whether a value is, or holds somewhere, another; a text may hold it as JSON.
fn holds(value: &Value, wanted: &Value) -> bool {
    if value == wanted {
        return true;
    }
    match value {
        Value::Object(members) => members.values().any(|member| holds(member, wanted)),
        Value::Array(items) => items.iter().any(|item| holds(item, wanted)),
        Value::String(text) => {
            text.trim_start().starts_with(['{', '['])
                && serde_json::from_str::<Value>(text).is_ok_and(|inner| inner == *wanted)
        }
        _ => false,
    }
}

/// Whether a JSON value calls a tool by this name.
fn names(value: &Value, name: &str) -> bool {
    match value {
        Value::Object(members) => {
            members.get("name").and_then(Value::as_str) == Some(name)
                || members.values().any(|member| names(member, name))
        }
        Value::Array(items) => items.iter().any(|item| names(item, name)),
        _ => false,
    }
}

/// The texts and numbers within a value, as a text would write them.
fn leaves(value: &Value) -> Vec<String> {
    match value {
        Value::Object(members) => members.values().flat_map(leaves).collect(),
        Value::Array(items) => items.iter().flat_map(leaves).collect(),
        Value::String(text) => vec![text.trim().to_owned()],
        Value::Number(number) => vec![number.to_string()],
        // Formats write true and null in their own words.
        Value::Null | Value::Bool(_) => Vec::new(),
    }
}

/// Every JSON object and list that begins somewhere in a text and is in no other.
fn json_values(text: &str) -> Vec<Value> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(open) = text[at..].find(['{', '[']) {
        let start = at + open;
        let mut stream = serde_json::Deserializer::from_str(&text[start..]).into_iter::<Value>();
        match stream.next() {
            Some(Ok(value)) => {
                found.push(value);
                at = start + stream.byte_offset().max(1);
            }
            _ => at = start + 1,
        }
        if found.len() >= MOST_VALUES {
            break;
        }
    }
    found
}

/// JSON values of one text that are looked at.
const MOST_VALUES: usize = 1000;

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    const CALL: &str =
        "let me see <tool_call>\n{\"name\": \"get\", \"arguments\": {\"city\": \"Rome\", \"n\": 2}}\n</tool_call>";

    fn judged(text: &str, is_whole: bool, answer: &Value) -> Option<&'static str> {
        fault(Text { text, shown: text, is_whole }, &Answer::of(answer).unwrap(), false).map(|fault| fault.place)
    }

    #[rstest]
    #[case(json!({"content": "let me see", "tool_calls": [{"function": {"name": "get", "arguments": "{\"n\":2,\"city\":\"Rome\"}"}}]}), None)]
    #[case(json!({"content": "let me look", "tool_calls": []}), Some("content"))]
    #[case(json!({"content": "", "tool_calls": []}), Some("tool_calls"))]
    #[case(json!({"tool_calls": [{"name": "put", "arguments": {"city": "Rome", "n": 2}}]}), Some("name"))]
    #[case(json!({"tool_calls": [{"name": "get", "arguments": {"city": "Oslo", "n": 2}}]}), Some("arguments"))]
    #[case(json!({"tool_calls": [{"name": "get", "arguments": {"city": "Rome"}}]}), Some("arguments"))]
    fn what_is_parsed_must_stand_in_the_text(#[case] answer: Value, #[case] place: Option<&str>) {
        assert_eq!(judged(CALL, true, &answer), place);
    }

    #[test]
    fn a_parsed_call_is_the_one_written_at_its_place() {
        let text = "<tool_call>{\"name\": \"a\", \"arguments\": {\"x\": 1}}</tool_call>\
                    <tool_call>{\"name\": \"web_search\", \"arguments\": {\"y\": 2}}</tool_call>";
        let parsed = |one: &str, x: i32, other: &str, y: i32| json!({"tool_calls": [{"name": one, "arguments": {"x": x}}, {"name": other, "arguments": {"y": y}}]});
        for is_whole in [true, false] {
            assert_eq!(judged(text, is_whole, &parsed("a", 1, "web_search", 2)), None);
            assert_eq!(judged(text, is_whole, &parsed("a", 2, "web_search", 1)), Some("arguments"));
            assert_eq!(judged(text, is_whole, &parsed("a", 1, "search", 2)), Some("name"));
            assert_eq!(judged(text, is_whole, &parsed("delete_all", 1, "web_search", 2)), Some("name"));
        }
    }

    #[rstest]
    #[case("Get_Weather", "x", Some("name"))]
    #[case("get_weather", "y", Some("arguments"))]
    #[case("get_weather", "x", None)]
    fn a_call_without_marks_is_the_whole_text(#[case] name: &str, #[case] q: &str, #[case] place: Option<&str>) {
        let text = "{\"name\": \"get_weather\", \"parameters\": {\"q\": \"x\"}}";
        assert_eq!(judged(text, false, &json!({"tool_calls": [{"name": name, "arguments": {"q": q}}]})), place);
    }

    #[test]
    fn an_answer_in_json_need_not_be_a_call() {
        let text = "{\"name\": \"get_weather\", \"parameters\": {\"q\": \"x\"}}";
        assert_eq!(judged(text, true, &json!({"content": text, "tool_calls": []})), None);
    }

    #[test]
    fn a_call_that_is_only_thought_of_may_be_parsed_or_not() {
        let call = |x: i32| format!("<tool_call>{{\"name\": \"a\", \"arguments\": {{\"x\": {x}}}}}</tool_call>");
        let text = format!("<think>{}</think>{}", call(1), call(2));
        let parsed = |values: &[i32]| {
            let calls: Vec<Value> = values.iter().map(|x| json!({"name": "a", "arguments": {"x": x}})).collect();
            json!({"tool_calls": calls})
        };
        assert_eq!(judged(&text, true, &parsed(&[2])), None);
        assert_eq!(judged(&text, true, &parsed(&[1, 2])), None);
        assert_eq!(judged(&text, true, &parsed(&[1])), Some("arguments"));
        assert_eq!(judged(&text, true, &parsed(&[])), Some("tool_calls"));
    }

    #[test]
    fn a_call_that_was_cut_off_may_be_parsed_or_not() {
        let text = "<tool_call>{\"name\": \"a\", \"arguments\": {}}</tool_call><tool_call>{\"name\": \"b\", \"arguments\": {}}";
        for calls in [
            json!([{"name": "a", "arguments": {}}]),
            json!([{"name": "a", "arguments": {}}, {"name": "b", "arguments": {}}]),
        ] {
            assert_eq!(judged(text, true, &json!({"tool_calls": calls})), None);
        }
    }

    #[test]
    fn formats_that_are_no_json_hold_each_value() {
        let text = "<function=get>\n<parameter=city>\nRome\n</parameter>\n<parameter=n>\n2\n</parameter>\n</function>";
        let call =
            |city: &str| json!({"tool_calls": [{"name": "get", "arguments": {"city": city, "n": 2, "dry": true}}]});
        assert_eq!(judged(text, true, &call("Rome")), None);
        assert_eq!(judged(text, true, &call("Oslo")), Some("arguments"));
    }

    #[test]
    fn what_a_parser_left_judges_only_what_it_shows() {
        let answer =
            json!({"content": "hi", "reasoning_content": "hm", "tool_calls": [{"name": "get", "arguments": {}}]});
        assert_eq!(judged("hi", false, &answer), None);
        assert_eq!(judged("hi", true, &answer), Some("reasoning"));
        assert_eq!(judged("ho", false, &answer), Some("content"));
    }

    #[test]
    fn special_tokens_within_a_content_may_be_left_out() {
        let answer = Answer::of(&json!({"content": "ab"})).unwrap();
        assert!(fault(Text { text: "a<|s|>b", shown: "ab", is_whole: true }, &answer, false).is_none());
    }

    #[test]
    fn a_failure_that_is_recorded_is_none() {
        let answer = Answer::of(&json!({"content": "let me see", "tool_calls": []})).unwrap();
        assert!(fault(Text { text: CALL, shown: CALL, is_whole: true }, &answer, true).is_none());
    }
}
