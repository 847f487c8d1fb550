//! Text to tokens and back, with the tokenizers and chat templates of a lake.
//!
//! The functions themselves read no table and no blob: whoever registers them hands them an [`Encodings`] that looks an encoding up.

mod decode;
mod encode;
mod lookup;
mod render_chat;

use std::fmt;

use datafusion_common::Result;

pub(crate) use decode::DECODE;
pub(crate) use encode::ENCODE;
pub(crate) use render_chat::RENDER_CHAT;

/// Where the functions find the tokenizer and the chat template of an encoding.
///
/// `None` stands for what is not there: the encoding, its file, or what the row asks of it.
pub trait Encodings: fmt::Debug + Send + Sync {
    /// Encodes a text; no special token is added.
    fn encode(&self, encoding_id: &str, text: &str) -> Result<Option<Vec<i32>>>;

    /// Decodes ids, with or without special tokens.
    fn decode(&self, encoding_id: &str, ids: &[i32], skip_special_tokens: bool) -> Result<Option<String>>;

    /// Renders a request with the encoding's template.
    fn render(&self, encoding_id: &str, request: &str) -> Result<Option<String>>;
}
