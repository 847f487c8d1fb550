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

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BooleanArray, Float32Array, Int32Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use futures::future::BoxFuture;
use futures::{FutureExt, TryStreamExt};
use rollbook_query::Result;

use super::accused::{AccusedRows, ByRow, Held, NAMED, Place, RowKey, accused, floats};
use super::compare::{Difference, Expected, Token, Trained, differences};
use super::tokens::{ids, list, text};
use super::{Origin, quoted};
use crate::functions::{CallUse, int, uses_of};

pub(super) fn schema() -> SchemaRef {
    let field = |name: &str, kind: DataType| Field::new(name, kind, true);
    let mut fields = RowKey::fields();
    fields.extend([
        field("run_id", DataType::Utf8),
        field("rollout_id", DataType::Utf8),
        field("call_id", DataType::Utf8),
        field("build_id", DataType::Utf8),
        field("kind", DataType::Utf8),
        field("position", DataType::Int32),
        field("length", DataType::Int32),
        field("is_whole", DataType::Boolean),
        field("expected", DataType::Utf8),
        field("observed", DataType::Utf8),
    ]);
    Arc::new(Schema::new(fields))
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

/// A difference and where it stands.
struct Fault {
    run: String,
    build: Option<String>,
    key: RowKey,
    rollout: Option<String>,
    call: String,
    difference: Difference,
}

/// Reads the accused rows of a build and the outputs they use, and compares.
async fn locate(place: &Place<'_>, accused: &ByRow, found: &mut Vec<Fault>) -> Result<()> {
    let mut rows = AccusedRows::open(place, accused, true).await?;
    while let Some(held) = rows.next().await? {
        judge(place, &held, accused, found).await?;
    }
    Ok(())
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
            if !held.is_accused(accused, &used.call) {
                continue;
            }
            found.push(Fault {
                run: place.run.to_owned(),
                build: place.build.map(str::to_owned),
                key: held.key,
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
    let keys: Vec<RowKey> = found.iter().map(|found| found.key).collect();
    let whole: BooleanArray = found.iter().map(|found| Some(found.difference.is_whole)).collect();
    let mut columns = RowKey::columns(&keys);
    columns.extend([
        text(|found| Some(&found.run)),
        text(|found| found.rollout.as_deref()),
        text(|found| Some(&found.call)),
        text(|found| found.build.as_deref()),
        text(|found| Some(found.difference.kind)),
        number(|found| Some(int(found.difference.position))),
        number(|found| Some(int(found.difference.length))),
        Arc::new(whole),
        text(|found| Some(&found.difference.expected)),
        text(|found| Some(&found.difference.observed)),
    ]);
    Ok(RecordBatch::try_new(schema(), columns)?)
}
