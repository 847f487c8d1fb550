//! Taking the messages out of a request's text and putting them back, byte for byte.
//!
//! ```text
//! {"model":"m","messages":[{"role":"user"},{"role":"tool"}],"n":1}
//!             head        [ message       , message       ]  tail
//! stored: {"model":"m","messages":[],"n":1}  and the messages' own texts
//! ```
//!
//! Nothing is parsed and written again: numbers, escapes and the order of keys stay as they were.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserializer as _, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

/// A request's text cut around the messages.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Parts<'a> {
    /// All before the array.
    pub(super) head: &'a str,
    /// The text of each message.
    pub(super) messages: Vec<&'a str>,
    /// All after the array.
    pub(super) tail: &'a str,
}

/// Cuts `text`, or gives none where it is no object with one array `messages`, or would not come back as it was.
pub(super) fn split(text: &str) -> Option<Parts<'_>> {
    let (head, array, tail) = cut(text)?;
    let messages: Vec<&RawValue> = serde_json::from_str(array).ok()?;
    let messages: Vec<&str> = messages.into_iter().map(RawValue::get).collect();
    let parts = Parts { head, messages, tail };
    // The cut drops only brackets, commas and blanks; equal length means that no blank was among them.
    let inner = parts.messages.iter().map(|message| message.len() + 1).sum::<usize>().max(1) - 1;
    (inner + 2 == array.len()).then_some(parts)
}

/// Cuts a stored request around its empty array of messages.
pub(super) fn template(text: &str) -> Option<(&str, &str)> {
    let (head, array, tail) = cut(text)?;
    (array == "[]").then_some((head, tail))
}

/// Cuts `text` around the one top-level value `messages`, if that is an array.
fn cut(text: &str) -> Option<(&str, &str, &str)> {
    let mut parser = serde_json::Deserializer::from_str(text);
    let found = parser.deserialize_map(FindMessages).ok()??;
    parser.end().ok()?;
    let array = found.get();
    // The value borrows from the text, so its place is a difference of addresses.
    let start = (array.as_ptr() as usize).checked_sub(text.as_ptr() as usize)?;
    let end = start.checked_add(array.len())?;
    array.starts_with('[').then_some(())?;
    Some((text.get(..start)?, array, text.get(end..)?))
}

struct FindMessages;

impl<'de> Visitor<'de> for FindMessages {
    type Value = Option<&'de RawValue>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a request object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found = None;
        let mut times = 0;
        while let Some(key) = map.next_key::<Cow<'de, str>>()? {
            if key == "messages" {
                found = Some(map.next_value::<&'de RawValue>()?);
                times += 1;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(found.filter(|_| times == 1))
    }
}
