//! `text_differences`: outputs whose text is not what their tokens spell.

use arrow::array::{Array, RecordBatch, StringArray};
use futures::future::BoxFuture;
use futures::{FutureExt, TryStreamExt};
use rollbook_encoding::{DecodeFlags, Tokenizer, text_position};
use rollbook_query::{Encoding, Result, Session};

use super::super::Origin;
use super::super::tokens::{ids, list, text};
use super::parts::Parts;
use super::rows::{Said, batch};
use super::template::calls;

/// Characters of a text that a difference shows.
const SHOWN: usize = 40;

pub(in crate::tables) fn differences(
    origin: Origin,
    _read: Vec<Vec<RecordBatch>>,
) -> BoxFuture<'static, Result<Vec<RecordBatch>>> {
    async move {
        let session = origin.session().await?;
        let mut names = Vec::new();
        for (id, encoding) in session.encodings().all()? {
            if Parts::of(session.encodings(), &encoding)?.has_tokenizer {
                names.push(super::super::quoted(&id));
            }
        }
        let mut said = Vec::new();
        if !names.is_empty() {
            let sql = format!(
                "SELECT run_id, step, group_id, rollout_id, call_id, call_index, parent_call_id, parent_prefix_len,
                    encoding_id, output_token_ids, output_text, stop_string
                 FROM calls
                 WHERE output_len IS NOT NULL AND output_text IS NOT NULL AND encoding_id IN ({})
                     AND NOT coalesce(holds_parsed(parsed, response, choice_index), false)",
                names.join(", ")
            );
            let mut rows = session.stream(&sql).await?;
            while let Some(rows) = rows.try_next().await? {
                judge(&session, &rows, &mut said)?;
            }
        }
        Ok(vec![batch(&said)?])
    }
    .boxed()
}

fn judge(session: &Session, rows: &RecordBatch, said: &mut Vec<Said>) -> Result<()> {
    let (encodings, texts, stops) =
        (text(rows, "encoding_id")?, text(rows, "output_text")?, text(rows, "stop_string")?);
    let outputs = list(rows, "output_token_ids")?;
    for (row, call) in calls(rows)?.into_iter().enumerate() {
        let Some(encoding) = session.encodings().encoding(encodings.value(row))? else {
            continue;
        };
        let Some(tokenizer) = session.encodings().tokenizer(&encoding)? else {
            continue;
        };
        let output = ids(&outputs, row)?;
        let stop = value(&stops, row);
        let spelled = spell(&tokenizer, &encoding, &output, texts.value(row), stop);
        match spelled {
            Ok(None) => {}
            Ok(Some((position, expected, observed))) => said.push(Said {
                call,
                kind: "text",
                position: Some(position),
                expected: Some(expected),
                observed: Some(observed),
                reason: None,
            }),
            Err(error) => said.push(Said {
                call,
                kind: "failed",
                position: None,
                expected: None,
                observed: None,
                reason: Some(error.to_string()),
            }),
        }
    }
    Ok(())
}

fn value(column: &StringArray, row: usize) -> Option<&str> {
    column.is_valid(row).then(|| column.value(row)).filter(|text| !text.is_empty())
}

/// A difference: the output token, what it spells, what the text says.
type Place = (usize, String, String);

/// Compares an output's text with what its tokens spell, in every way in which a server may have made it.
fn spell(
    tokenizer: &Tokenizer,
    encoding: &Encoding,
    output: &[i32],
    text: &str,
    stop: Option<&str>,
) -> rollbook_encoding::Result<Option<Place>> {
    let declared = encoding.detokenizer_flags.get("skip_special_tokens").and_then(serde_json::Value::as_bool);
    let mut furthest: Option<Place> = None;
    for skip_special_tokens in declared.map_or_else(|| vec![true, false], |declared| vec![declared]) {
        for is_streamed in [false, true] {
            let spelled = tokenizer.decode(output, DecodeFlags { skip_special_tokens, is_streamed })?;
            if is_text(tokenizer, output, &spelled, text, stop) {
                return Ok(None);
            }
        }
        let position = text_position(tokenizer, output, text, skip_special_tokens)?.unwrap_or(output.len());
        if furthest.as_ref().is_none_or(|(known, _, _)| *known < position) {
            let flags = DecodeFlags { skip_special_tokens, is_streamed: false };
            let spelled = tokenizer.decode(output, flags)?;
            let before = tokenizer.decode(output.get(..position).unwrap_or(output), flags)?;
            let start = before.trim_end_matches('\u{fffd}').len();
            furthest = Some((position, piece(&spelled, start), piece(text, start)));
        }
    }
    Ok(furthest)
}

fn is_text(tokenizer: &Tokenizer, output: &[i32], spelled: &str, text: &str, stop: Option<&str>) -> bool {
    if spelled == text {
        return true;
    }
    // A server ends the text before the string that stopped it, though the last token may go beyond.
    if let (Some(stop), Some(rest)) = (stop, spelled.strip_prefix(text))
        && (rest.starts_with(stop) || text.ends_with(stop))
    {
        return true;
    }
    // A server decodes behind the prompt, where a word's leading space is kept; alone, such a decoder drops it.
    let first = output.first().and_then(|id| tokenizer.token_of(*id)).unwrap_or_default();
    first.starts_with('\u{2581}') && text.strip_prefix(' ') == Some(spelled)
}

fn piece(text: &str, start: usize) -> String {
    let mut start = start.min(text.len());
    while !text.is_char_boundary(start) {
        start -= 1;
    }
    text[start..].chars().take(SHOWN).collect()
}
