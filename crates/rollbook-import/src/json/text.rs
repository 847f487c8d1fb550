//! JSON text that is stored: compact, keys in source order, numbers as written.

use std::borrow::Cow;

use super::cursor::Cursor;
use super::fault::Parse;
use super::string::plain_length;

/// Appends a checked JSON value without the white space between its tokens.
///
/// The bare words `NaN`, `Infinity` and `-Infinity` are quoted, since stored text must be JSON for everybody.
pub(crate) fn compact(raw: &str, out: &mut String) {
    let bytes = raw.as_bytes();
    let mut start = 0;
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'"' => at = string_end(bytes, at),
            b' ' | b'\t' | b'\r' | b'\n' => {
                out.push_str(&raw[start..at]);
                at += 1;
                start = at;
            }
            b'N' | b'I' => {
                let word = if byte == b'N' { "NaN" } else { "Infinity" };
                let has_sign = at > start && bytes[at - 1] == b'-';
                out.push_str(&raw[start..at - usize::from(has_sign)]);
                out.push_str(if has_sign { "\"-" } else { "\"" });
                out.push_str(word);
                out.push('"');
                at += word.len();
                start = at;
            }
            _ => at += 1,
        }
    }
    out.push_str(raw.get(start..).unwrap_or_default());
}

/// The offset after the string that begins at `at`.
fn string_end(bytes: &[u8], at: usize) -> usize {
    let mut at = at + 1;
    loop {
        at += plain_length(bytes.get(at..).unwrap_or_default());
        match bytes.get(at) {
            Some(b'"') => return at + 1,
            Some(b'\\') => at += 2,
            Some(_) => at += 1,
            None => return bytes.len(),
        }
    }
}

/// Tells whether a text is one JSON value within the limits.
pub(crate) fn is_json(text: &str) -> bool {
    let mut cursor = Cursor::new(text);
    cursor.skip().is_ok() && cursor.end().is_ok()
}

/// Appends a text as a JSON string.
pub(crate) fn quote(text: &str, out: &mut String) {
    out.push('"');
    let mut start = 0;
    for (at, byte) in text.bytes().enumerate() {
        let short = match byte {
            b'"' => "\\\"",
            b'\\' => "\\\\",
            b'\n' => "\\n",
            b'\r' => "\\r",
            b'\t' => "\\t",
            0..=0x1f => "",
            _ => continue,
        };
        out.push_str(&text[start..at]);
        start = at + 1;
        out.push_str(short);
        if short.is_empty() {
            out.push_str("\\u00");
            out.push(if byte < 0x10 { '0' } else { '1' });
            out.push(char::from_digit(u32::from(byte & 0xf), 16).unwrap_or('0'));
        }
    }
    out.push_str(&text[start..]);
    out.push('"');
}

/// Returns the members of an object as (key, text of the value).
pub(crate) fn members(text: &str) -> Parse<Vec<(Cow<'_, str>, &str)>> {
    let mut members = Vec::new();
    Cursor::new(text).object(|cursor, key| {
        let value = cursor.skip().map_err(|fault| fault.at_key(&key))?;
        members.push((key, value));
        Ok(())
    })?;
    Ok(members)
}

/// Appends a value compactly, without what a path in `cuts` names: members by key, items by index or `*`.
pub(crate) fn without(raw: &str, cuts: &[&[&str]], out: &mut String) -> Parse<()> {
    copy(&mut Cursor::new(raw), cuts, out)
}

fn copy(cursor: &mut Cursor<'_>, cuts: &[&[&str]], out: &mut String) -> Parse<()> {
    let next = if cuts.is_empty() { None } else { cursor.peek() };
    match next {
        Some(b'{') => {
            out.push('{');
            let mut is_first = true;
            cursor.object(|cursor, key| {
                let below = below(cuts, &key);
                if below.iter().any(|path| path.is_empty()) {
                    return cursor.skip().map(drop);
                }
                if !is_first {
                    out.push(',');
                }
                is_first = false;
                quote(&key, out);
                out.push(':');
                copy(cursor, &below, out)
            })?;
            out.push('}');
        }
        Some(b'[') => {
            out.push('[');
            let mut is_first = true;
            cursor.array(|cursor, index| {
                let below = [below(cuts, "*"), below(cuts, &index.to_string())].concat();
                if below.iter().any(|path| path.is_empty()) {
                    return cursor.skip().map(drop);
                }
                if !is_first {
                    out.push(',');
                }
                is_first = false;
                copy(cursor, &below, out)
            })?;
            out.push(']');
        }
        _ => compact(cursor.skip()?, out),
    }
    Ok(())
}

fn below<'p>(cuts: &[&'p [&'p str]], key: &str) -> Vec<&'p [&'p str]> {
    cuts.iter()
        .filter_map(|path| path.split_first())
        .filter(|(first, _)| **first == key)
        .map(|(_, rest)| rest)
        .collect()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("{ \"a b\" : [ 1.50, \"x \\\" y\" ] }", "{\"a b\":[1.50,\"x \\\" y\"]}")]
    #[case("[NaN, -Infinity,Infinity]", "[\"NaN\",\"-Infinity\",\"Infinity\"]")]
    #[case(" 1e400 ", "1e400")]
    #[case("-Infinity", "\"-Infinity\"")]
    fn compact_keeps_all_but_space(#[case] raw: &str, #[case] expected: &str) {
        let mut out = String::new();
        compact(raw, &mut out);
        assert_eq!(out, expected);
    }

    #[test]
    fn cut_members_are_gone_and_the_rest_stays_in_order() {
        let mut out = String::new();
        let raw = r#"{"id": 1, "ids": [1, 2], "choices": [{"t": "x", "ids": [3], "k": {"ids": 4}}, 5]}"#;
        without(raw, &[&["ids"], &["choices", "*", "ids"]], &mut out).unwrap();
        assert_eq!(out, r#"{"id":1,"choices":[{"t":"x","k":{"ids":4}},5]}"#);
    }

    #[test]
    fn items_are_cut_by_index() {
        let mut out = String::new();
        without(r#"{"c": [{"a": 1}, {"a": 2, "b": 3}, 4]}"#, &[&["c", "0"], &["c", "2"], &["c", "*", "a"]], &mut out)
            .unwrap();
        assert_eq!(out, r#"{"c":[{"b":3}]}"#);
    }

    #[test]
    fn quoting_escapes_what_json_needs() {
        let mut out = String::new();
        quote("a\"\\\n\u{1}é", &mut out);
        assert_eq!(out, "\"a\\\"\\\\\\n\\u0001é\"");
        assert_eq!(serde_json::from_str::<String>(&out).unwrap(), "a\"\\\n\u{1}é");
    }
}
