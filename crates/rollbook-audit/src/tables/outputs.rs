//! Trained tokens of rows whose id or logprob is not the one that their call gave.
//!
//! ```text
//! rows:  digests of the stretches of outputs they hold                  (row_use)
//! calls: output_len, output_digest, digest of the logprobs
//!   differ (row_output_suspect) -> the row and the call's output are read, and compared token by token
//! ```
//!
//! | kind    | means                                                                                       |
//! |---------|---------------------------------------------------------------------------------------------|
//! | token   | the ids differ                                                                              |
//! | logprob | the logprobs differ by more than 1e-6                                                       |
//! | moved   | every logprob is the one of the token before or after                                       |
//! | rounded | the logprobs differ as their rounding to bfloat16 or float16 does                           |

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Float32Array, Int32Array, Int64Array, RecordBatch, StringArray,
};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Float32Type, Schema, SchemaRef};
use futures::future::BoxFuture;
use futures::{FutureExt, TryStreamExt};
use rollbook_query::{Error, Result, Session};

use super::compare::{Difference, Expected, Token, Trained, differences};
use super::tokens::{column, ids, integers, list, longs, text};
use super::{Origin, quoted};
use crate::functions::{CallUse, Row, int, uses_of};

/// Tokens of rows held at once.
const HELD: usize = 16 << 20;
/// Names in one filter; more than these, and all rows are read.
const NAMED: usize = 1000;

pub(super) fn schema() -> SchemaRef {
    let field = |name: &str, kind: DataType| Field::new(name, kind, true);
    Arc::new(Schema::new(vec![
        field("run_id", DataType::Utf8),
        field("step", DataType::Int64),
        field("rollout_id", DataType::Utf8),
        field("call_id", DataType::Utf8),
        field("build_id", DataType::Utf8),
        field("row_index", DataType::Int32),
        field("kind", DataType::Utf8),
        field("position", DataType::Int32),
        field("length", DataType::Int32),
        field("is_whole", DataType::Boolean),
        field("expected", DataType::Utf8),
        field("observed", DataType::Utf8),
    ]))
}

/// Compares, given the rows of `row_output_suspect`.
pub(super) fn faults(origin: Origin, read: Vec<Vec<RecordBatch>>) -> BoxFuture<'static, Result<Vec<RecordBatch>>> {
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

/// The rows that are looked at: those of one build.
struct Place<'a> {
    session: &'a Session,
    run: &'a str,
    build: Option<&'a str>,
}

/// A row that holds an accused call.
struct Held {
    step: Option<i64>,
    index: Option<i32>,
    tokens: Vec<i32>,
    logprobs: Option<Float32Array>,
    row: Row,
}

/// A difference and where it stands.
struct Fault {
    run: String,
    build: Option<String>,
    step: Option<i64>,
    index: Option<i32>,
    rollout: Option<String>,
    call: String,
    difference: Difference,
}

/// Reads the accused rows of a build and the outputs they use, and compares.
async fn locate(place: &Place<'_>, accused: &ByRow, found: &mut Vec<Fault>) -> Result<()> {
    let mut stream = place.session.stream(&scan(place, accused)).await?;
    let mut held: Vec<Held> = Vec::new();
    let mut tokens = 0;
    while let Some(batch) = stream.try_next().await? {
        for row in read(&batch)?.into_iter().filter(|row| accused.contains_key(&row.index)) {
            tokens += row.tokens.len();
            held.push(row);
        }
        if tokens > HELD {
            judge(place, &std::mem::take(&mut held), accused, found).await?;
            tokens = 0;
        }
    }
    judge(place, &held, accused, found).await
}

fn scan(place: &Place<'_>, accused: &ByRow) -> String {
    let build =
        place.build.map_or_else(|| "build_id IS NULL".to_owned(), |build| format!("build_id = {}", quoted(build)));
    let named: Vec<String> = accused.keys().flatten().map(ToString::to_string).collect();
    let mut places = Vec::new();
    if named.len() > NAMED {
        places.push("true".to_owned());
    } else if !named.is_empty() {
        places.push(format!("row_index IN ({})", named.join(", ")));
    }
    if accused.contains_key(&None) {
        places.push("row_index IS NULL".to_owned());
    }
    format!(
        "SELECT step, row_index, token_ids, logprobs, segments, \
         row_mask(action_mask, mask_convention) AS action_mask FROM samples \
         WHERE run_id = {} AND {build} AND ({}) AND segments IS NOT NULL AND token_ids IS NOT NULL \
         AND NOT coalesce(is_pad, false)",
        quoted(place.run),
        places.join(" OR ")
    )
}

fn read(batch: &RecordBatch) -> Result<Vec<Held>> {
    let (steps, indexes) = (longs(batch, "step")?, integers(batch, "row_index")?);
    let (tokens, segments, logprobs) = (list(batch, "token_ids")?, list(batch, "segments")?, list(batch, "logprobs")?);
    let masks = column(batch, "action_mask")?;
    let masks = masks.as_list_opt::<i32>().ok_or_else(|| Error::corrupt("action_mask holds no lists"))?;
    let mut rows = Vec::with_capacity(batch.num_rows());
    for row in 0..batch.num_rows() {
        let mask: Option<BooleanArray> = if masks.is_valid(row) {
            Some(cast(&masks.value(row), &DataType::Boolean)?.as_boolean().clone())
        } else {
            None
        };
        let tokens = ids(&tokens, row)?;
        rows.push(Held {
            step: steps.is_valid(row).then(|| steps.value(row)),
            index: indexes.is_valid(row).then(|| indexes.value(row)),
            logprobs: floats(&logprobs, row)?.filter(|logprobs| logprobs.len() == tokens.len()),
            tokens,
            row: Row::read(&segments.value(row), mask)?,
        });
    }
    Ok(rows)
}

