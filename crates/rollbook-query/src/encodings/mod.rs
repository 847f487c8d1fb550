//! The tokenizers and chat templates of a lake, read when a function first asks for one.
//!
//! ```text
//! encoding_id -> row of encodings (newest revision) -> digest -> blob -> tokenizer or template, the last used kept
//! ```

mod recent;
mod rows;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use datafusion::common::Result as PlanResult;
use rollbook_encoding::{Conversation, DecodeFlags, ErrorKind as EncodingError, Form, Template, Tokenizer};
use rollbook_lake::{DataFile, Lake, Snapshot};
use serde_json::{Map, Value};
use tokio::runtime::{Handle, RuntimeFlavor};

use crate::error::{Error, ErrorKind, Result};
use recent::Recent;

/// Tokenizers kept at hand; one of 150,000 tokens takes about 100 MB.
const TOKENIZERS: usize = 4;

/// Templates kept at hand.
const TEMPLATES: usize = 64;

/// One row of `encodings`, as far as rendering and decoding need it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Encoding {
    /// Digest of `tokenizer.json`.
    pub tokenizer_digest: Option<String>,
    /// Digest of the chat template's text.
    pub chat_template_digest: Option<String>,
    /// Arguments of the chat template.
    pub template_kwargs: Map<String, Value>,
    /// Special tokens by role, ids or texts; none where they are not recorded.
    pub special_token_map: Option<Map<String, Value>>,
    /// Settings of the detokenizer.
    pub detokenizer_flags: Map<String, Value>,
    /// Ids that the template puts before an assistant's turn; empty where they are not recorded.
    pub generation_prompt_ids: Vec<i32>,
}

/// The encodings of one snapshot.
pub struct LakeEncodings {
    lake: Lake,
    files: Vec<Arc<DataFile>>,
    held: Mutex<Held>,
}

/// What was read so far.
struct Held {
    rows: Option<HashMap<String, Arc<Encoding>>>,
    tokenizers: Recent<Tokenizer>,
    templates: Recent<Template>,
}

impl fmt::Debug for LakeEncodings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LakeEncodings").field("lake", &self.lake).finish_non_exhaustive()
    }
}

impl LakeEncodings {
    /// The encodings that a snapshot shows.
    pub(crate) fn new(lake: &Lake, snapshot: &Snapshot) -> Self {
        let held = Held { rows: None, tokenizers: Recent::new(TOKENIZERS), templates: Recent::new(TEMPLATES) };
        Self { lake: lake.clone(), files: snapshot.table("encodings").files.clone(), held: Mutex::new(held) }
    }

    /// Looks an encoding up.
    ///
    /// # Errors
    /// A store that does not answer, a runtime of one thread.
    pub fn encoding(&self, encoding_id: &str) -> Result<Option<Arc<Encoding>>> {
        let mut held = self.held();
        if held.rows.is_none() {
            held.rows = Some(wait(rows::read(&self.lake, &self.files))?);
        }
        Ok(held.rows.as_ref().and_then(|rows| rows.get(encoding_id)).map(Arc::clone))
    }

    /// Returns every encoding by its id.
    ///
    /// # Errors
    /// Those of [`Self::encoding`].
    pub fn all(&self) -> Result<BTreeMap<String, Arc<Encoding>>> {
        self.encoding("")?;
        let held = self.held();
        let rows = held.rows.iter().flatten();
        Ok(rows.map(|(id, encoding)| (id.clone(), Arc::clone(encoding))).collect())
    }

    /// Returns an encoding's tokenizer, none where its file is not in the lake.
    ///
    /// # Errors
    /// A file that is no tokenizer, a store that does not answer.
    pub fn tokenizer(&self, encoding: &Encoding) -> Result<Option<Arc<Tokenizer>>> {
        let Some(digest) = encoding.tokenizer_digest.as_deref() else {
            return Ok(None);
        };
        let read = |bytes: &[u8]| Tokenizer::from_bytes(bytes).map_err(|error| broken("tokenizer", digest, error));
        let mut held = self.held();
        held.tokenizers.get(digest, || self.blob(digest)?.map(|bytes| read(&bytes)).transpose())
    }

    /// Returns an encoding's chat template, none where its file is not in the lake.
    ///
    /// # Errors
    /// A file that is no template, a store that does not answer.
    pub fn template(&self, encoding: &Encoding) -> Result<Option<Arc<Template>>> {
        let Some(digest) = encoding.chat_template_digest.as_deref() else {
            return Ok(None);
        };
        let read = |bytes: &[u8]| {
            let text = std::str::from_utf8(bytes).map_err(|error| broken("chat template", digest, error))?;
            Template::new(text).map_err(|error| broken("chat template", digest, error))
        };
        let mut held = self.held();
        held.templates.get(digest, || self.blob(digest)?.map(|bytes| read(&bytes)).transpose())
    }

