//! Whether the next request holds what the last one was answered, and what its tools gave.

use std::collections::BTreeSet;

use datafusion::arrow::array::{Array, ArrayRef};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::Result;
use datafusion::logical_expr::ScalarUDF;
use serde_json::Value;

use super::super::lists::{any_struct, item, list, lists, structs, text_field};
use super::super::row_function::RowFunction;
use super::answer::{Answer, answer_of, content, messages};
use super::request::same;
use super::{Fault, choices, fault_type, faults, text, texts};

/// A result of a tool: the call it answers, and what it gave.
#[derive(Debug, Clone, Default)]
struct Outcome {
    tool_call_id: Option<String>,
    content: Option<String>,
}

pub(super) fn update_fault() -> ScalarUDF {
    let arguments = vec![
        DataType::Utf8,
        DataType::Utf8,
        DataType::Utf8,
        DataType::Utf8,
        DataType::Int64,
        DataType::Utf8,
        list(any_struct()),
    ];
    RowFunction::udf("update_fault", arguments, fault_type(), |arrays, rows| {
        let (children, parents) = (texts(arrays, 0)?, texts(arrays, 1)?);
        let (parsed, responses, choices) = (texts(arrays, 2)?, texts(arrays, 3)?, choices(arrays, 4)?);
        let outputs = texts(arrays, 5)?;
        let results = lists(arrays, 6)?;
        let mut found = Vec::with_capacity(rows);
        for row in 0..rows {
            let results = item(results, row).map(|items| outcomes(&items)).transpose()?.unwrap_or_default();
            let pair = text(&children, row).and_then(messages).zip(text(&parents, row).and_then(messages));
            let choice = choices.get(row).copied().unwrap_or_default();
            let answer = answer_of(text(&parsed, row), text(&responses, row), choice);
            found.push(
                pair.and_then(|(child, parent)| fault(&child, &parent, answer.as_ref(), text(&outputs, row), &results)),
            );
        }
        faults(&found)
    })
}

fn outcomes(items: &ArrayRef) -> Result<Vec<Outcome>> {
    let items = structs(items)?;
    let (ids, contents) = (text_field(items, "tool_call_id")?, text_field(items, "content")?);
    let owned = |column, row| text(column, row).map(str::to_owned);
    Ok((0..items.len()).map(|row| Outcome { tool_call_id: owned(&ids, row), content: owned(&contents, row) }).collect())
}

fn fault(
    child: &[Value],
    parent: &[Value],
    answer: Option<&Answer>,
    output: Option<&str>,
    results: &[Outcome],
) -> Option<Fault> {
    let kept = child.iter().zip(parent).take_while(|(child, parent)| same(child, parent)).count();
    if let Some(lost) = parent.get(kept) {
        let observed = child.get(kept).map_or_else(|| "no message".to_owned(), ToString::to_string);
        return Some(Fault::new("history", Some(kept), &lost.to_string(), &observed));
    }
    let rest = &child[kept..];
    let Some(said) = rest.first().filter(|message| message["role"] == "assistant") else {
        let observed = rest.first().map_or_else(|| "no message".to_owned(), ToString::to_string);
        return Some(Fault::new("answer", Some(kept), "the answer of the call before", &observed));
    };
    answer_fault(said, answer, output, kept).or_else(|| results_fault(said, &rest[1..], results, kept + 1))
}

/// Compares the message that passes an answer on with the answer, in what the record of it speaks of.
fn answer_fault(said: &Value, answer: Option<&Answer>, output: Option<&str>, index: usize) -> Option<Fault> {
    let passed = Answer::of(said)?;
    let told = |place, expected: &str, observed: &str| Some(Fault::new(place, Some(index), expected, observed));
    let written = passed.content.clone().unwrap_or_default();
    let answer = answer?;
    if let Some(content) = &answer.content
        // A harness that read the text itself may pass it on whole.
        && *content != written
        && output.is_none_or(|output| output != written)
    {
        return told("answer", content, &written);
    }
    if let Some(reasoning) = &answer.reasoning
        && passed.reasoning.as_ref() != Some(reasoning)
        && !written.contains(reasoning.as_str())
    {
        return told("reasoning", reasoning, passed.reasoning.as_deref().unwrap_or("no reasoning"));
    }
    let calls = answer.tool_calls.as_ref()?;
    let passed = passed.tool_calls.unwrap_or_default();
    let is_same = calls.len() == passed.len()
        && calls.iter().zip(&passed).all(|(call, passed)| {
            let ids = call.id.as_ref().zip(passed.id.as_ref());
            call.name == passed.name
                && call.arguments == passed.arguments
                && ids.is_none_or(|(one, other)| one == other)
        });
    if is_same { None } else { told("tool_calls", &format!("{calls:?}"), &format!("{passed:?}")) }
}

