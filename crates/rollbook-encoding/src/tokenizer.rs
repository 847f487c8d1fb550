//! A tokenizer as `tokenizer.json` describes it.

use std::fmt;

use crate::error::{Error, ErrorKind, Result};

/// How ids become text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecodeFlags {
    /// Whether special tokens are left out of the text.
    pub skip_special_tokens: bool,
    /// Whether the text is made as a server streams it: a character goes out once its last byte is there, so bytes that never
    /// make a character at the end are not written at all. Otherwise they become U+FFFD.
    pub is_streamed: bool,
}

/// A tokenizer without its truncation, padding and post-processing: ids are those of the text alone.
pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
}

impl fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tokenizer").field("vocab_size", &self.vocab_size()).finish_non_exhaustive()
    }
}

impl Tokenizer {
    /// Reads a `tokenizer.json`.
    ///
    /// # Errors
    /// `Invalid` where the bytes are none.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let invalid =
            |source: tokenizers::Error| Error::new(ErrorKind::Invalid, format!("no tokenizer.json: {source}"));
        let mut inner = tokenizers::Tokenizer::from_bytes(bytes).map_err(invalid)?;
        // A file may ask to cut or fill what it encodes; a record is encoded whole.
        inner.with_truncation(None).map_err(invalid)?;
        inner.with_padding(None);
        Ok(Self { inner })
    }

    /// Returns how many ids have a token, added ones included.
    pub fn vocab_size(&self) -> usize {
        self.inner.get_vocab_size(true)
    }

    /// Returns the id of a token.
    pub fn id_of(&self, token: &str) -> Option<i32> {
        self.inner.token_to_id(token).and_then(|id| i32::try_from(id).ok())
    }

    /// Returns the token of an id, as the vocabulary writes it.
    pub fn token_of(&self, id: i32) -> Option<String> {
        self.inner.id_to_token(u32::try_from(id).ok()?)
    }

    /// Encodes a text. Special tokens written in it become their ids; none is added.
    ///
    /// # Errors
    /// `Failed` where the tokenizer has no token for a part and none for the unknown.
    pub fn encode(&self, text: &str) -> Result<Vec<i32>> {
        let failed =
            |source: tokenizers::Error| Error::new(ErrorKind::Failed, format!("the tokenizer failed: {source}"));
        let encoding = self.inner.encode_fast(text, false).map_err(failed)?;
        encoding.get_ids().iter().map(|id| i32::try_from(*id).map_err(|_beyond| beyond(*id))).collect()
    }

    /// Decodes ids. One without a token, as in a padded part of an embedding, gives nothing.
    ///
    /// # Errors
    /// `Failed` where the decoder does.
    pub fn decode(&self, ids: &[i32], flags: DecodeFlags) -> Result<String> {
        let ids: Vec<u32> = ids.iter().filter_map(|id| u32::try_from(*id).ok()).collect();
        if !flags.is_streamed {
            return self.inner.decode(&ids, flags.skip_special_tokens).map_err(|source| undecodable(&source));
        }
        let mut stream = self.inner.decode_stream(flags.skip_special_tokens);
        let mut text = String::new();
        for id in ids {
            text.extend(stream.step(id).map_err(|source| undecodable(&source))?);
        }
        Ok(text)
    }

    /// Decodes ids with their special tokens, bytes that make no character as U+FFFD.
    pub(crate) fn spell(&self, ids: &[i32]) -> Result<String> {
        self.decode(ids, DecodeFlags { skip_special_tokens: false, is_streamed: false })
    }
}

fn beyond(id: u32) -> Error {
    Error::new(ErrorKind::Failed, format!("token id {id} lies beyond int32"))
}

fn undecodable(source: &tokenizers::Error) -> Error {
    Error::new(ErrorKind::Failed, format!("the tokenizer cannot decode the ids: {source}"))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn small() -> Tokenizer {
        Tokenizer::from_bytes(include_bytes!("../tests/small/tokenizer.json")).unwrap()
    }

    fn flags(skip_special_tokens: bool, is_streamed: bool) -> DecodeFlags {
        DecodeFlags { skip_special_tokens, is_streamed }
    }

    #[test]
    fn ids_decode_as_in_python() {
        let expected: Value = serde_json::from_str(include_str!("../tests/expected.json")).unwrap();
        for case in expected["decoded"].as_array().unwrap() {
            let ids: Vec<i32> = serde_json::from_value(case["ids"].clone()).unwrap();
            assert_eq!(json!(small().decode(&ids, flags(false, false)).unwrap()), case["all"], "{ids:?}");
            assert_eq!(json!(small().decode(&ids, flags(true, false)).unwrap()), case["without_special"], "{ids:?}");
        }
    }

    #[test]
    fn a_stream_holds_back_bytes_that_make_no_character() {
        let emoji = small().encode("a😀").unwrap();
        assert_eq!(small().decode(&emoji, flags(true, true)).unwrap(), "a😀");
        let cut = &emoji[..emoji.len() - 1];
        assert_eq!(small().decode(cut, flags(true, true)).unwrap(), "a");
        assert_eq!(small().decode(cut, flags(true, false)).unwrap(), "a\u{fffd}");
    }

    #[test]
    fn truncation_in_the_file_cuts_nothing() {
        let mut file: Value = serde_json::from_slice(include_bytes!("../tests/small/tokenizer.json")).unwrap();
        file["truncation"] = json!({"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0});
        let tokenizer = Tokenizer::from_bytes(file.to_string().as_bytes()).unwrap();
        assert_eq!(tokenizer.encode("hello hello hello"), small().encode("hello hello hello"));
    }

    #[test]
    fn bytes_that_are_none_are_told() {
        assert_eq!(Tokenizer::from_bytes(b"{}").unwrap_err().kind(), ErrorKind::Invalid);
    }

    #[test]
    fn ids_of_no_token_give_nothing() {
        assert_eq!(small().decode(&[-1, i32::MAX, 1], flags(false, false)).unwrap(), "<|im_start|>");
        assert_eq!((small().id_of("<|im_end|>"), small().token_of(2)), (Some(2), Some("<|im_end|>".to_owned())));
    }
}
