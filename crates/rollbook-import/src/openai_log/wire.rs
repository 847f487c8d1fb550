//! The shapes of a log line, read without a tree. Fields that no importer rule names are passed over.

use std::borrow::Cow;

use crate::json::{Cursor, Fault, Parse, is_json, members};
use crate::row::{double, id, int, long, text};

/// A member of an object: its key and the text of its value.
pub(super) type Member<'a> = (Cow<'a, str>, &'a str);

/// One line.
#[derive(Debug, Default)]
pub(super) struct Exchange<'a> {
    pub(super) metadata: Vec<Member<'a>>,
    pub(super) request: Option<Cow<'a, str>>,
    pub(super) response: Option<Cow<'a, str>>,
    pub(super) started_at: Option<&'a str>,
    pub(super) finished_at: Option<&'a str>,
    /// Members that this format does not name.
    pub(super) other: Vec<Member<'a>>,
}

/// What a response says, whatever server gave it.
#[derive(Debug, Default)]
pub(super) struct Response {
    pub(super) protocol: Option<&'static str>,
    pub(super) engine: Option<&'static str>,
    pub(super) id: Option<String>,
    pub(super) model: Option<String>,
    pub(super) prompt_ids: Option<Vec<i32>>,
    pub(super) usage: Usage,
    pub(super) versions: Versions,
    pub(super) choices: Vec<Choice>,
    /// The response is a list with one response a choice.
    pub(super) is_list: bool,
}

/// Token counts as the server billed them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Usage {
    pub(super) prompt: Option<i64>,
    pub(super) cached: Option<i64>,
    pub(super) output: Option<i64>,
}

/// Weight versions over output offsets, as (start, version).
#[derive(Clone, Debug, Default)]
pub(super) struct Versions {
    pub(super) spans: Vec<(i64, i64)>,
    /// A label stands there that is no integer.
    pub(super) has_label: bool,
}

/// One sampled answer.
#[derive(Debug, Default)]
pub(super) struct Choice {
    pub(super) index: Option<i64>,
    pub(super) prompt_ids: Option<Vec<i32>>,
    pub(super) ids: Option<Vec<i32>>,
    pub(super) logprobs: Option<Vec<Option<f64>>>,
    /// The ids that stand beside the logprobs, where all do.
    pub(super) logprob_ids: Option<Vec<i32>>,
    /// The logprobs hold nothing but ids and logprobs.
    pub(super) is_plain: bool,
    pub(super) text: Option<String>,
    /// The message without its role, as JSON, where it is more than its content.
    pub(super) parsed: Option<String>,
    pub(super) finish_reason: Option<String>,
    pub(super) stop_token: Option<i64>,
    pub(super) stop_string: Option<String>,
    pub(super) is_selected: Option<bool>,
    pub(super) versions: Versions,
    pub(super) usage: Option<Usage>,
    pub(super) id: Option<String>,
}

/// Reads the outer shape of a line.
pub(super) fn exchange(text: &str) -> Parse<Exchange<'_>> {
    let mut exchange = Exchange::default();
    let mut seen: Vec<Cow<'_, str>> = Vec::new();
    let mut cursor = Cursor::new(text);
    if cursor.peek() != Some(b'{') {
        return Err(Fault::new("a line that is no JSON object"));
    }
    cursor.object(|cursor, key| {
        if seen.contains(&key) {
            return Err(Fault::new("the key stands twice").at_key(&key));
        }
        seen.push(key.clone());
        let name = key.clone();
        member(&mut exchange, cursor, key).map_err(|fault| fault.at_key(&name))?;
        Ok(())
    })?;
    cursor.end()?;
    if exchange.request.is_none() && exchange.response.is_none() {
        return Err(Fault::new("neither a request nor a response"));
    }
    Ok(exchange)
}

fn member<'a>(exchange: &mut Exchange<'a>, cursor: &mut Cursor<'a>, key: Cow<'a, str>) -> Parse<()> {
    match key.as_ref() {
        "metadata" => {
            if let Some(text) = value(cursor)? {
                exchange.metadata = members(text)?;
            }
        }
        "request" => exchange.request = document(cursor)?,
        "response" => exchange.response = document(cursor)?,
        "started_at" => exchange.started_at = value(cursor)?,
        "finished_at" => exchange.finished_at = value(cursor)?,
        _ => exchange.other.push((key, cursor.skip()?)),
    }
    Ok(())
}

