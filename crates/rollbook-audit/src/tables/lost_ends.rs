//! Outputs that lack their end, which the next prompt has right behind them.
//!
//! ```text
//! calls: stopped, no end id at the output's end; a child that extends the context by something    no token is read
//!   any (open_end) -> the children's prompts are read once: is the token behind the context an end id?
//! ```

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, Int32Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use futures::future::BoxFuture;
use futures::{FutureExt, TryStreamExt};
use rollbook_query::{Result, Session};

use super::tokens::{ids, integers, list, text};
use super::{Origin, quoted};

pub(super) fn schema() -> SchemaRef {
    let field = |name: &str, kind: DataType| Field::new(name, kind, true);
    Arc::new(Schema::new(vec![
        field("run_id", DataType::Utf8),
        field("call_id", DataType::Utf8),
        field("next_call_id", DataType::Utf8),
        field("token", DataType::Int32),
    ]))
}

/// An output without its end.
struct Open {
    call: String,
    /// Tokens of prompt and output.
    context: usize,
    /// What would end it.
    ends: Vec<i32>,
}

/// An end that stands in the next prompt: run, call, next call, token.
type Lost = (String, String, String, i32);

/// Looks into the next prompts, given the rows of `open_end`.
pub(super) fn rows(origin: Origin, read: Vec<Vec<RecordBatch>>) -> BoxFuture<'static, Result<Vec<RecordBatch>>> {
    async move {
        let mut found: Vec<Lost> = Vec::new();
        let open = open(&read.concat())?;
        if !open.is_empty() {
            let session = origin.session().await?;
            for (run, open) in &open {
                closed(&session, run, open, &mut found).await?;
            }
        }
        let text = |value: fn(&Lost) -> &String| -> ArrayRef {
            Arc::new(found.iter().map(|row| Some(value(row))).collect::<StringArray>())
        };
        let tokens: Int32Array = found.iter().map(|row| Some(row.3)).collect();
        let columns = vec![text(|row| &row.0), text(|row| &row.1), text(|row| &row.2), Arc::new(tokens)];
        Ok(vec![RecordBatch::try_new(schema(), columns)?])
    }
    .boxed()
}

/// By run and next call, the outputs that lack an end.
fn open(read: &[RecordBatch]) -> Result<BTreeMap<String, HashMap<String, Open>>> {
    let mut open: BTreeMap<String, HashMap<String, Open>> = BTreeMap::new();
    for batch in read {
        let (runs, next, calls) = (text(batch, "run_id")?, text(batch, "next_call_id")?, text(batch, "call_id")?);
        let (contexts, ends) = (integers(batch, "context")?, list(batch, "eos_token_ids")?);
        for row in (0..batch.num_rows()).filter(|row| next.is_valid(*row) && calls.is_valid(*row)) {
            let entry = Open {
                call: calls.value(row).to_owned(),
                context: usize::try_from(contexts.value(row)).unwrap_or(0),
                ends: ids(&ends, row)?,
            };
            open.entry(runs.value(row).to_owned()).or_default().insert(next.value(row).to_owned(), entry);
        }
    }
    Ok(open)
}

async fn closed(session: &Session, run: &str, open: &HashMap<String, Open>, found: &mut Vec<Lost>) -> Result<()> {
    let sql = format!("SELECT call_id, prompt_token_ids FROM calls WHERE run_id = {}", quoted(run));
    let mut stream = session.stream(&sql).await?;
    while let Some(batch) = stream.try_next().await? {
        let (calls, prompts) = (text(&batch, "call_id")?, list(&batch, "prompt_token_ids")?);
        for row in (0..batch.num_rows()).filter(|row| calls.is_valid(*row) && prompts.is_valid(*row)) {
            let Some(before) = open.get(calls.value(row)) else { continue };
            if let Some(token) = ids(&prompts, row)?.get(before.context).filter(|token| before.ends.contains(token)) {
                found.push((run.to_owned(), before.call.clone(), calls.value(row).to_owned(), *token));
            }
        }
    }
    Ok(())
}
