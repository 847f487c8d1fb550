//! Trainer rows in which a call's trained tokens follow other tokens than those the call saw.
//!
//! ```text
//! rows:  digest of what precedes each call's trained tokens        (row_context)
//! calls: prompt_len, prompt_digest, output                         no prompt is read
//!   differ (row_prefix_suspect) -> the row and the call's prompt are read, and the first difference is looked up
//! ```

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use arrow::array::{ArrayRef, Int32Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use futures::FutureExt;
use futures::future::BoxFuture;
use rollbook_query::Result;

use super::Origin;
use super::accused::{AccusedRows, ByRow, Held, NAMED, Place, RowKey, accused};
use super::tokens::{CallKey, CallTokens, tokens_of};
use crate::functions::{CallUse, int, uses_of};

pub(super) fn schema() -> SchemaRef {
    let mut fields = RowKey::fields();
    fields.extend(["run_id", "rollout_id", "call_id", "build_id"].map(|name| Field::new(name, DataType::Utf8, true)));
    fields.extend(["position", "trained_at"].map(|name| Field::new(name, DataType::Int32, true)));
    Arc::new(Schema::new(fields))
}

/// Looks up the places, given the rows of `row_prefix_suspect`.
pub(super) fn breaks(origin: Origin, read: Vec<Vec<RecordBatch>>) -> BoxFuture<'static, Result<Vec<RecordBatch>>> {
    async move {
        let accused = accused(&read.concat())?;
        let mut found = Vec::new();
        if accused.is_empty() {
            return Ok(vec![rows(&found)?]);
        }
        let session = origin.session().await?;
        for ((run, build), by_row) in &accused {
            let place = Place { session: &session, run, build: build.as_deref() };
            locate(&place, by_row, &mut found).await?;
        }
        Ok(vec![rows(&found)?])
    }
    .boxed()
}

struct Break {
    run: String,
    key: RowKey,
    rollout: Option<String>,
    call: String,
    build: Option<String>,
    position: usize,
    trained_at: usize,
}

/// Reads the accused rows of a build and the calls they use, and looks up where they part.
async fn locate(place: &Place<'_>, accused: &ByRow, found: &mut Vec<Break>) -> Result<()> {
    let mut rows = AccusedRows::open(place, accused, false).await?;
    while let Some(held) = rows.next().await? {
        judge(place, &held, accused, found).await?;
    }
    Ok(())
}

async fn judge(place: &Place<'_>, held: &[Held], accused: &ByRow, found: &mut Vec<Break>) -> Result<()> {
    let Place { session, run, build } = *place;
    let key = |used: &CallUse| CallKey { run: run.to_owned(), rollout: None, call: used.call.clone() };
    let mut keys = BTreeSet::new();
    for held in held {
        let (_, uses) = uses_of(&held.row);
        keys.extend(uses.iter().filter(|used| held.is_accused(accused, &used.call)).map(key));
    }
    let keys: Vec<CallKey> = keys.into_iter().collect();
    let mut calls = HashMap::new();
    for chunk in keys.chunks(NAMED) {
        calls.extend(tokens_of(session, chunk).await?);
    }
    for held in held {
        let (sequences, uses) = uses_of(&held.row);
        for used in uses.iter().filter(|used| held.is_accused(accused, &used.call)) {
            let (Some(pieces), Some(call)) = (sequences.get(&used.sequence), calls.get(&key(used))) else {
                continue;
            };
            if let Some((position, trained_at)) = first_break(&held.tokens, &pieces.places(), used, call) {
                found.push(Break {
                    run: run.to_owned(),
                    key: held.key,
                    rollout: used.rollout.clone(),
                    call: used.call.clone(),
                    build: build.map(str::to_owned),
                    position,
                    trained_at,
                });
            }
        }
    }
    Ok(())
}

/// The first trained token that follows other tokens than it did: the row offsets of the difference and of the token.
fn first_break(tokens: &[i32], places: &[usize], used: &CallUse, call: &CallTokens) -> Option<(usize, usize)> {
    let prompt = call.prompt.len();
    let mut sequence: Vec<i32> = places.iter().map(|at| tokens.get(*at).copied().unwrap_or(i32::MIN)).collect();
    // The call's own trained tokens are another check's question.
    for token in used.tokens() {
        let own = call.output.get(token.offset);
        let stands = token.in_sequence == prompt + token.offset;
        if let (Some(slot), Some(own), true) = (sequence.get_mut(token.in_sequence), own, stands) {
            *slot = *own;
        }
    }
    let context = call.context(usize::MAX);
    let shared = sequence.iter().zip(&context).take_while(|(seen, own)| seen == own).count();
    let wrong = used.tokens().find(|token| token.in_sequence != prompt + token.offset || token.in_sequence > shared)?;
    let position = shared.min(wrong.in_sequence).min(prompt + wrong.offset);
    Some((places.get(position).copied().unwrap_or(wrong.in_row), wrong.in_row))
}

fn rows(found: &[Break]) -> Result<RecordBatch> {
    let text =
        |value: fn(&Break) -> Option<&str>| -> ArrayRef { Arc::new(found.iter().map(value).collect::<StringArray>()) };
    let number =
        |value: fn(&Break) -> Option<i32>| -> ArrayRef { Arc::new(found.iter().map(value).collect::<Int32Array>()) };
    let keys: Vec<RowKey> = found.iter().map(|found| found.key).collect();
    let mut columns = RowKey::columns(&keys);
    columns.extend([
        text(|found| Some(&found.run)),
        text(|found| found.rollout.as_deref()),
        text(|found| Some(&found.call)),
        text(|found| found.build.as_deref()),
        number(|found| Some(int(found.position))),
        number(|found| Some(int(found.trained_at))),
    ]);
    Ok(RecordBatch::try_new(schema(), columns)?)
}
