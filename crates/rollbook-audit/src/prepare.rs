//! Plans of checks: the findings, the gaps and the count of each, over what they share.

use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::{Column, ScalarValue};
use datafusion::dataframe::DataFrame;
use datafusion::functions::string::expr_fn::concat;
use datafusion::logical_expr::{Expr, LogicalPlan, cast, lit};
use rollbook_query::{Error, PlanOptions, Result, Session, parse};

use crate::check::{Check, Outcome};
use crate::shared::share;
use crate::turns::{Turns, ended};

/// The columns of a finding that a check's query may return, with their types.
pub(crate) const COLUMNS: [(&str, DataType); 19] = [
    ("outcome", DataType::Utf8),
    ("layer", DataType::Utf8),
    ("run_id", DataType::Utf8),
    ("step", DataType::Int64),
    ("group_id", DataType::Utf8),
    ("rollout_id", DataType::Utf8),
    ("call_id", DataType::Utf8),
    ("build_id", DataType::Utf8),
    ("derivation_id", DataType::Utf8),
    ("epoch", DataType::Int32),
    ("micro_batch", DataType::Int32),
    ("rank", DataType::Int32),
    ("row_index", DataType::Int32),
    ("position", DataType::Int32),
    ("position_in", DataType::Utf8),
    ("length", DataType::Int32),
    ("expected", DataType::Utf8),
    ("observed", DataType::Utf8),
    ("message", DataType::Utf8),
];

/// A check whose plans are ready to run.
pub(crate) struct Prepared {
    pub(crate) check: &'static Check,
    /// Findings first, then gaps; the count is last.
    plans: Vec<LogicalPlan>,
}

impl Prepared {
    /// The plans that give [`COLUMNS`].
    pub(crate) fn findings(&self) -> &[LogicalPlan] {
        self.plans.split_last().map_or(&[], |(_, findings)| findings)
    }

    /// The plan that gives the count.
    pub(crate) fn examined(&self) -> Option<&LogicalPlan> {
        self.plans.last()
    }
}

