//! `parse_differences`: outputs from which a parser took what they do not say.

use arrow::array::{Array, RecordBatch};
use futures::future::BoxFuture;
use futures::{FutureExt, TryStreamExt};
use rollbook_encoding::DecodeFlags;
use rollbook_query::{Result, Session};

use super::super::Origin;
use super::super::tokens::{ids, list, longs, text};
use super::rows::{Said, batch};
use super::template::calls;
use crate::functions::{Text, answer_of, parse_fault};

pub(in crate::tables) fn differences(
    origin: Origin,
    _read: Vec<Vec<RecordBatch>>,
) -> BoxFuture<'static, Result<Vec<RecordBatch>>> {
    async move {
        let session = origin.session().await?;
        let sql = "SELECT run_id, step, group_id, rollout_id, call_id, call_index, parent_call_id, parent_prefix_len,
                encoding_id, output_token_ids, output_text, parsed, response, choice_index, parse_error
             FROM calls
             WHERE (parsed IS NOT NULL OR response IS NOT NULL)
                 AND (output_text IS NOT NULL OR (output_len IS NOT NULL AND encoding_id IS NOT NULL))";
        let mut said = Vec::new();
        let mut rows = session.stream(sql).await?;
        while let Some(rows) = rows.try_next().await? {
            judge(&session, &rows, &mut said)?;
        }
        Ok(vec![batch(&said)?])
    }
    .boxed()
}

fn judge(session: &Session, rows: &RecordBatch, said: &mut Vec<Said>) -> Result<()> {
    let column = |name| text(rows, name);
    let (encodings, texts, errors) = (column("encoding_id")?, column("output_text")?, column("parse_error")?);
    let (parsed, responses, choices) = (column("parsed")?, column("response")?, longs(rows, "choice_index")?);
    let outputs = list(rows, "output_token_ids")?;
    let value =
        |column: &arrow::array::StringArray, row: usize| column.is_valid(row).then(|| column.value(row).to_owned());
    for (row, call) in calls(rows)?.into_iter().enumerate() {
        let choice = if choices.is_valid(row) { choices.value(row) } else { 0 };
        let Some(answer) = answer_of(value(&parsed, row).as_deref(), value(&responses, row).as_deref(), choice) else {
            continue;
        };
        let output = ids(&outputs, row)?;
        let spelled = match value(&encodings, row).filter(|_| outputs.is_valid(row)) {
            Some(encoding) => spell(session, &encoding, &output)?,
            None => None,
        };
        let (text, shown, is_whole) = match (spelled, value(&texts, row)) {
            (Some((text, shown)), _) => (text, shown, true),
            (None, Some(text)) => (text.clone(), text, false),
            (None, None) => continue,
        };
        let text = Text { text: &text, shown: &shown, is_whole };
        if let Some(fault) = parse_fault(text, &answer, errors.is_valid(row)) {
            said.push(Said {
                call,
                kind: fault.place,
                position: None,
                expected: Some(fault.expected),
                observed: Some(fault.observed),
                reason: None,
            });
        }
    }
    Ok(())
}

/// The whole text of an output, with special tokens and without; none without its tokenizer.
fn spell(session: &Session, encoding_id: &str, output: &[i32]) -> Result<Option<(String, String)>> {
    let encodings = session.encodings();
    let Some(encoding) = encodings.encoding(encoding_id)? else {
        return Ok(None);
    };
    // A file that is no tokenizer is told by token/template; here it is a tokenizer that is not there.
    let Ok(Some(tokenizer)) = encodings.tokenizer(&encoding) else {
        return Ok(None);
    };
    let spell =
        |skip_special_tokens| tokenizer.decode(output, DecodeFlags { skip_special_tokens, is_streamed: false }).ok();
    Ok(spell(false).zip(spell(true)))
}
