//! `encode(text, encoding_id)`: the ids of a text.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int32Builder, ListBuilder};
use arrow::datatypes::{DataType, Field};
use datafusion_common::Result;
use datafusion_expr::ColumnarValue;

use super::Encodings;
use super::lookup::{Shape, Texts, udf};
use crate::argument::id_type;
use crate::function::{Function, Kind, Param};

/// `encode`.
pub(crate) const ENCODE: Function = Function {
    name: "encode",
    family: "encodings",
    version: 1,
    kind: Kind::Encoding(|encodings| udf(SHAPE, encodings)),
    params: &[
        Param::required("text", "string", "A text."),
        Param::required("encoding_id", "string", "The encoding whose tokenizer encodes it."),
    ],
    returns: "integer[]",
    doc: "Returns the token ids that an encoding's tokenizer makes of a text.",
    definition: "\
The ids of the Python `tokenizers` for the file whose digest is `encodings.tokenizer_digest`, without truncation and padding. Special \
tokens written in the text become their ids; none is added, as servers do with the text of a chat template.\n\
\n\
- Null where an argument is null, where the lake knows no such encoding, and where it does not hold the tokenizer's file \
(`rollbook import tables DIR` takes it in `DIR/blobs/`).\n\
- A file that is no tokenizer is an error that names its digest.\n\
- It stands in the place of DataFusion's `encode` for base64 and hex.",
    source: Some("https://huggingface.co/docs/tokenizers"),
    slt: include_str!("encode.slt"),
};

const SHAPE: Shape = Shape { function: &ENCODE, returns: || DataType::List(item()), types, evaluate };

fn types(given: &[DataType]) -> Result<Vec<DataType>> {
    given.iter().enumerate().map(|(position, given)| id_type(&ENCODE, position, given)).collect()
}

fn evaluate(encodings: &dyn Encodings, arguments: &[ColumnarValue], rows: usize) -> Result<ArrayRef> {
    let (texts, ids) = (Texts::of(arguments, 0, rows)?, Texts::of(arguments, 1, rows)?);
    let mut out = ListBuilder::new(Int32Builder::new()).with_field(item());
    for row in 0..rows {
        let encoded = match (texts.row(row), ids.row(row)) {
            (Some(text), Some(id)) => encodings.encode(id, text)?,
            _ => None,
        };
        match encoded {
            Some(encoded) => {
                out.values().append_slice(&encoded);
                out.append(true);
            }
            None => out.append(false),
        }
    }
    Ok(Arc::new(out.finish()))
}

fn item() -> Arc<Field> {
    Arc::new(Field::new_list_field(DataType::Int32, true))
}
