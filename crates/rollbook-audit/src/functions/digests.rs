//! `text_digest(text)`: the digest of a text's bytes, written as digests are.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray, StringArray};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::Result;
use datafusion::logical_expr::ScalarUDF;
use rollbook_schema::digest::bytes_digest;

use super::row_function::RowFunction;

/// Makes the function; null where the text is.
pub(super) fn text_digest() -> ScalarUDF {
    RowFunction::udf("text_digest", vec![DataType::Utf8], DataType::Utf8, evaluate)
}

fn evaluate(arguments: &[ArrayRef], _rows: usize) -> Result<ArrayRef> {
    let texts = arguments[0].as_string::<i32>();
    let digests = texts.iter().map(|text| text.map(|text| bytes_digest(text.as_bytes())));
    Ok(Arc::new(digests.collect::<StringArray>()))
}