fn floats(lists: &arrow::array::ListArray, row: usize) -> Result<Option<Float32Array>> {
    if lists.is_null(row) {
        return Ok(None);
    }
    Ok(Some(cast(&lists.value(row), &DataType::Float32)?.as_primitive::<Float32Type>().clone()))
}

async fn judge(place: &Place<'_>, held: &[Held], accused: &ByRow, found: &mut Vec<Fault>) -> Result<()> {
    let uses: Vec<Vec<CallUse>> = held.iter().map(|held| uses_of(&held.row).1).collect();
    let names: BTreeSet<&str> = uses.iter().flatten().map(|used| used.call.as_str()).collect();
    let names: Vec<&str> = names.into_iter().collect();
    let mut outputs: HashMap<String, Vec<Output>> = HashMap::new();
    if names.len() > NAMED {
        outputs_of(place, &names, None, &mut outputs).await?;
    } else {
        outputs_of(place, &names, Some(&names), &mut outputs).await?;
    }
    for (held, uses) in held.iter().zip(&uses) {
        let resolved: Vec<(&CallUse, &Output)> = uses
            .iter()
            .filter_map(|used| Some((used, resolve(outputs.get(&used.call)?, used.rollout.as_deref())?)))
            .collect();
        let trained: Vec<Trained<'_>> = resolved
            .iter()
            .map(|(used, output)| Trained {
                tokens: used.tokens().map(|token| Token { in_row: token.in_row, offset: token.offset }).collect(),
                expected: Expected { tokens: &output.tokens, logprobs: output.logprobs.as_ref() },
            })
            .collect();
        for (call, difference) in differences(&held.tokens, held.logprobs.as_ref(), &trained) {
            let Some((used, _)) = resolved.get(call) else { continue };
            if !accused.get(&held.index).is_some_and(|calls| calls.contains(&used.call)) {
                continue;
            }
            found.push(Fault {
                run: place.run.to_owned(),
                build: place.build.map(str::to_owned),
                step: held.step,
                index: held.index,
                rollout: used.rollout.clone(),
                call: used.call.clone(),
                difference,
            });
        }
    }
    Ok(())
}

/// What a call gave.
struct Output {
    rollout: Option<String>,
    tokens: Vec<i32>,
    logprobs: Option<Float32Array>,
}

async fn outputs_of(
    place: &Place<'_>,
    wanted: &[&str],
    filter: Option<&[&str]>,
    found: &mut HashMap<String, Vec<Output>>,
) -> Result<()> {
    if wanted.is_empty() {
        return Ok(());
    }
    let mut sql = format!(
        "SELECT rollout_id, call_id, output_token_ids, output_logprobs FROM calls \
         WHERE run_id = {} AND output_len IS NOT NULL",
        quoted(place.run)
    );
    if let Some(names) = filter {
        let names: Vec<String> = names.iter().map(|name| quoted(name)).collect();
        sql = format!("{sql} AND call_id IN ({})", names.join(", "));
    }
    let mut stream = place.session.stream(&sql).await?;
    while let Some(batch) = stream.try_next().await? {
        let (rollouts, calls) = (text(&batch, "rollout_id")?, text(&batch, "call_id")?);
        let (tokens, logprobs) = (list(&batch, "output_token_ids")?, list(&batch, "output_logprobs")?);
        for row in (0..batch.num_rows()).filter(|row| calls.is_valid(*row)) {
            if wanted.binary_search(&calls.value(row)).is_err() {
                continue;
            }
            found.entry(calls.value(row).to_owned()).or_default().push(Output {
                rollout: rollouts.is_valid(row).then(|| rollouts.value(row).to_owned()),
                tokens: ids(&tokens, row)?,
                logprobs: floats(&logprobs, row)?,
            });
        }
    }
    Ok(())
}

/// The call that a segment means: the only one of its id in its rollout, else the only one of its id.
fn resolve<'a>(outputs: &'a [Output], rollout: Option<&str>) -> Option<&'a Output> {
    let mut own = outputs.iter().filter(|output| rollout.is_some() && output.rollout.as_deref() == rollout);
    match (own.next(), own.next(), outputs) {
        (Some(output), None, _) | (None, _, [output]) => Some(output),
        _ => None,
    }
}

fn rows(found: &[Fault]) -> Result<RecordBatch> {
    let text =
        |value: fn(&Fault) -> Option<&str>| -> ArrayRef { Arc::new(found.iter().map(value).collect::<StringArray>()) };
    let number =
        |value: fn(&Fault) -> Option<i32>| -> ArrayRef { Arc::new(found.iter().map(value).collect::<Int32Array>()) };
    let steps: Int64Array = found.iter().map(|found| found.step).collect();
    let whole: BooleanArray = found.iter().map(|found| Some(found.difference.is_whole)).collect();
    let columns = vec![
        text(|found| Some(&found.run)),
        Arc::new(steps),
        text(|found| found.rollout.as_deref()),
        text(|found| Some(&found.call)),
        text(|found| found.build.as_deref()),
        number(|found| found.index),
        text(|found| Some(found.difference.kind)),
        number(|found| Some(int(found.difference.position))),
        number(|found| Some(int(found.difference.length))),
        Arc::new(whole),
        text(|found| Some(&found.difference.expected)),
        text(|found| Some(&found.difference.observed)),
    ];
    Ok(RecordBatch::try_new(schema(), columns)?)
}
