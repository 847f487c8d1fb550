//! `SGLang`'s own `/generate` response: text, `output_ids` and `meta_info`.

use crate::json::{Cursor, Fault, Parse};

use super::response::{finish_reason, object};
use super::wire::{
    Choice, Response, Usage, Versions, each_member, ids_or_null, int_or_null, logprob, text_or_null, versions,
};

/// The members of a native response, which may turn out to be none.
#[derive(Default)]
pub(super) struct Native {
    pub(super) input_ids: Option<Vec<i32>>,
    pub(super) output_ids: Option<Vec<i32>>,
    text: Option<String>,
    meta: Option<Meta>,
}

/// A list of tokens with their logprobs.
struct Triples {
    logprobs: Vec<Option<f64>>,
    ids: Vec<i32>,
    has_text: bool,
}

/// `meta_info`.
#[derive(Default)]
struct Meta {
    id: Option<String>,
    usage: Usage,
    versions: Versions,
    ended: Choice,
    output: Option<Triples>,
    input: Option<Vec<i32>>,
}

/// Reads a list of native responses, one a choice.
pub(super) fn list(cursor: &mut Cursor<'_>) -> Parse<Response> {
    let mut joined = Response { is_list: true, ..Response::default() };
    cursor.array(|cursor, index| {
        if cursor.peek() != Some(b'{') {
            return Err(Fault::new("a response that is no object"));
        }
        let one = object(cursor)?;
        if one.protocol != Some("sglang.generate") {
            return Err(Fault::new("a list of parts, perhaps of a stream; log the assembled response"));
        }
        joined.protocol = one.protocol;
        joined.engine = one.engine;
        joined.prompt_ids = joined.prompt_ids.take().or(one.prompt_ids);
        joined.usage.prompt = joined.usage.prompt.or(one.usage.prompt);
        for mut choice in one.choices {
            choice.index = i64::try_from(index).ok();
            joined.choices.push(choice);
        }
        Ok(())
    })?;
    Ok(joined)
}

impl Native {
    /// Reads a member of the response object if it is one of the native shape.
    pub(super) fn member(&mut self, cursor: &mut Cursor<'_>, key: &str) -> Parse<()> {
        match key {
            "output_ids" => self.output_ids = ids_or_null(cursor)?,
            "text" if cursor.peek() == Some(b'"') => self.text = text_or_null(cursor)?,
            "meta_info" if cursor.peek() == Some(b'{') => self.meta = Some(meta(cursor)?),
            "delta" => {
                return Err(Fault::new("a chunk of a stream; log the assembled response"));
            }
            _ => drop(cursor.skip()?),
        }
        Ok(())
    }

    /// Joins what was read with the rest of the response.
    pub(super) fn join(self, mut response: Response) -> Response {
        let Some(meta) = self.meta.filter(|_| response.choices.is_empty()) else {
            response.prompt_ids = response.prompt_ids.or(self.input_ids);
            if let ([choice], Some(ids)) = (response.choices.as_mut_slice(), self.output_ids) {
                choice.ids = choice.ids.take().or(Some(ids));
            }
            return response;
        };
        response.protocol = Some("sglang.generate");
        response.engine = Some("sglang");
        response.id = response.id.or_else(|| meta.id.clone());
        response.usage = meta.usage;
        response.versions = meta.versions.clone();
        // The input list starts at logprob_start_len, so it is the prompt only where it is as long.
        let whole = meta.input.filter(|ids| i64::try_from(ids.len()).ok() == meta.usage.prompt);
        response.prompt_ids = response.prompt_ids.or(self.input_ids).or(whole);
        let mut choice = meta.ended;
        choice.is_plain = meta.output.as_ref().is_none_or(|output| !output.has_text);
        choice.text = self.text;
        choice.ids = self.output_ids;
        choice.versions = meta.versions;
        choice.usage = Some(meta.usage);
        choice.id = meta.id;
        if let Some(output) = meta.output {
            choice.logprobs = Some(output.logprobs);
            choice.logprob_ids = Some(output.ids);
        }
        response.choices.push(choice);
        response
    }
}

fn meta(cursor: &mut Cursor<'_>) -> Parse<Meta> {
    let mut meta = Meta::default();
    each_member(cursor, |cursor, key| {
        match key {
            "id" => meta.id = text_or_null(cursor)?,
            "prompt_tokens" => meta.usage.prompt = int_or_null(cursor)?,
            "completion_tokens" => meta.usage.output = int_or_null(cursor)?,
            "cached_tokens" => meta.usage.cached = int_or_null(cursor)?,
            "weight_version" | "weight_versions" => versions(cursor, &mut meta.versions)?,
            "finish_reason" => finish_reason(cursor, &mut meta.ended)?,
            "output_token_logprobs" if cursor.peek() == Some(b'[') => {
                meta.output = Some(triples(cursor)?);
            }
            "input_token_logprobs" if cursor.peek() == Some(b'[') => {
                meta.input = Some(triples(cursor)?.ids);
            }
            _ => drop(cursor.skip()?),
        }
        Ok(())
    })?;
    Ok(meta)
}

/// Reads `[[logprob, token_id, text], …]`, and says whether any text stands there.
fn triples(cursor: &mut Cursor<'_>) -> Parse<Triples> {
    let (mut logprobs, mut ids, mut has_text) = (Vec::new(), Vec::new(), false);
    cursor.array(|cursor, _| {
        cursor.array(|cursor, at| {
            match at {
                0 => logprobs.push(logprob(cursor)?),
                1 => ids.push(crate::row::id(cursor)?),
                _ => has_text |= cursor.skip()? != "null",
            }
            Ok(())
        })
    })?;
    Ok(Triples { logprobs, ids, has_text })
}
