//! `encoding_parts`: which parts of each encoding the lake holds.

use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use futures::FutureExt;
use futures::future::BoxFuture;
use rollbook_query::{Encoding, ErrorKind, LakeEncodings, Result};

use super::super::Origin;

/// Names of special tokens that a template may use.
const SPECIAL: [&str; 4] = ["bos_token", "eos_token", "unk_token", "pad_token"];

pub(in crate::tables) fn schema() -> SchemaRef {
    let text = |name| Field::new(name, DataType::Utf8, true);
    let flag = |name| Field::new(name, DataType::Boolean, true);
    Arc::new(Schema::new(vec![
        text("encoding_id"),
        text("tokenizer_digest"),
        flag("has_tokenizer"),
        text("chat_template_digest"),
        flag("has_chat_template"),
        flag("lacks_special_tokens"),
        flag("asks_for_time"),
        text("problem"),
    ]))
}

/// What of an encoding can be used.
#[derive(Debug, Default)]
pub(super) struct Parts {
    pub(super) has_tokenizer: bool,
    pub(super) has_template: bool,
    /// The template names a special token that the encoding does not tell.
    pub(super) lacks_special_tokens: bool,
    pub(super) asks_for_time: bool,
    /// Why a file that is there cannot be used.
    problem: Option<String>,
}

impl Parts {
    /// Whether requests can be rendered and encoded.
    pub(super) fn can_render(&self) -> bool {
        self.has_tokenizer && self.has_template && !self.lacks_special_tokens
    }

    pub(super) fn of(encodings: &LakeEncodings, encoding: &Encoding) -> Result<Self> {
        let mut parts = Self::default();
        match encodings.tokenizer(encoding) {
            Ok(tokenizer) => parts.has_tokenizer = tokenizer.is_some(),
            // A file that is no tokenizer is a part that is not there; a store that is away is an error of the whole audit.
            Err(error) if error.kind() == ErrorKind::Corrupt => parts.problem = Some(error.to_string()),
            Err(error) => return Err(error),
        }
        match encodings.template(encoding) {
            Ok(template) => {
                parts.has_template = template.is_some();
                parts.asks_for_time = template.as_ref().is_some_and(|template| template.mentions("strftime_now"));
                let known = |name: &str| encoding.special_token_map.as_ref().is_some_and(|map| map.contains_key(name));
                parts.lacks_special_tokens =
                    template.is_some_and(|template| SPECIAL.iter().any(|name| template.mentions(name) && !known(name)));
            }
            Err(error) if error.kind() == ErrorKind::Corrupt => parts.problem = Some(error.to_string()),
            Err(error) => return Err(error),
        }
        Ok(parts)
    }
}

pub(in crate::tables) fn parts(
    origin: Origin,
    _read: Vec<Vec<RecordBatch>>,
) -> BoxFuture<'static, Result<Vec<RecordBatch>>> {
    async move {
        let session = origin.session().await?;
        let encodings = session.encodings();
        let mut found = Vec::new();
        for (id, encoding) in encodings.all()? {
            let parts = Parts::of(encodings, &encoding)?;
            found.push((id, encoding, parts));
        }
        let text = |value: fn(&(String, Arc<Encoding>, Parts)) -> Option<&str>| -> ArrayRef {
            Arc::new(found.iter().map(value).collect::<StringArray>())
        };
        let flag = |value: fn(&Parts) -> bool| -> ArrayRef {
            Arc::new(found.iter().map(|(_, _, parts)| Some(value(parts))).collect::<BooleanArray>())
        };
        let columns = vec![
            text(|(id, _, _)| Some(id)),
            text(|(_, encoding, _)| encoding.tokenizer_digest.as_deref()),
            flag(|parts| parts.has_tokenizer),
            text(|(_, encoding, _)| encoding.chat_template_digest.as_deref()),
            flag(|parts| parts.has_template),
            flag(|parts| parts.lacks_special_tokens),
            flag(|parts| parts.asks_for_time),
            text(|(_, _, parts)| parts.problem.as_deref()),
        ];
        Ok(vec![RecordBatch::try_new(schema(), columns)?])
    }
    .boxed()
}