/// Looks for each result among the messages behind the answer. Of several attempts at one call one must be there, and results that
/// name their calls stand in the order of these.
fn results_fault(said: &Value, rest: &[Value], results: &[Outcome], first: usize) -> Option<Fault> {
    let calls = Answer::of(said).and_then(|answer| answer.tool_calls).unwrap_or_default();
    let ids: Vec<Option<&str>> = calls.iter().map(|call| call.id.as_deref()).collect();
    let mut by_call: Vec<(Option<usize>, Vec<&Outcome>)> = Vec::new();
    let mut nameless = Vec::new();
    for result in results {
        let Some(id) = result.tool_call_id.as_deref() else {
            nameless.push(result);
            continue;
        };
        match by_call.iter_mut().find(|(_, attempts)| attempts[0].tool_call_id.as_deref() == Some(id)) {
            Some((_, attempts)) => attempts.push(result),
            None => by_call.push((ids.iter().position(|known| *known == Some(id)), vec![result])),
        }
    }
    by_call.sort_by_key(|(place, _)| place.unwrap_or(usize::MAX));
    let mut taken = BTreeSet::new();
    let mut last = 0;
    for (place, attempts) in by_call {
        let id = attempts[0].tool_call_id.as_deref();
        let named = rest
            .iter()
            .position(|message| message["tool_call_id"].is_string() && message["tool_call_id"].as_str() == id);
        let holding = || (0..rest.len()).find(|at| !taken.contains(at) && is_held(&rest[*at], &attempts));
        let wanted = attempts.iter().rev().find_map(|attempt| attempt.content.as_deref()).unwrap_or("a result");
        // Messages that name no call may still hold the result.
        let Some(found) = named.or_else(holding) else {
            return Some(Fault::new("tool_result", Some(first + taken.len()), wanted, "no message"));
        };
        if !is_held(&rest[found], &attempts) {
            let text = content(&rest[found]["content"]).unwrap_or_default();
            return Some(Fault::new("tool_result", Some(first + found), wanted, &text));
        }
        if named.is_some() && place.is_some() {
            if found < last {
                return Some(Fault::new("order", Some(first + found), wanted, &rest[found].to_string()));
            }
            last = found;
        }
        taken.insert(found);
    }
    for result in nameless {
        let Some(found) = (0..rest.len()).find(|at| !taken.contains(at) && is_held(&rest[*at], &[result])) else {
            let observed = rest.get(taken.len()).map_or_else(|| "no message".to_owned(), ToString::to_string);
            let wanted = result.content.as_deref().unwrap_or("a result");
            return Some(Fault::new("tool_result", Some(first + taken.len()), wanted, &observed));
        };
        taken.insert(found);
    }
    None
}

/// Whether a message holds one of the attempts' results; one whose content is not known may be any.
fn is_held(message: &Value, attempts: &[&Outcome]) -> bool {
    let text = content(&message["content"]).unwrap_or_default();
    is_result(message) && attempts.iter().any(|one| one.content.as_deref().is_none_or(|content| holds(&text, content)))
}

fn is_result(message: &Value) -> bool {
    matches!(message["role"].as_str(), Some("tool" | "function" | "user"))
}

/// Bytes that a harness may put in the place of what it cuts.
const CUT_NOTE: usize = 200;