    /// Returns the special tokens that a template sees by name, as texts.
    ///
    /// # Errors
    /// Those of [`Self::tokenizer`], which ids are looked up in.
    pub fn special_tokens(&self, encoding: &Encoding) -> Result<Map<String, Value>> {
        let mut texts = Map::new();
        for (name, token) in encoding.special_token_map.iter().flatten() {
            let text = match token {
                Value::String(text) => Some(text.clone()),
                Value::Object(members) => members.get("content").and_then(Value::as_str).map(str::to_owned),
                Value::Number(id) => {
                    let id = id.as_i64().and_then(|id| i32::try_from(id).ok());
                    let tokenizer = self.tokenizer(encoding)?;
                    id.zip(tokenizer).and_then(|(id, tokenizer)| tokenizer.token_of(id))
                }
                _ => None,
            };
            texts.extend(text.map(|text| (name.clone(), Value::String(text))));
        }
        Ok(texts)
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn blob(&self, digest: &str) -> Result<Option<Bytes>> {
        let full = if digest.contains(':') { digest.to_owned() } else { format!("sha256:{digest}") };
        match wait(async { self.lake.blob(&full).await.map_err(Error::from) }) {
            Ok(bytes) => Ok(Some(bytes)),
            // A digest of another kind is nothing that a blob lies under.
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Invalid) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

fn broken(what: &str, digest: &str, error: impl fmt::Display) -> Error {
    Error::corrupt(format!("the {what} of an encoding cannot be used: {error}")).with("digest", digest)
}

/// Waits for the store inside a function that cannot: the thread is lent to the runtime meanwhile.
fn wait<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    match Handle::try_current() {
        Ok(handle) if handle.runtime_flavor() != RuntimeFlavor::CurrentThread => {
            tokio::task::block_in_place(|| handle.block_on(work))
        }
        _ => Err(Error::unsupported("tokenizers and templates are read on a runtime of several threads")),
    }
}

impl rollbook_functions::Encodings for LakeEncodings {
    fn encode(&self, encoding_id: &str, text: &str) -> PlanResult<Option<Vec<i32>>> {
        let Some(tokenizer) = self.tokenizer_of(encoding_id)? else {
            return Ok(None);
        };
        Ok(Some(tokenizer.encode(text).map_err(row_error)?))
    }

    fn decode(&self, encoding_id: &str, ids: &[i32], skip_special_tokens: bool) -> PlanResult<Option<String>> {
        let Some(tokenizer) = self.tokenizer_of(encoding_id)? else {
            return Ok(None);
        };
        let flags = DecodeFlags { skip_special_tokens, is_streamed: false };
        Ok(Some(tokenizer.decode(ids, flags).map_err(row_error)?))
    }

    fn render(&self, encoding_id: &str, request: &str) -> PlanResult<Option<String>> {
        let Some(encoding) = self.encoding(encoding_id)? else {
            return Ok(None);
        };
        let Some(template) = self.template(&encoding)? else {
            return Ok(None);
        };
        let rendered = Conversation::from_request(request, &encoding.template_kwargs)
            .and_then(|conversation| Ok((own_template(&conversation)?, conversation.in_form(Form::Transformers))));
        let special_tokens = self.special_tokens(&encoding)?;
        let rendered = rendered.and_then(|(own, conversation)| {
            own.as_ref().unwrap_or(&template).render(&conversation, &special_tokens, None)
        });
        match rendered {
            Ok(text) => Ok(Some(text)),
            Err(error) => match error.kind() {
                EncodingError::Exhausted => Err(row_error(error).into()),
                _ => Ok(None),
            },
        }
    }
}

/// The template that a request brings along.
fn own_template(conversation: &Conversation) -> rollbook_encoding::Result<Option<Template>> {
    conversation.template.as_deref().map(Template::new).transpose()
}

impl LakeEncodings {
    fn tokenizer_of(&self, encoding_id: &str) -> Result<Option<Arc<Tokenizer>>> {
        match self.encoding(encoding_id)? {
            Some(encoding) => self.tokenizer(&encoding),
            None => Ok(None),
        }
    }
}

#[expect(clippy::needless_pass_by_value, reason = "it maps errors")]
fn row_error(error: rollbook_encoding::Error) -> Error {
    Error::invalid(error.to_string())
}

#[cfg(test)]
mod tests;
