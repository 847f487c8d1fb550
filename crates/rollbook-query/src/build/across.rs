//! Extensions that the record cannot show: the parent's rows lie in another file than the child's.
//!
//! `parent_prefix_len` is null there, so the tokens decide. A build must not depend on which import brought which call, so
//! the engine looks them up before it plans, and recipes read the result as `extensions_across_files`, by run and call.
//! Tokens are compared by digest: of the parent's whole context, and of as many prompt tokens of the child.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{Array, AsArray, ListArray, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Int32Type, Int64Type, Schema};
use datafusion::datasource::{MemTable, provider_as_source};
use datafusion::logical_expr::LogicalPlanBuilder;
use futures::TryStreamExt;
use rollbook_schema::digest::token_digest;

use crate::build::key_of;
use crate::build::verdict::{column, list, text};
use crate::error::Result;
use crate::recipe::quoted;
use crate::session::Session;

/// The name recipes know the result by.
pub(super) const VIEW: &str = "extensions_across_files";

/// More rollouts than this are not named in the filter; the whole run is read instead.
const NAMED_ROLLOUTS: usize = 2000;

/// A child whose parent lies elsewhere.
struct Pair {
    call_id: String,
    parent: u128,
    context: usize,
}

/// Returns a session in which recipes find the extensions of a run that no file shows.
pub(super) async fn with_extensions(session: &Session, run: &str) -> Result<Session> {
    let found = extensions(session, run).await?;
    let schema = Arc::new(Schema::new(vec![
        Field::new("run_id", DataType::Utf8, false),
        Field::new("call_id", DataType::Utf8, false),
    ]));
    let columns: Vec<Arc<dyn Array>> =
        vec![Arc::new(StringArray::from(vec![run; found.len()])), Arc::new(StringArray::from(found))];
    let batch = RecordBatch::try_new(Arc::clone(&schema), columns)?;
    let table = Arc::new(MemTable::try_new(schema, vec![vec![batch]])?);
    let plan = LogicalPlanBuilder::scan(VIEW, provider_as_source(table), None)?.build()?;
    session.with_view(VIEW, plan)
}

async fn extensions(session: &Session, run: &str) -> Result<Vec<String>> {
    let (pairs, rollouts) = pairs(session, run).await?;
    if pairs.is_empty() {
        return Ok(Vec::new());
    }
    let mut contexts: HashMap<u128, Option<String>> = pairs.iter().map(|pair| (pair.parent, None)).collect();
    let mut prompts: HashMap<u128, (usize, Option<String>)> =
        pairs.iter().map(|pair| (key_of(&pair.call_id), (pair.context, None))).collect();
    let mut scan = session.stream(&scan_sql(run, &rollouts)).await?;
    while let Some(batch) = scan.try_next().await? {
        let calls = text(&batch, "call_id")?;
        let (prompt, output) = (list(&batch, "prompt_token_ids")?, list(&batch, "output_token_ids")?);
        for row in (0..batch.num_rows()).filter(|row| calls.is_valid(*row)) {
            let key = key_of(calls.value(row));
            if let Some(context) = contexts.get_mut(&key) {
                let mut tokens = ids(&prompt, row);
                tokens.extend(ids(&output, row));
                *context = Some(token_digest(&tokens));
            }
            if let Some((length, digest)) = prompts.get_mut(&key) {
                *digest = ids(&prompt, row).get(..*length).map(token_digest);
            }
        }
    }
    let is_extension = |pair: &Pair| {
        let context = contexts.get(&pair.parent).and_then(Option::as_ref);
        let prompt = prompts.get(&key_of(&pair.call_id)).and_then(|(_, digest)| digest.as_ref());
        context.is_some() && context == prompt
    };
    Ok(pairs.iter().filter(|pair| is_extension(pair)).map(|pair| pair.call_id.clone()).collect())
}

/// Finds the calls whose parent is known, is long enough to be extended, and lies in another file.
async fn pairs(session: &Session, run: &str) -> Result<(Vec<Pair>, Vec<String>)> {
    let run = quoted(run);
    let mut rows = session
        .stream(&format!(
            "SELECT c.rollout_id, c.call_id, c.parent_call_id, CAST(p.prompt_len AS BIGINT) + p.output_len AS context \
             FROM (SELECT rollout_id, call_id, parent_call_id, prompt_len FROM calls \
                   WHERE run_id = {run} AND parent_prefix_len IS NULL AND parent_call_id IS NOT NULL) AS c \
             JOIN (SELECT rollout_id, call_id, prompt_len, output_len FROM calls WHERE run_id = {run}) AS p \
             ON c.rollout_id = p.rollout_id AND c.parent_call_id = p.call_id \
             WHERE c.prompt_len >= CAST(p.prompt_len AS BIGINT) + p.output_len \
             ORDER BY c.rollout_id, c.call_id"
        ))
        .await?;
    let mut pairs = Vec::new();
    let mut rollouts: Vec<String> = Vec::new();
    while let Some(batch) = rows.try_next().await? {
        let (rollout, call, parent) =
            (text(&batch, "rollout_id")?, text(&batch, "call_id")?, text(&batch, "parent_call_id")?);
        let context = column(&batch, "context")?.as_primitive::<Int64Type>().clone();
        for row in 0..batch.num_rows() {
            pairs.push(Pair {
                call_id: call.value(row).to_owned(),
                parent: key_of(parent.value(row)),
                context: usize::try_from(context.value(row)).unwrap_or(usize::MAX),
            });
            if rollouts.last().is_none_or(|last| last != rollout.value(row)) {
                rollouts.push(rollout.value(row).to_owned());
            }
        }
    }
    Ok((pairs, rollouts))
}

fn scan_sql(run: &str, rollouts: &[String]) -> String {
    let run = quoted(run);
    let names: Vec<_> = rollouts.iter().map(|rollout| quoted(rollout)).collect();
    let named = if rollouts.len() <= NAMED_ROLLOUTS {
        format!("rollout_id IN ({})", names.join(", "))
    } else {
        "true".to_owned()
    };
    format!("SELECT call_id, prompt_token_ids, output_token_ids FROM calls WHERE run_id = {run} AND {named}")
}

fn ids(lists: &ListArray, row: usize) -> Vec<i32> {
    if lists.is_null(row) { Vec::new() } else { lists.value(row).as_primitive::<Int32Type>().values().to_vec() }
}
