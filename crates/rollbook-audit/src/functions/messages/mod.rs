//! What messages say, and where one record of them contradicts another.
//!
//! | function                                                              | gives                                             |
//! |-----------------------------------------------------------------------|---------------------------------------------------|
//! | `holds_parsed(parsed, response, choice)`                              | whether a parser took reasoning or calls out      |
//! | `has_messages(json)`                                                  | whether a request or state holds messages         |
//! | `digest_fits(text, digest)`                                           | whether a digest is that of a JSON text           |
//! | `request_fault(request, state)`                                       | where a request leaves the harness's messages     |
//! | `update_fault(child, parent, parsed, response, choice, text, results)`| what of an answer or its results is not passed on |

mod answer;
mod parse;
mod request;
mod update;
mod written;

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, Int32Array, StringArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Int64Type};
use datafusion::common::Result;
use datafusion::logical_expr::ScalarUDF;

use super::lists::{argument, fields, int};

pub(crate) use answer::answer_of;
pub(crate) use parse::{Text, fault as parse_fault};

/// The functions.
pub(super) fn all() -> Vec<ScalarUDF> {
    vec![
        answer::holds_parsed(),
        answer::has_messages(),
        request::digest_fits(),
        request::request_fault(),
        update::update_fault(),
    ]
}

/// A contradiction: what it is of, at which message, and the two sides, shortened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) place: &'static str,
    pub(crate) index: Option<usize>,
    pub(crate) expected: String,
    pub(crate) observed: String,
}

impl Fault {
    pub(crate) fn new(place: &'static str, index: Option<usize>, expected: &str, observed: &str) -> Self {
        Self { place, index, expected: shortened(expected), observed: shortened(observed) }
    }
}

/// Characters of a side that are shown.
const SHOWN: usize = 120;

fn shortened(text: &str) -> String {
    let mut shown: String = text.chars().take(SHOWN).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    shown
}

fn fault_fields() -> [(&'static str, DataType); 4] {
    [("place", DataType::Utf8), ("index", DataType::Int32), ("expected", DataType::Utf8), ("observed", DataType::Utf8)]
}

fn fault_type() -> DataType {
    DataType::Struct(fields(&fault_fields()))
}

/// Faults as a column of structs, null where there is none.
fn faults(found: &[Option<Fault>]) -> Result<ArrayRef> {
    use datafusion::arrow::array::StructArray;
    use datafusion::arrow::buffer::NullBuffer;
    let text = |value: fn(&Fault) -> &str| -> ArrayRef {
        Arc::new(found.iter().map(|fault| fault.as_ref().map(value)).collect::<StringArray>())
    };
    let index = found.iter().map(|fault| fault.as_ref().and_then(|fault| fault.index.map(int)));
    let columns = vec![
        text(|fault| fault.place),
        Arc::new(index.collect::<Int32Array>()),
        text(|fault| &fault.expected),
        text(|fault| &fault.observed),
    ];
    let nulls = NullBuffer::from(found.iter().map(Option::is_some).collect::<Vec<_>>());
    Ok(Arc::new(StructArray::try_new(fields(&fault_fields()), columns, Some(nulls))?))
}

/// An argument's texts.
fn texts(arrays: &[ArrayRef], place: usize) -> Result<StringArray> {
    Ok(cast(argument(arrays, place)?, &DataType::Utf8)?.as_string::<i32>().clone())
}

fn text(column: &StringArray, row: usize) -> Option<&str> {
    column.is_valid(row).then(|| column.value(row))
}

/// An argument's numbers of choices; the first where none is given.
fn choices(arrays: &[ArrayRef], place: usize) -> Result<Vec<i64>> {
    let choices = cast(argument(arrays, place)?, &DataType::Int64)?;
    Ok(choices.as_primitive::<Int64Type>().iter().map(Option::unwrap_or_default).collect())
}
