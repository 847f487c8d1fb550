//! What a request asked for: sampling parameters, and the prompt ids that a client sent.

use std::borrow::Cow;

use crate::json::{Cursor, Parse, compact, quote};
use crate::row::{double, id, int, long};

use super::wire::each_member;

/// Parameters that shape what is sampled or returned; everything else of a request is its prompt or its transport.
const SAMPLING: [&str; 47] = [
    "allowed_token_ids",
    "bad_words",
    "best_of",
    "dry_base",
    "dry_multiplier",
    "early_stopping",
    "ebnf",
    "echo",
    "frequency_penalty",
    "guided_choice",
    "guided_decoding_backend",
    "guided_grammar",
    "guided_json",
    "guided_regex",
    "ignore_eos",
    "include_stop_str_in_output",
    "json_schema",
    "length_penalty",
    "logit_bias",
    "logprobs",
    "max_completion_tokens",
    "max_new_tokens",
    "max_tokens",
    "min_new_tokens",
    "min_p",
    "min_tokens",
    "n",
    "no_stop_trim",
    "presence_penalty",
    "prompt_logprobs",
    "reasoning_effort",
    "regex",
    "repetition_penalty",
    "response_format",
    "sampling_seed",
    "seed",
    "skip_special_tokens",
    "spaces_between_special_tokens",
    "stop",
    "stop_token_ids",
    "structured_outputs",
    "temperature",
    "top_k",
    "top_logprobs",
    "top_p",
    "truncate_prompt_tokens",
    "use_beam_search",
];

/// What a request says.
#[derive(Debug, Default)]
pub(super) struct Request {
    pub(super) model: Option<String>,
    /// Prompt ids that the client sent.
    pub(super) prompt_ids: Option<Vec<i32>>,
    pub(super) temperature: Option<String>,
    pub(super) top_p: Option<String>,
    pub(super) top_k: Option<i64>,
    pub(super) max_tokens: Option<i64>,
    pub(super) seed: Option<i64>,
    /// All sampling parameters as a JSON object, in the order of the request.
    pub(super) sampling: Option<String>,
}

/// Reads a request; a parameter of another type than its own stays in the request alone.
pub(super) fn request(text: &str) -> Parse<Request> {
    let mut request = Request::default();
    let mut sampling = Vec::new();
    each_member(&mut Cursor::new(text), |cursor, key| {
        match key {
            "model" if cursor.peek() == Some(b'"') => {
                request.model = Some(cursor.string()?.into_owned());
            }
            "prompt" | "input_ids" | "token_ids" => request.prompt_ids = client_ids(cursor.skip()?),
            "sampling_params" | "extra_body" => {
                each_member(cursor, |cursor, key| {
                    let value = cursor.skip()?;
                    sampling.push((Cow::Owned(key.to_owned()), value));
                    Ok(())
                })?;
            }
            _ => {
                let value = cursor.skip()?;
                if SAMPLING.contains(&key) {
                    sampling.push((Cow::Owned(key.to_owned()), value));
                }
            }
        }
        Ok(())
    })?;
    request.parameters(&sampling);
    Ok(request)
}

/// Reads a flat list of ids; texts and lists of prompts are none.
fn client_ids(text: &str) -> Option<Vec<i32>> {
    let mut ids = Vec::new();
    if !text.starts_with('[') {
        return None;
    }
    Cursor::new(text).ids(&mut ids, id).ok()?;
    Some(ids).filter(|ids| !ids.is_empty())
}

impl Request {
    fn parameters(&mut self, sampling: &[(Cow<'_, str>, &str)]) {
        let mut out = String::from("{");
        for (key, value) in sampling {
            if out.len() > 1 {
                out.push(',');
            }
            quote(key, &mut out);
            out.push(':');
            compact(value, &mut out);
            let cursor = || Cursor::new(value);
            let number = || double(&mut cursor()).ok().map(|_| (*value).to_owned());
            match key.as_ref() {
                "temperature" => self.temperature = number(),
                "top_p" => self.top_p = number(),
                "top_k" => self.top_k = int(&mut cursor()).ok().map(i64::from),
                "max_completion_tokens" | "max_tokens" | "max_new_tokens" => {
                    self.max_tokens = self.max_tokens.or(int(&mut cursor()).ok().map(i64::from));
                }
                "seed" | "sampling_seed" => self.seed = long(&mut cursor()).ok(),
                _ => {}
            }
        }
        out.push('}');
        self.sampling = (!sampling.is_empty()).then_some(out);
    }
}
