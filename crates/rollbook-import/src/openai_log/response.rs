//! The response of a chat or completions server: vLLM, `SGLang`'s `OpenAI` routes, `LiteLLM`.

use crate::json::{Cursor, Fault, Parse, compact, quote};

use super::sglang;
use super::wire::{
    Choice, Response, Usage, each_member, ids_or_null, int_or_null, logprob, long_or_null, text_or_null, value,
    versions,
};

/// Reads a response of any server.
pub(super) fn response(text: &str) -> Parse<Response> {
    let mut cursor = Cursor::new(text);
    match cursor.peek() {
        Some(b'[') => sglang::list(&mut cursor),
        Some(b'{') => object(&mut cursor),
        _ => Err(Fault::new("a response that is neither an object nor a list")),
    }
}

/// Reads one response object.
pub(super) fn object(cursor: &mut Cursor<'_>) -> Parse<Response> {
    let mut response = Response::default();
    let mut native = sglang::Native::default();
    each_member(cursor, |cursor, key| {
        match key {
            "object" => response.protocol = protocol(text_or_null(cursor)?.as_deref())?,
            "id" => response.id = text_or_null(cursor)?,
            "model" => response.model = text_or_null(cursor)?,
            "prompt_token_ids" => response.prompt_ids = ids_or_null(cursor)?,
            "usage" => response.usage = usage(cursor)?,
            "metadata" => each_member(cursor, |cursor, key| {
                if matches!(key, "weight_version" | "weight_versions") {
                    return versions(cursor, &mut response.versions);
                }
                cursor.skip().map(drop)
            })?,
            "sglext" => each_member(cursor, |cursor, key| {
                match key {
                    "input_ids" => native.input_ids = ids_or_null(cursor)?,
                    "output_ids" => native.output_ids = ids_or_null(cursor)?,
                    _ => drop(cursor.skip()?),
                }
                Ok(())
            })?,
            "choices" if cursor.peek() == Some(b'[') => cursor.array(|cursor, _| {
                response.choices.push(choice(cursor, &mut response.protocol)?);
                Ok(())
            })?,
            _ => native.member(cursor, key)?,
        }
        Ok(())
    })?;
    Ok(native.join(response))
}

/// Names the protocol of an `object` field, and refuses a chunk of a stream.
fn protocol(object: Option<&str>) -> Parse<Option<&'static str>> {
    match object {
        Some("chat.completion") => Ok(Some("chat.completions")),
        Some("text_completion") => Ok(Some("completions")),
        Some("chat.completion.chunk") => Err(Fault::new("a chunk of a stream; log the assembled response")),
        _ => Ok(None),
    }
}

fn usage(cursor: &mut Cursor<'_>) -> Parse<Usage> {
    let mut usage = Usage::default();
    each_member(cursor, |cursor, key| {
        match key {
            "prompt_tokens" => usage.prompt = int_or_null(cursor)?,
            "completion_tokens" => usage.output = int_or_null(cursor)?,
            "prompt_tokens_details" => each_member(cursor, |cursor, key| {
                if key == "cached_tokens" {
                    usage.cached = int_or_null(cursor)?;
                    return Ok(());
                }
                cursor.skip().map(drop)
            })?,
            _ => drop(cursor.skip()?),
        }
        Ok(())
    })?;
    Ok(usage)
}

fn choice(cursor: &mut Cursor<'_>, protocol: &mut Option<&'static str>) -> Parse<Choice> {
    let mut choice = Choice { is_plain: true, ..Choice::default() };
    let mut given = None;
    let mut read = |cursor: &mut Cursor<'_>, key: &str| {
        match key {
            "index" => choice.index = int_or_null(cursor)?,
            "prompt_token_ids" => choice.prompt_ids = ids_or_null(cursor)?,
            "token_ids" => choice.ids = ids_or_null(cursor)?,
            "response_token_ids" => given = given.take().or(ids_or_null(cursor)?),
            "provider_specific_fields" => each_member(cursor, |cursor, key| {
                match key {
                    "token_ids" => given = given.take().or(ids_or_null(cursor)?),
                    "prompt_token_ids" if choice.prompt_ids.is_none() => {
                        choice.prompt_ids = ids_or_null(cursor)?;
                    }
                    _ => drop(cursor.skip()?),
                }
                Ok(())
            })?,
            "message" => {
                protocol.get_or_insert("chat.completions");
                message(cursor, &mut choice)?;
            }
            "delta" => {
                return Err(Fault::new("a chunk of a stream; log the assembled response"));
            }
            "text" => {
                protocol.get_or_insert("completions");
                choice.text = text_or_null(cursor)?;
            }
            "logprobs" => logprobs(cursor, &mut choice)?,
            "finish_reason" => finish_reason(cursor, &mut choice)?,
            "stop_reason" | "matched_stop" => stop(cursor, &mut choice)?,
            "is_selected" => choice.is_selected = value(cursor)?.map(|text| text == "true"),
            "weight_version" | "weight_versions" => versions(cursor, &mut choice.versions)?,
            _ => drop(cursor.skip()?),
        }
        Ok(())
    };
    if cursor.peek() != Some(b'{') {
        return Err(Fault::new("a choice that is no object"));
    }
    each_member(cursor, &mut read)?;
    choice.ids = choice.ids.or(given);
    Ok(choice)
}