/// Reads any value, null as none.
pub(super) fn value<'a>(cursor: &mut Cursor<'a>) -> Parse<Option<&'a str>> {
    if cursor.null()? { Ok(None) } else { cursor.skip().map(Some) }
}

/// Reads a JSON document, given as such or as a string that holds one.
fn document<'a>(cursor: &mut Cursor<'a>) -> Parse<Option<Cow<'a, str>>> {
    if cursor.null()? {
        return Ok(None);
    }
    if cursor.peek() != Some(b'"') {
        return cursor.skip().map(|text| Some(Cow::Borrowed(text)));
    }
    let text = cursor.string()?;
    if is_json(&text) { Ok(Some(text)) } else { Err(Fault::new("a string that holds no JSON")) }
}

/// Reads an integer, null as none.
pub(super) fn long_or_null(cursor: &mut Cursor<'_>) -> Parse<Option<i64>> {
    if cursor.null()? { Ok(None) } else { long(cursor).map(Some) }
}

/// Reads an integer of 32 bits, null as none.
pub(super) fn int_or_null(cursor: &mut Cursor<'_>) -> Parse<Option<i64>> {
    if cursor.null()? { Ok(None) } else { int(cursor).map(|value| Some(value.into())) }
}

/// Reads a string, null as none.
pub(super) fn text_or_null(cursor: &mut Cursor<'_>) -> Parse<Option<String>> {
    if cursor.null()? { Ok(None) } else { text(cursor).map(|text| Some(text.into_owned())) }
}

/// Reads a number or a float word, null as none.
pub(super) fn logprob(cursor: &mut Cursor<'_>) -> Parse<Option<f64>> {
    if cursor.null()? { Ok(None) } else { double(cursor).map(Some) }
}

/// Reads a list of token ids, null as none.
pub(super) fn ids_or_null(cursor: &mut Cursor<'_>) -> Parse<Option<Vec<i32>>> {
    if cursor.null()? {
        return Ok(None);
    }
    let mut ids = Vec::new();
    cursor.ids(&mut ids, id)?;
    Ok(Some(ids))
}

/// Walks the members of an object, and passes over anything else.
pub(super) fn each_member<'a>(
    cursor: &mut Cursor<'a>,
    mut read: impl FnMut(&mut Cursor<'a>, &str) -> Parse<()>,
) -> Parse<()> {
    if cursor.peek() != Some(b'{') {
        return cursor.skip().map(drop);
    }
    cursor.object(|cursor, key| read(cursor, &key).map_err(|fault| fault.at_key(&key)))
}

/// Reads weight versions: `[{version, start, end}]`, `[[start, version]]`, or one label for the whole output.
pub(super) fn versions(cursor: &mut Cursor<'_>, versions: &mut Versions) -> Parse<()> {
    if cursor.null()? {
        return Ok(());
    }
    if cursor.peek() != Some(b'[') {
        if versions.spans.is_empty() {
            let version = label(cursor, versions)?;
            versions.spans.extend(version.map(|version| (0, version)));
        } else {
            cursor.skip()?;
        }
        return Ok(());
    }
    let mut spans = Vec::new();
    cursor.array(|cursor, _| {
        let (mut start, mut version) = (None, None);
        if cursor.peek() == Some(b'[') {
            cursor.array(|cursor, at| {
                match at {
                    0 => start = Some(long(cursor)?),
                    1 => version = label(cursor, versions)?,
                    _ => drop(cursor.skip()?),
                }
                Ok(())
            })?;
        } else {
            each_member(cursor, |cursor, key| {
                match key {
                    "start" => start = long_or_null(cursor)?,
                    "version" | "policy_version" => version = label(cursor, versions)?,
                    _ => drop(cursor.skip()?),
                }
                Ok(())
            })?;
        }
        spans.extend(start.zip(version));
        Ok(())
    })?;
    if !spans.is_empty() {
        versions.spans = spans;
    }
    Ok(())
}

/// Reads a version label: an integer, or a string that holds one.
fn label(cursor: &mut Cursor<'_>, versions: &mut Versions) -> Parse<Option<i64>> {
    let Some(label) = text_or_null(cursor)? else {
        return Ok(None);
    };
    let version = label.parse().ok();
    versions.has_label |= version.is_none();
    Ok(version)
}
