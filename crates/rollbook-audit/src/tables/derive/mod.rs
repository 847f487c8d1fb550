//! `rederived`: rewards and credits that are not what their recipe, their run's rule or any known formula gives.
//!
//! ```text
//! derivation with a snapshot   its recipe runs again over that snapshot              own
//! imported, with a recipe      its recipe runs over the rows in the lake             own
//! imported reward              the scores it was made from, its components           rewards
//! imported credit              every known configuration, over the rewards           credits -> config, statistics, fit
//! the same                     each component of the reward normalized by itself      gdpo
//! imported token returns       discounted sums of the token rewards                  returns
//! imported call returns        discounted sums of the calls' rewards, along the tree    turns
//! ```
//!
//! A row of the table is a finding; where `missing` is not null it says what could not be judged.

mod config;
mod credits;
mod fit;
mod gdpo;
mod inputs;
mod own;
mod returns;
mod rewards;
mod statistics;
#[cfg(test)]
mod tests;
mod turns;

use std::sync::Arc;

use arrow::array::{ArrayRef, Int32Array, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use futures::FutureExt;
use futures::future::BoxFuture;
use rollbook_query::Result;

use super::Origin;
use inputs::{Derivation, derivations};

pub(super) fn schema() -> SchemaRef {
    let texts = ["outcome", "run_id", "group_id", "rollout_id", "call_id", "derivation_id"];
    let more = ["expected", "observed", "message", "missing", "remedy"];
    let mut fields: Vec<Field> = texts.iter().map(|name| Field::new(*name, DataType::Utf8, true)).collect();
    fields.push(Field::new("step", DataType::Int64, true));
    fields.push(Field::new("position", DataType::Int32, true));
    fields.push(Field::new("length", DataType::Int32, true));
    fields.extend(more.iter().map(|name| Field::new(*name, DataType::Utf8, true)));
    Arc::new(Schema::new(fields))
}

/// A value that is not what it should be, or what it would take to judge.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Found {
    run: String,
    step: Option<i64>,
    group: Option<String>,
    rollout: Option<String>,
    call: Option<String>,
    derivation: Option<String>,
    position: Option<i32>,
    length: Option<i32>,
    expected: Option<String>,
    observed: Option<String>,
    message: String,
    /// Field or expectation that is missing; then the message is the remedy.
    missing: Option<String>,
}

impl Found {
    fn missing(run: &str, derivation: Option<&str>, missing: &str, remedy: String) -> Self {
        Self {
            run: run.to_owned(),
            derivation: derivation.map(str::to_owned),
            missing: Some(missing.to_owned()),
            message: remedy,
            ..Self::default()
        }
    }
}

/// Judges every reward and credit of the origin; it reads no other helper table.
pub(super) fn rows(origin: Origin, _: Vec<Vec<RecordBatch>>) -> BoxFuture<'static, Result<Vec<RecordBatch>>> {
    async move {
        let session = origin.session().await?;
        let mut found = Vec::new();
        for derivation in derivations(&session).await? {
            judge(&session, &derivation, &mut found).await?;
        }
        Ok(vec![batch(&found)?])
    }
    .boxed()
}

async fn judge(session: &rollbook_query::Session, derivation: &Derivation, found: &mut Vec<Found>) -> Result<()> {
    if derivation.is_own() {
        return own::judge(session, derivation, found).await;
    }
    if derivation.recipe.is_some() && own::judge_imported(session, derivation, found).await? {
        return Ok(());
    }
    match derivation.kind {
        inputs::Kind::Reward => rewards::judge(session, derivation, found).await,
        inputs::Kind::Credit => credits::judge(session, derivation, found).await,
    }
}

/// A number as findings show it.
fn shown(value: Option<f64>) -> String {
    match value {
        None => "null".to_owned(),
        // Six places tell configurations apart; more are noise.
        Some(value) if value != 0.0 && value.abs() < 1e-4 => format!("{value:e}"),
        Some(value) => {
            let text = format!("{value:.6}");
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        }
    }
}

fn batch(found: &[Found]) -> Result<RecordBatch> {
    let text =
        |value: fn(&Found) -> Option<&str>| -> ArrayRef { Arc::new(found.iter().map(value).collect::<StringArray>()) };
    let is_gap = |found: &Found| found.missing.is_some();
    let outcomes: StringArray =
        found.iter().map(|found| Some(if is_gap(found) { "undeclared" } else { "violation" })).collect();
    let steps: Int64Array = found.iter().map(|found| found.step).collect();
    let columns: Vec<ArrayRef> = vec![
        Arc::new(outcomes),
        text(|found| Some(&found.run)),
        text(|found| found.group.as_deref()),
        text(|found| found.rollout.as_deref()),
        text(|found| found.call.as_deref()),
        text(|found| found.derivation.as_deref()),
        Arc::new(steps),
        Arc::new(found.iter().map(|found| found.position).collect::<Int32Array>()),
        Arc::new(found.iter().map(|found| found.length).collect::<Int32Array>()),
        text(|found| found.expected.as_deref()),
        text(|found| found.observed.as_deref()),
        text(|found| found.missing.is_none().then_some(found.message.as_str())),
        text(|found| found.missing.as_deref()),
        text(|found| found.missing.is_some().then_some(found.message.as_str())),
    ];
    Ok(RecordBatch::try_new(schema(), columns)?)
}
