//! Reading JSON lines without a tree: bounded lines, a cursor that parses in place, and compact text.
//!
//! | part | what it does |
//! |---|---|
//! | `lines` | cuts a reader into lines of at most a given length, and never holds a longer one |
//! | `cursor` | walks one line: objects, arrays, strings, numbers, each checked, no deeper than 128 levels |
//! | `string` | finds where strings end and decodes them |
//! | `fault` | says what is wrong and where |
//! | `text` | copies a value as compact JSON text, keys in source order and numbers as written |
//!
//! The grammar is JSON's, plus the tokens `NaN`, `Infinity` and `-Infinity`, which many writers emit.

mod cursor;
mod fault;
mod lines;
mod string;
mod text;

#[cfg(test)]
mod properties;

pub(crate) use cursor::Cursor;
pub(crate) use fault::{Fault, Parse};
pub(crate) use lines::{LINE_LIMIT, Line, Lines};
pub(crate) use text::{compact, is_json, members, quote, without};
