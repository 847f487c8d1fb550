//! Trainer rows in which a call's trained tokens follow other tokens than those the call saw.
//!
//! ```text
//! rows:  digest of what precedes each call's trained tokens        (row_context)
//! calls: prompt_len, prompt_digest, output                         no prompt is read
//!   differ (row_prefix_suspect) -> the row and the call's prompt are read, and the first difference is looked up
//! ```

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Int32Array, Int64Array, RecordBatch, StringArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use futures::future::BoxFuture;
use futures::{FutureExt, TryStreamExt};
use rollbook_query::{Error, Result, Session};

use super::tokens::{CallKey, CallTokens, column, ids, integers, list, longs, text, tokens_of};
use super::{Origin, quoted};
use crate::functions::{CallUse, Row, int, uses_of};

/// Tokens of rows held at once.
const HELD: usize = 16 << 20;
/// Rows named in one scan.
const NAMED: usize = 1000;

pub(super) fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("run_id", DataType::Utf8, true),
        Field::new("step", DataType::Int64, true),
        Field::new("rollout_id", DataType::Utf8, true),
        Field::new("call_id", DataType::Utf8, true),
        Field::new("build_id", DataType::Utf8, true),
        Field::new("row_index", DataType::Int32, true),
        Field::new("position", DataType::Int32, true),
        Field::new("trained_at", DataType::Int32, true),
    ]))
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
            let indexes: Vec<Option<i32>> = by_row.keys().copied().collect();
            for chunk in indexes.chunks(NAMED) {
                locate(&session, run, build.as_deref(), chunk, by_row, &mut found).await?;
            }
        }
        Ok(vec![rows(&found)?])
    }
    .boxed()
}

/// The accused calls of a build, by row index.
type ByRow = BTreeMap<Option<i32>, BTreeSet<String>>;

fn accused(suspects: &[RecordBatch]) -> Result<BTreeMap<(String, Option<String>), ByRow>> {
    let mut accused: BTreeMap<(String, Option<String>), ByRow> = BTreeMap::new();
    for batch in suspects {
        let (runs, builds, calls) = (text(batch, "run_id")?, text(batch, "build_id")?, text(batch, "call_id")?);
        let indexes = integers(batch, "row_index")?;
        for row in 0..batch.num_rows() {
            let build = builds.is_valid(row).then(|| builds.value(row).to_owned());
            let index = indexes.is_valid(row).then(|| indexes.value(row));
            let by_row = accused.entry((runs.value(row).to_owned(), build)).or_default();
            by_row.entry(index).or_default().insert(calls.value(row).to_owned());
        }
    }
    Ok(accused)
}

/// A row that holds an accused call.
struct Held {
    step: Option<i64>,
    index: Option<i32>,
    tokens: Vec<i32>,
    row: Row,
}

struct Break {
    run: String,
    step: Option<i64>,
    rollout: Option<String>,
    call: String,
    build: Option<String>,
    index: Option<i32>,
    position: usize,
    trained_at: usize,
}

/// Reads the accused rows of a build and the calls they use, and looks up where they part.
async fn locate(
    session: &Session,
    run: &str,
    build: Option<&str>,
    indexes: &[Option<i32>],
    accused: &ByRow,
    found: &mut Vec<Break>,
) -> Result<()> {
    let mut stream = session.stream(&scan(run, build, indexes)).await?;
    let mut held: Vec<Held> = Vec::new();
    let mut tokens = 0;
    while let Some(batch) = stream.try_next().await? {
        for held_row in read(&batch)? {
            tokens += held_row.tokens.len();
            held.push(held_row);
        }
        if tokens > HELD {
            judge(session, run, build, &std::mem::take(&mut held), accused, found).await?;
            tokens = 0;
        }
    }
    judge(session, run, build, &held, accused, found).await
}

fn scan(run: &str, build: Option<&str>, indexes: &[Option<i32>]) -> String {
    let build = build.map_or_else(|| "build_id IS NULL".to_owned(), |build| format!("build_id = {}", quoted(build)));
    let named: Vec<String> = indexes.iter().flatten().map(ToString::to_string).collect();
    let mut places = Vec::new();
    if !named.is_empty() {
        places.push(format!("row_index IN ({})", named.join(", ")));
    }
    if indexes.contains(&None) {
        places.push("row_index IS NULL".to_owned());
    }
    format!(
        "SELECT step, row_index, token_ids, segments, row_mask(action_mask, mask_convention) AS action_mask FROM samples \
         WHERE run_id = {} AND {build} AND ({}) AND segments IS NOT NULL AND token_ids IS NOT NULL \
         AND NOT coalesce(is_pad, false)",
        quoted(run),
        places.join(" OR ")
    )
}

fn read(batch: &RecordBatch) -> Result<Vec<Held>> {
    let (steps, indexes) = (longs(batch, "step")?, integers(batch, "row_index")?);
    let (tokens, segments) = (list(batch, "token_ids")?, list(batch, "segments")?);
    let masks = column(batch, "action_mask")?;
    let masks = masks.as_list_opt::<i32>().ok_or_else(|| Error::corrupt("action_mask holds no lists"))?;
    let mut rows = Vec::with_capacity(batch.num_rows());
    for row in 0..batch.num_rows() {
        let mask: Option<BooleanArray> = if masks.is_valid(row) {
            Some(cast(&masks.value(row), &DataType::Boolean)?.as_boolean().clone())
        } else {
            None
        };
        rows.push(Held {
            step: steps.is_valid(row).then(|| steps.value(row)),
            index: indexes.is_valid(row).then(|| indexes.value(row)),
            tokens: ids(&tokens, row)?,
            row: Row::read(&segments.value(row), mask)?,
        });
    }
    Ok(rows)
}

async fn judge(
    session: &Session,
    run: &str,
    build: Option<&str>,
    held: &[Held],
    accused: &ByRow,
    found: &mut Vec<Break>,
) -> Result<()> {
    let key = |used: &CallUse| CallKey { run: run.to_owned(), rollout: None, call: used.call.clone() };
    let is_accused =
        |held: &Held, used: &CallUse| accused.get(&held.index).is_some_and(|calls| calls.contains(&used.call));
    let mut keys = BTreeSet::new();
    for held in held {
        let (_, uses) = uses_of(&held.row);
        keys.extend(uses.iter().filter(|used| is_accused(held, used)).map(key));
    }
    let keys: Vec<CallKey> = keys.into_iter().collect();
    let mut calls = HashMap::new();
    for chunk in keys.chunks(NAMED) {
        calls.extend(tokens_of(session, chunk).await?);
    }
    for held in held {
        let (sequences, uses) = uses_of(&held.row);
        for used in uses.iter().filter(|used| is_accused(held, used)) {
            let (Some(pieces), Some(call)) = (sequences.get(&used.sequence), calls.get(&key(used))) else {
                continue;
            };
            if let Some((position, trained_at)) = first_break(&held.tokens, &pieces.places(), used, call) {
                found.push(Break {
                    run: run.to_owned(),
                    step: held.step,
                    rollout: used.rollout.clone(),
                    call: used.call.clone(),
                    build: build.map(str::to_owned),
                    index: held.index,
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
    let steps: Int64Array = found.iter().map(|found| found.step).collect();
    let columns = vec![
        text(|found| Some(&found.run)),
        Arc::new(steps),
        text(|found| found.rollout.as_deref()),
        text(|found| Some(&found.call)),
        text(|found| found.build.as_deref()),
        number(|found| found.index),
        number(|found| Some(int(found.position))),
        number(|found| Some(int(found.trained_at))),
    ];
    Ok(RecordBatch::try_new(schema(), columns)?)
}