/// Reads the message: its content is the text, and where it is more than that, the rest is what was parsed.
fn message(cursor: &mut Cursor<'_>, choice: &mut Choice) -> Parse<()> {
    let mut parsed = String::from("{");
    let mut is_more = false;
    each_member(cursor, |cursor, key| {
        if key == "content" && cursor.peek() == Some(b'"') {
            choice.text = Some(cursor.clone().string()?.into_owned());
        }
        let Some(text) = value(cursor)?.filter(|text| key != "role" && *text != "[]") else {
            return Ok(());
        };
        is_more |= key != "content" || choice.text.is_none();
        if parsed.len() > 1 {
            parsed.push(',');
        }
        quote(key, &mut parsed);
        parsed.push(':');
        compact(text, &mut parsed);
        Ok(())
    })?;
    parsed.push('}');
    choice.parsed = is_more.then_some(parsed);
    Ok(())
}

/// Reads why the output ended: a word, or `SGLang`'s object of type and what matched.
pub(super) fn finish_reason(cursor: &mut Cursor<'_>, choice: &mut Choice) -> Parse<()> {
    if cursor.peek() != Some(b'{') {
        choice.finish_reason = text_or_null(cursor)?;
        return Ok(());
    }
    each_member(cursor, |cursor, key| {
        match key {
            "type" => choice.finish_reason = text_or_null(cursor)?,
            "matched" => stop(cursor, choice)?,
            _ => drop(cursor.skip()?),
        }
        Ok(())
    })
}

/// Reads what stopped the output: a token id or a string.
fn stop(cursor: &mut Cursor<'_>, choice: &mut Choice) -> Parse<()> {
    match cursor.peek() {
        Some(b'"') => choice.stop_string = text_or_null(cursor)?,
        Some(b'-' | b'0'..=b'9') => choice.stop_token = int_or_null(cursor)?,
        _ => drop(cursor.skip()?),
    }
    Ok(())
}

/// The logprobs of a choice as they are read.
#[derive(Default)]
struct Read {
    logprobs: Option<Vec<Option<f64>>>,
    ids: Vec<i32>,
    tokens: usize,
    is_rich: bool,
}

fn logprobs(cursor: &mut Cursor<'_>, choice: &mut Choice) -> Parse<()> {
    let mut read = Read::default();
    each_member(cursor, |cursor, key| {
        match key {
            "content" if cursor.peek() == Some(b'[') => {
                read.logprobs = Some(Vec::new());
                cursor.array(|cursor, _| content_item(cursor, &mut read))?;
            }
            "token_logprobs" if cursor.peek() == Some(b'[') => {
                let mut list = Vec::new();
                cursor.array(|cursor, _| {
                    list.push(logprob(cursor)?);
                    Ok(())
                })?;
                read.logprobs = Some(list);
            }
            "tokens" if cursor.peek() == Some(b'[') => {
                cursor.array(|cursor, _| token(cursor, &mut read))?;
            }
            "top_logprobs" => read.is_rich |= is_rich(cursor.skip()?),
            _ => drop(cursor.skip()?),
        }
        Ok(())
    })?;
    choice.is_plain = !read.is_rich && read.ids.len() == read.tokens;
    let is_whole = read.tokens > 0 && read.ids.len() == read.tokens;
    choice.logprob_ids = is_whole.then_some(read.ids);
    choice.logprobs = read.logprobs;
    Ok(())
}

/// Says whether a `top_logprobs` value holds anything.
fn is_rich(text: &str) -> bool {
    text.bytes().any(|byte| byte == b'{')
}

fn content_item(cursor: &mut Cursor<'_>, read: &mut Read) -> Parse<()> {
    let before = read.tokens;
    let mut value = None;
    let mut id = None;
    each_member(cursor, |cursor, key| {
        match key {
            "logprob" => value = logprob(cursor)?,
            "token" => token(cursor, read)?,
            "token_id" => id = long_or_null(cursor)?,
            "top_logprobs" => read.is_rich |= is_rich(cursor.skip()?),
            _ => drop(cursor.skip()?),
        }
        Ok(())
    })?;
    if read.tokens == before {
        read.tokens += 1;
        read.ids.extend(id.and_then(|id| i32::try_from(id).ok()));
    }
    read.logprobs.get_or_insert_default().push(value);
    Ok(())
}

/// Reads a token's text; one written `token_id:N` is an id.
fn token(cursor: &mut Cursor<'_>, read: &mut Read) -> Parse<()> {
    read.tokens += 1;
    if !cursor.null()? {
        let text = crate::row::text(cursor)?;
        read.ids.extend(text.strip_prefix("token_id:").and_then(|id| id.parse::<i32>().ok()));
    }
    Ok(())
}
