//! `render_chat(request, encoding_id)`: the text of a request's prompt.

use std::sync::Arc;

use arrow::array::{ArrayRef, StringBuilder};
use arrow::datatypes::DataType;
use datafusion_common::Result;
use datafusion_expr::ColumnarValue;

use super::Encodings;
use super::lookup::{Shape, Texts, udf};
use crate::argument::id_type;
use crate::function::{Function, Kind, Param};

/// `render_chat`.
pub(crate) const RENDER_CHAT: Function = Function {
    name: "render_chat",
    family: "encodings",
    version: 1,
    kind: Kind::Encoding(|encodings| udf(SHAPE, encodings)),
    params: &[
        Param::required("request", "string", "A chat request as JSON: messages, tools, chat_template_kwargs."),
        Param::required("encoding_id", "string", "The encoding whose chat template renders it."),
    ],
    returns: "string",
    doc: "Returns the prompt that an encoding's chat template makes of a request, as text.",
    definition: "\
What `transformers.apply_chat_template` renders of the request's `messages`, `tools` and `documents`, with `encodings.template_kwargs` \
and, over them, the request's `chat_template_kwargs`. Members of a message that are null are left out. `add_generation_prompt` is true \
unless the request says otherwise or asks to `continue_final_message`. Special tokens are those of `encodings.special_token_map`. The \
template sees nothing else: no file, no environment, no time; it may take 50,000,000 steps and write 64 MiB. `~` and the filter \
`string` write `none` and `true` where Python writes `None` and `True`.\n\
\n\
- Null where an argument is null, where the lake knows no such encoding or does not hold its template's file (`rollbook import tables \
DIR` takes it in `DIR/blobs/`), and where the request holds no messages.\n\
- Null where the template refuses the conversation or fails on it: the check token/template says why, and at which line.\n\
- A file that is no template, and one that runs beyond its limits, is an error.",
    source: Some("https://huggingface.co/docs/transformers/chat_templating"),
    slt: include_str!("render_chat.slt"),
};

const SHAPE: Shape = Shape { function: &RENDER_CHAT, returns: || DataType::Utf8, types, evaluate };

fn types(given: &[DataType]) -> Result<Vec<DataType>> {
    given.iter().enumerate().map(|(position, given)| id_type(&RENDER_CHAT, position, given)).collect()
}

fn evaluate(encodings: &dyn Encodings, arguments: &[ColumnarValue], rows: usize) -> Result<ArrayRef> {
    let (requests, ids) = (Texts::of(arguments, 0, rows)?, Texts::of(arguments, 1, rows)?);
    let mut out = StringBuilder::new();
    for row in 0..rows {
        let text = match (requests.row(row), ids.row(row)) {
            (Some(request), Some(id)) => encodings.render(id, request)?,
            _ => None,
        };
        out.append_option(text);
    }
    Ok(Arc::new(out.finish()))
}
