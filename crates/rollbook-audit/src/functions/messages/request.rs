//! Whether a request says what the harness meant to ask.

use std::io;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, BooleanArray};
use datafusion::arrow::datatypes::DataType;
use datafusion::logical_expr::ScalarUDF;
use rollbook_schema::digest::bytes_digest;
use serde::Serialize;
use serde_json::Value;
use serde_json::ser::Formatter;

use super::super::row_function::RowFunction;
use super::answer::{Answer, content, messages};
use super::{Fault, fault_type, faults, text, texts};

pub(super) fn request_fault() -> ScalarUDF {
    RowFunction::udf("request_fault", vec![DataType::Utf8, DataType::Utf8], fault_type(), |arrays, rows| {
        let (requests, states) = (texts(arrays, 0)?, texts(arrays, 1)?);
        let judge = |row| fault(&messages(text(&requests, row)?)?, &messages(text(&states, row)?)?);
        faults(&(0..rows).map(judge).collect::<Vec<_>>())
    })
}

/// The first message that the request and the harness's state have not in common.
fn fault(request: &[Value], state: &[Value]) -> Option<Fault> {
    let index = request.iter().zip(state).take_while(|(sent, meant)| same(sent, meant)).count();
    if index == request.len() && index == state.len() {
        return None;
    }
    let show = |message: Option<&Value>| message.map_or_else(|| "no message".to_owned(), ToString::to_string);
    Some(Fault::new("messages", Some(index), &show(state.get(index)), &show(request.get(index))))
}

/// Whether two messages say the same, whatever the format: role, text, reasoning, calls of tools and what is answered.
pub(super) fn same(left: &Value, right: &Value) -> bool {
    let equal = |name: &str| left[name] == right[name];
    let contents = match (content(&left["content"]), content(&right["content"])) {
        (Some(left), Some(right)) => left == right,
        // What is more than text must be equal as it is.
        _ => equal("content"),
    };
    let (Some(said), Some(meant)) = (Answer::of(left), Answer::of(right)) else {
        return left == right;
    };
    equal("role")
        && contents
        && equal("tool_call_id")
        && said.reasoning == meant.reasoning
        && said.tool_calls.unwrap_or_default() == meant.tool_calls.unwrap_or_default()
}

pub(super) fn digest_fits() -> ScalarUDF {
    RowFunction::udf("digest_fits", vec![DataType::Utf8, DataType::Utf8], DataType::Boolean, |arrays, rows| {
        let (json, digests) = (texts(arrays, 0)?, texts(arrays, 1)?);
        let judge = |row| Some(fits(text(&json, row)?, text(&digests, row)?));
        Ok(Arc::new((0..rows).map(judge).collect::<BooleanArray>()) as ArrayRef)
    })
}

/// Whether a digest is that of a JSON text: as it is stored, or with Python's spaces, in which many clients send it.
fn fits(json: &str, digest: &str) -> bool {
    let is = |text: &[u8]| bytes_digest(text).trim_start_matches("sha256:") == digest.trim_start_matches("sha256:");
    if is(json.as_bytes()) {
        return true;
    }
    let Ok(value) = serde_json::from_str::<Value>(json) else {
        return false;
    };
    let mut spaced = Vec::new();
    let mut serializer = serde_json::Serializer::with_formatter(&mut spaced, Spaced);
    value.serialize(&mut serializer).is_ok() && is(&spaced)
}

/// JSON as Python's `json.dumps` spaces it.
struct Spaced;

impl Formatter for Spaced {
    fn begin_array_value<W: io::Write + ?Sized>(&mut self, out: &mut W, is_first: bool) -> io::Result<()> {
        out.write_all(if is_first { b"" } else { b", " })
    }

    fn begin_object_key<W: io::Write + ?Sized>(&mut self, out: &mut W, is_first: bool) -> io::Result<()> {
        out.write_all(if is_first { b"" } else { b", " })
    }

    fn begin_object_value<W: io::Write + ?Sized>(&mut self, out: &mut W) -> io::Result<()> {
        out.write_all(b": ")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_changed_a_lost_and_an_added_message_are_found() {
        let state =
            [json!({"role": "user", "content": "a"}), json!({"role": "tool", "content": "b", "tool_call_id": "t"})];
        let sent =
            [json!({"role": "user", "content": [{"type": "text", "text": "a"}], "name": null}), state[1].clone()];
        assert_eq!(fault(&sent, &state), None);
        assert_eq!(fault(&sent[..1], &state).unwrap().index, Some(1));
        assert_eq!(fault(&state, &state[..1]).unwrap().index, Some(1));
        let edited = [json!({"role": "user", "content": "a "}), state[1].clone()];
        assert_eq!(fault(&edited, &state).unwrap().index, Some(0));
    }

    #[test]
    fn a_digest_is_of_the_text_in_either_spacing() {
        let json = r#"{"a":[1,2.50],"b":"é"}"#;
        assert!(fits(json, &bytes_digest(json.as_bytes())));
        assert!(fits(r#"{"a":[1,2],"b":"é"}"#, &bytes_digest(r#"{"a": [1, 2], "b": "é"}"#.as_bytes())));
        assert!(!fits(json, &bytes_digest(b"{}")));
        assert!(!fits("no json", "sha256:00"));
    }
}
