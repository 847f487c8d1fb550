//! One value as text, with nothing in it that a terminal would obey.

use std::fmt::Write;

use arrow::array::{Array, AsArray};
use arrow::datatypes::{DataType, Float32Type, Float64Type};
use arrow::util::display::{ArrayFormatter, FormatOptions};

use crate::error::Result;

/// Items of a list that a table shows at each end.
const LIST_HEAD: usize = 6;
/// Characters of a text that a table shows.
const TEXT_SHOWN: usize = 200;

/// Replaces control characters, so that data cannot move the cursor or change the terminal.
pub(crate) fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            // Bidirectional overrides reorder what a reader sees; they are shown, not obeyed.
            '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
                let _written = write!(out, "\\u{{{:x}}}", character as u32);
            }
            control if control.is_control() => {
                let _written = write!(out, "\\u{{{:x}}}", control as u32);
            }
            other => out.push(other),
        }
    }
    out
}

/// A value as a table shows it.
pub(crate) fn cell(array: &dyn Array, row: usize) -> Result<String> {
    if array.is_null(row) {
        return Ok("NULL".to_owned());
    }
    match array.data_type() {
        DataType::List(_) => list(array.as_list::<i32>().value(row).as_ref()),
        DataType::LargeList(_) => list(array.as_list::<i64>().value(row).as_ref()),
        DataType::Float64 => Ok(float(array.as_primitive::<Float64Type>().value(row))),
        DataType::Float32 => Ok(array.as_primitive::<Float32Type>().value(row).to_string()),
        _ => {
            let options = FormatOptions::default().with_null("NULL");
            let text = ArrayFormatter::try_new(array, &options)?.value(row).to_string();
            Ok(shorten(&plain(&text)))
        }
    }
}

fn float(value: f64) -> String {
    // Ordinary sizes are written out; only what would be a row of zeros gets an exponent.
    let size = value.abs();
    if size != 0.0 && size.is_finite() && !(1e-5..1e16).contains(&size) {
        format!("{value:e}")
    } else {
        value.to_string()
    }
}

fn shorten(text: &str) -> String {
    match text.char_indices().nth(TEXT_SHOWN) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

fn list(items: &dyn Array) -> Result<String> {
    let mut parts = Vec::new();
    for item in 0..items.len().min(LIST_HEAD) {
        parts.push(cell(items, item)?);
    }
    if items.len() > LIST_HEAD {
        parts.push(format!("… {} items", items.len()));
    }
    Ok(format!("[{}]", parts.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::plain;

    #[test]
    fn terminal_escapes_are_shown_not_obeyed() {
        assert_eq!(plain("a\u{1b}[31mred\u{7}"), "a\\u{1b}[31mred\\u{7}");
        assert_eq!(plain("x\u{202e}y"), "x\\u{202e}y");
        assert_eq!(plain("tab\tnew\nline"), "tab\\tnew\\nline");
        assert_eq!(plain("\u{9b}31m"), "\\u{9b}31m");
    }
}
