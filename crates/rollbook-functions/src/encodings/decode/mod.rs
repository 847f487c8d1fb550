//! `decode(ids, encoding_id)`: the text of ids.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, StringBuilder};
use arrow::datatypes::DataType;
use datafusion_common::Result;
use datafusion_expr::ColumnarValue;

use super::Encodings;
use super::lookup::{Shape, Texts, udf};
use crate::argument::{boolean_type, id_type};
use crate::function::{Function, Kind, Param};
use crate::tokens::{TokenLists, token_list_type};

/// `decode`.
pub(crate) const DECODE: Function = Function {
    name: "decode",
    family: "encodings",
    version: 1,
    kind: Kind::Encoding(|encodings| udf(SHAPE, encodings)),
    params: &[
        Param::required("ids", "integer[]", "A list of token ids."),
        Param::required("encoding_id", "string", "The encoding whose tokenizer decodes them."),
        Param::optional("skip_special_tokens", "boolean", "false", "Whether special tokens are left out of the text."),
    ],
    returns: "string",
    doc: "Returns the text that an encoding's tokenizer makes of token ids.",
    definition: "\
The text of the Python `tokenizers` for the file whose digest is `encodings.tokenizer_digest`, all ids at once: bytes that make no \
character are U+FFFD, an id without a token gives nothing.\n\
\n\
- Null where an argument is null, where the lake knows no such encoding, and where it does not hold the tokenizer's file \
(`rollbook import tables DIR` takes it in `DIR/blobs/`).\n\
- A null token, or one beyond int32, is an error; so is a file that is no tokenizer.\n\
- It stands in the place of DataFusion's `decode` for base64 and hex.",
    source: Some("https://huggingface.co/docs/tokenizers"),
    slt: include_str!("decode.slt"),
};

const SHAPE: Shape = Shape { function: &DECODE, returns: || DataType::Utf8, types, evaluate };

fn types(given: &[DataType]) -> Result<Vec<DataType>> {
    let read = |(position, given): (usize, &DataType)| match position {
        0 => token_list_type(&DECODE, position, given),
        1 => id_type(&DECODE, position, given),
        _ => boolean_type(&DECODE, position, given),
    };
    given.iter().enumerate().map(read).collect()
}

fn evaluate(encodings: &dyn Encodings, arguments: &[ColumnarValue], rows: usize) -> Result<ArrayRef> {
    let [lists, _, flags @ ..] = arguments else {
        return Ok(Arc::new(StringBuilder::new().finish()));
    };
    let (lists, ids) = (TokenLists::of(lists)?, Texts::of(arguments, 1, rows)?);
    let flags = flags.first().map(|flag| flag.to_array(rows)).transpose()?;
    let mut out = StringBuilder::new();
    for row in 0..rows {
        let skip = match &flags {
            None => Some(false),
            Some(flags) => flags.as_boolean_opt().and_then(|flags| flags.is_valid(row).then(|| flags.value(row))),
        };
        let text = match (lists.row(row)?, ids.row(row), skip) {
            (Some(tokens), Some(id), Some(skip)) => encodings.decode(id, tokens, skip)?,
            _ => None,
        };
        out.append_option(text);
    }
    Ok(Arc::new(out.finish()))
}