/// Plans checks, and runs what their plans share.
pub(crate) async fn prepare(session: &Session, checks: &[&'static Check], run: Option<&str>) -> Result<Vec<Prepared>> {
    // Planning is work for a processor, and no check's plan waits for another's.
    let turns = Turns::new(session.options().threads);
    let tasks: Vec<_> =
        checks.iter().map(|check| turns.spawn(planned(session.clone(), check, run.map(str::to_owned)))).collect();
    let mut planned = Vec::with_capacity(tasks.len());
    for task in tasks {
        planned.push(ended(task).await?);
    }
    let (counts, plans): (Vec<_>, Vec<_>) =
        planned.into_iter().map(|(check, plans)| ((check, plans.len()), plans)).unzip();
    let mut shared = share(session, plans.into_iter().flatten().collect()).await?.into_iter();
    Ok(counts
        .into_iter()
        .map(|(check, count)| Prepared { check, plans: shared.by_ref().take(count).collect() })
        .collect())
}

async fn planned(
    session: Session,
    check: &'static Check,
    run: Option<String>,
) -> Result<(&'static Check, Vec<LogicalPlan>)> {
    let plans = plans(&session, check, run.as_deref()).await;
    plans.map(|plans| (check, plans)).map_err(|error| error.with("check", check.code))
}

async fn plans(session: &Session, check: &'static Check, run: Option<&str>) -> Result<Vec<LogicalPlan>> {
    let mut plans = findings(session, check, run).await?;
    for query in &check.undeclared {
        plans.extend(undeclared(session, check, query, run).await?);
    }
    plans.push(examined(session, check, run).await?);
    plans.iter().map(|plan| session.optimize(plan)).collect()
}

/// A query as one frame for each part of its `UNION ALL`s. Parts that run one after the other do not share the session's memory.
async fn frames(session: &Session, sql: &str, run: Option<&str>) -> Result<Vec<DataFrame>> {
    let plan = session.plan(parse(sql)?, &PlanOptions::default()).await?;
    let names: Vec<String> = plan.schema().fields().iter().map(|field| field.name().clone()).collect();
    let mut parts = Vec::new();
    parts_of(plan, &mut parts);
    let named = parts.into_iter().map(|part| {
        let columns = part.schema().columns().into_iter().map(Expr::Column);
        let columns: Vec<Expr> = columns.zip(&names).map(|(column, name)| column.alias(name)).collect();
        only_run(DataFrame::new(session.context().state(), part).select(columns)?, run)
    });
    named.collect()
}

fn parts_of(plan: LogicalPlan, parts: &mut Vec<LogicalPlan>) {
    match plan {
        LogicalPlan::Union(union) => {
            for input in union.inputs {
                parts_of(Arc::unwrap_or_clone(input), parts);
            }
        }
        part => parts.push(part),
    }
}

/// The findings of a check as [`COLUMNS`].
async fn findings(session: &Session, check: &Check, run: Option<&str>) -> Result<Vec<LogicalPlan>> {
    let frames = frames(session, check.sql, run).await?.into_iter().map(|frame| {
        let mut wanted = Vec::new();
        for (name, kind) in COLUMNS {
            let missing = match name {
                "outcome" => lit(check.outcome.as_str()),
                "layer" => lit(check.layer.as_str()),
                _ => lit(ScalarValue::try_from(&kind)?),
            };
            let value = column_of(&frame, name).unwrap_or(missing);
            wanted.push(cast(value, kind).alias(name));
        }
        Ok(frame.select(wanted)?.into_unoptimized_plan())
    });
    frames.collect()
}

/// The gaps of a check as [`COLUMNS`].
async fn undeclared(session: &Session, check: &Check, query: &str, run: Option<&str>) -> Result<Vec<LogicalPlan>> {
    let frames = frames(session, query, run).await?.into_iter().map(|frame| {
        let text = |name: &str| column_of(&frame, name).unwrap_or(lit(ScalarValue::Utf8(None)));
        let message = concat(vec![text("missing"), lit(" is missing: "), text("remedy")]);
        let mut wanted = Vec::new();
        for (name, kind) in COLUMNS {
            let value = match name {
                "outcome" => lit(Outcome::Undeclared.as_str()),
                "layer" => lit(check.layer.as_str()),
                "run_id" | "build_id" | "derivation_id" => text(name),
                "expected" => text("missing"),
                "message" => message.clone(),
                _ => lit(ScalarValue::try_from(&kind)?),
            };
            wanted.push(cast(value, kind).alias(name));
        }
        Ok(frame.select(wanted)?.into_unoptimized_plan())
    });
    frames.collect()
}

/// How many things a check judged, as one column of parts of the sum.
async fn examined(session: &Session, check: &Check, run: Option<&str>) -> Result<LogicalPlan> {
    let plan = session.plan(parse(&check.examined)?, &PlanOptions::default()).await?;
    let frame = only_run(DataFrame::new(session.context().state(), plan), run)?;
    let Some(column) = column_of(&frame, "examined") else {
        return Err(Error::corrupt("the check's count does not return examined"));
    };
    Ok(frame.select(vec![cast(column, DataType::UInt64).alias("examined")])?.into_unoptimized_plan())
}

fn column_of(frame: &DataFrame, name: &str) -> Option<Expr> {
    frame
        .schema()
        .iter()
        .find(|(_, field)| field.name() == name)
        .map(|(qualifier, field)| Expr::Column(Column::from((qualifier, field))))
}

/// Keeps the rows of one run.
pub(crate) fn only_run(frame: DataFrame, run: Option<&str>) -> Result<DataFrame> {
    match (run, column_of(&frame, "run_id")) {
        (Some(run), Some(column)) => Ok(frame.filter(column.eq(lit(run)))?),
        (Some(_), None) => Err(Error::corrupt("the check's query does not return run_id")),
        (None, _) => Ok(frame),
    }
}
