//! Values as Python writes them, where a template prints one that is no text.

use minijinja::value::ValueKind;
use minijinja::{Error, ErrorKind, Output, Value};

/// Writes a value as `{{ value }}` does in Python's Jinja: `str(value)`, nothing for what is undefined.
pub(super) fn write_value(out: &mut Output<'_>, value: &Value) -> Result<(), Error> {
    let written = match value.kind() {
        ValueKind::Undefined => Ok(()),
        ValueKind::String => out.write_str(value.as_str().unwrap_or_default()),
        ValueKind::Bool | ValueKind::None | ValueKind::Map | ValueKind::Seq => {
            let mut text = String::new();
            represent(&mut text, value, 0)?;
            out.write_str(&text)
        }
        _ => write!(out, "{value}"),
    };
    written.map_err(|_full| Error::new(ErrorKind::WriteFailure, "the output is full"))
}

/// Depth of lists and maps within each other that is written.
const DEPTH: usize = 128;

/// Appends `repr(value)`.
fn represent(text: &mut String, value: &Value, depth: usize) -> Result<(), Error> {
    if depth > DEPTH {
        return Err(Error::new(ErrorKind::InvalidOperation, "a value is nested too deeply to be printed"));
    }
    match value.kind() {
        ValueKind::Undefined => text.push_str("Undefined"),
        ValueKind::None => text.push_str("None"),
        ValueKind::Bool => text.push_str(if value.is_true() { "True" } else { "False" }),
        ValueKind::String => represent_text(text, value.as_str().unwrap_or_default()),
        ValueKind::Seq => {
            text.push('[');
            for (place, item) in value.try_iter()?.enumerate() {
                text.push_str(if place > 0 { ", " } else { "" });
                represent(text, &item, depth + 1)?;
            }
            text.push(']');
        }
        ValueKind::Map => {
            text.push('{');
            for (place, key) in value.try_iter()?.enumerate() {
                text.push_str(if place > 0 { ", " } else { "" });
                represent(text, &key, depth + 1)?;
                text.push_str(": ");
                represent(text, &value.get_item(&key)?, depth + 1)?;
            }
            text.push('}');
        }
        _ => text.push_str(&value.to_string()),
    }
    Ok(())
}

/// Appends a text in quotes: single ones, unless it holds these and no double ones.
fn represent_text(text: &mut String, value: &str) {
    let quote = if value.contains('\'') && !value.contains('"') { '"' } else { '\'' };
    text.push(quote);
    for c in value.chars() {
        match c {
            '\\' => text.push_str("\\\\"),
            '\n' => text.push_str("\\n"),
            '\r' => text.push_str("\\r"),
            '\t' => text.push_str("\\t"),
            c if c == quote => {
                text.push('\\');
                text.push(c);
            }
            c if u32::from(c) < 0x20 || (0x7f..0xa0).contains(&u32::from(c)) => {
                text.push_str(&format!("\\x{:02x}", u32::from(c)));
            }
            c => text.push(c),
        }
    }
    text.push(quote);
}