/// Whether a message holds a result: whole, or cut with a note in the place of what is missing.
fn holds(message: &str, result: &str) -> bool {
    let (message, result) = (message.trim(), result.trim());
    if message.contains(result) {
        return true;
    }
    let start = message.bytes().zip(result.bytes()).take_while(|(one, other)| one == other).count();
    let end = message.bytes().rev().zip(result.bytes().rev()).take_while(|(one, other)| one == other).count();
    let shared = start + end;
    result.len() > message.len() && shared > CUT_NOTE && message.len().saturating_sub(shared) <= CUT_NOTE
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    fn result(id: &str, content: &str) -> Outcome {
        Outcome { tool_call_id: Some(id.to_owned()), content: Some(content.to_owned()) }
    }

    fn judged(child: &Value, results: &[Outcome]) -> Option<(&'static str, Option<usize>)> {
        let parent = [json!({"role": "user", "content": "q"})];
        let answer = json!({"content": "look", "reasoning_content": "hm", "tool_calls": [{"id": "t", "function": {"name": "f", "arguments": "{\"a\":1}"}}]});
        let answer = Answer::of(&answer).unwrap();
        fault(child.as_array().unwrap(), &parent, Some(&answer), None, results).map(|fault| (fault.place, fault.index))
    }

    fn said(content: &str, arguments: &Value) -> Value {
        json!({"role": "assistant", "content": content, "reasoning_content": "hm",
            "tool_calls": [{"id": "t", "type": "function", "function": {"name": "f", "arguments": arguments}}]})
    }

    #[rstest]
    #[case::whole(json!([{"role": "user", "content": "q"}, said("look", &json!({"a": 1})), {"role": "tool", "tool_call_id": "t", "content": "r"}]), None)]
    #[case::history(json!([{"role": "user", "content": "Q"}, said("look", &json!({"a": 1}))]), Some(("history", Some(0))))]
    #[case::no_answer(json!([{"role": "user", "content": "q"}, {"role": "user", "content": "r"}]), Some(("answer", Some(1))))]
    #[case::content(json!([{"role": "user", "content": "q"}, said("looks", &json!({"a": 1}))]), Some(("answer", Some(1))))]
    #[case::arguments(json!([{"role": "user", "content": "q"}, said("look", &json!({"a": 2}))]), Some(("tool_calls", Some(1))))]
    #[case::result(json!([{"role": "user", "content": "q"}, said("look", &json!({"a": 1})), {"role": "tool", "tool_call_id": "t", "content": "s"}]), Some(("tool_result", Some(2))))]
    #[case::no_result(json!([{"role": "user", "content": "q"}, said("look", &json!({"a": 1}))]), Some(("tool_result", Some(2))))]
    fn what_is_not_passed_on_is_found(#[case] child: Value, #[case] wanted: Option<(&str, Option<usize>)>) {
        assert_eq!(judged(&child, &[result("t", "r")]), wanted);
    }

    #[test]
    fn reasoning_that_is_dropped_is_found() {
        let mut dropped = said("look", &json!({"a": 1}));
        dropped.as_object_mut().unwrap().remove("reasoning_content");
        assert_eq!(judged(&json!([{"role": "user", "content": "q"}, dropped]), &[]), Some(("reasoning", Some(1))));
    }

    #[test]
    fn of_several_attempts_one_counts_and_results_keep_the_order_of_their_calls() {
        let said = json!({"role": "assistant", "tool_calls": [{"id": "b", "name": "f"}, {"id": "a", "name": "f"}]});
        let tools = |ids: [&str; 2]| json!([{"role": "tool", "tool_call_id": ids[0], "content": "x"}, {"role": "tool", "tool_call_id": ids[1], "content": "x"}]);
        let given = [result("a", "late"), result("a", "x"), result("b", "x")];
        let judge =
            |messages: Value| results_fault(&said, messages.as_array().unwrap(), &given, 0).map(|fault| fault.place);
        assert_eq!(judge(tools(["b", "a"])), None);
        assert_eq!(judge(tools(["a", "b"])), Some("order"));
    }

    #[test]
    fn results_without_names_are_found_by_what_they_say() {
        let said = json!({"role": "assistant"});
        let nameless = |content: &str| Outcome { tool_call_id: None, content: Some(content.to_owned()) };
        let rest = [json!({"role": "user", "content": "Observation: 2"}), json!({"role": "user", "content": "1"})];
        assert!(results_fault(&said, &rest, &[nameless("1"), nameless("2")], 0).is_none());
        assert_eq!(results_fault(&said, &rest, &[nameless("1"), nameless("1")], 0).unwrap().place, "tool_result");
    }

    #[test]
    fn a_cut_result_is_held_and_another_is_not() {
        let long = "0123456789".repeat(100);
        assert!(holds(&format!("{} … cut …", &long[..600]), &long));
        assert!(holds(&format!("Result:\n{long}\n"), &long));
        assert!(!holds("something else", &long));
        assert!(!holds("4", "5"));
    }
}
