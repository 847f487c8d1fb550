//! Running checks: each one's query, its gaps, and the count of what it judged.

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{DataType, Int32Type, Int64Type, UInt64Type};
use datafusion::common::{Column, ScalarValue};
use datafusion::dataframe::DataFrame;
use datafusion::logical_expr::{Expr, cast, lit};
use futures::TryStreamExt;
use rollbook_query::{Error, Result, Session};

use crate::catalog::{checks, matching};
use crate::check::{Check, Outcome};
use crate::register::register_for;
use crate::report::{Count, Finding, Report};

/// Findings of one check that a report keeps; the rest is counted.
pub const FINDINGS_KEPT: usize = 100_000;

/// What to audit.
#[derive(Debug, Clone, Default)]
pub struct AuditOptions {
    /// Patterns of check codes with `*` and `?`; none = all checks.
    pub checks: Vec<String>,
    /// Run to which it is restricted; none = all runs.
    pub run: Option<String>,
}

/// Runs checks over a session's snapshot.
///
/// # Errors
///
/// A pattern that matches no check, a run that is not in the lake, a store that does not answer.
pub async fn audit(session: &Session, options: &AuditOptions) -> Result<Report> {
    let chosen = chosen(&options.checks)?;
    // A session of its own: the checks' tables are made for one run, and the caller's may have them for all.
    let own = Session::at(session.lake(), session.snapshot().clone(), session.options().clone()).await?;
    register_for(&own, options.run.as_deref())?;
    if let Some(run) = &options.run {
        verify_run(&own, run).await?;
    }
    let mut report =
        Report { snapshot: own.snapshot().n, checks: Vec::new(), findings: Vec::new(), run: options.run.clone() };
    for check in chosen {
        let named = |error: Error| error.with("check", check.code);
        let (count, findings) = run_check(&own, check, options.run.as_deref()).await.map_err(named)?;
        report.checks.push(count);
        report.findings.extend(findings);
    }
    Ok(report)
}

fn chosen(patterns: &[String]) -> Result<Vec<&'static Check>> {
    if patterns.is_empty() {
        return Ok(checks().iter().collect());
    }
    let mut codes = Vec::new();
    for pattern in patterns {
        let found = matching(pattern);
        if found.is_empty() {
            let known: Vec<&str> = checks().iter().map(|check| check.code).collect();
            return Err(Error::invalid(format!("no check matches {pattern}; there are: {}", known.join(", "))));
        }
        codes.extend(found.into_iter().map(|check| check.code));
    }
    Ok(checks().iter().filter(|check| codes.contains(&check.code)).collect())
}

async fn verify_run(session: &Session, run: &str) -> Result<()> {
    for table in ["runs", "rollouts", "calls", "builds", "samples"] {
        let frame = session.sql(&format!("SELECT run_id FROM {table}")).await?;
        let found = only_run(frame, Some(run))?.limit(0, Some(1))?.collect().await?;
        if found.iter().any(|batch| batch.num_rows() > 0) {
            return Ok(());
        }
    }
    Err(Error::not_found(format!("no run is called {run} in snapshot {}", session.snapshot().n)))
}

async fn run_check(session: &Session, check: &'static Check, run: Option<&str>) -> Result<(Count, Vec<Finding>)> {
    let mut found = Found::new(check);
    found.add_all(findings_frame(session, check, run).await?).await?;
    for query in &check.undeclared {
        found.add_all(undeclared_frame(session, check, query, run).await?).await?;
    }
    let (mut count, findings) = found.finish();
    count.examined = examined(session, check, run).await?;
    Ok((count, findings))
}

/// The columns of a finding that a check's query may return, with their types.
pub(crate) const COLUMNS: [(&str, DataType); 16] = [
    ("outcome", DataType::Utf8),
    ("layer", DataType::Utf8),
    ("run_id", DataType::Utf8),
    ("step", DataType::Int64),
    ("group_id", DataType::Utf8),
    ("rollout_id", DataType::Utf8),
    ("call_id", DataType::Utf8),
    ("build_id", DataType::Utf8),
    ("derivation_id", DataType::Utf8),
    ("row_index", DataType::Int32),
    ("position", DataType::Int32),
    ("position_in", DataType::Utf8),
    ("length", DataType::Int32),
    ("expected", DataType::Utf8),
    ("observed", DataType::Utf8),
    ("message", DataType::Utf8),
];

/// The findings of a check as [`COLUMNS`].
pub(crate) async fn findings_frame(session: &Session, check: &Check, run: Option<&str>) -> Result<DataFrame> {
    let frame = only_run(session.sql(check.sql).await?, run)?;
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
    Ok(frame.select(wanted)?)
}

/// The gaps of a check as [`COLUMNS`].
pub(crate) async fn undeclared_frame(
    session: &Session,
    check: &Check,
    query: &str,
    run: Option<&str>,
) -> Result<DataFrame> {
    let frame = only_run(session.sql(query).await?, run)?;
    let text = |name: &str| column_of(&frame, name).unwrap_or(lit(ScalarValue::Utf8(None)));
    let message =
        datafusion::functions::string::expr_fn::concat(vec![text("missing"), lit(" is missing: "), text("remedy")]);
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
    Ok(frame.select(wanted)?)
}

fn column_of(frame: &DataFrame, name: &str) -> Option<Expr> {
    frame
        .schema()
        .iter()
        .find(|(_, field)| field.name() == name)
        .map(|(qualifier, field)| Expr::Column(Column::from((qualifier, field))))
}

fn only_run(frame: DataFrame, run: Option<&str>) -> Result<DataFrame> {
    match (run, column_of(&frame, "run_id")) {
        (Some(run), Some(column)) => Ok(frame.filter(column.eq(lit(run)))?),
        (Some(_), None) => Err(Error::corrupt("the check's query does not return run_id")),
        (None, _) => Ok(frame),
    }
}

async fn examined(session: &Session, check: &Check, run: Option<&str>) -> Result<u64> {
    let frame = only_run(session.sql(&check.examined).await?, run)?;
    let Some(column) = column_of(&frame, "examined") else {
        return Err(Error::corrupt("the check's count does not return examined"));
    };
    let batches = frame.select(vec![cast(column, DataType::UInt64).alias("examined")])?.collect().await?;
    let sum = |batch: &RecordBatch| batch.column(0).as_primitive::<UInt64Type>().iter().flatten().sum::<u64>();
    Ok(batches.iter().map(sum).sum())
}

/// Findings as they come: all counted, the first in order kept.
struct Found {
    check: &'static Check,
    count: Count,
    kept: Vec<Finding>,
}

impl Found {
    fn new(check: &'static Check) -> Self {
        let count =
            Count { check: check.code, version: check.version, violation: 0, rule: 0, undeclared: 0, examined: 0 };
        Self { check, count, kept: Vec::new() }
    }

    async fn add_all(&mut self, frame: DataFrame) -> Result<()> {
        let mut stream = frame.execute_stream().await?;
        while let Some(batch) = stream.try_next().await? {
            self.add(&batch)?;
            if self.kept.len() > 2 * FINDINGS_KEPT {
                self.trim();
            }
        }
        Ok(())
    }

    fn add(&mut self, batch: &RecordBatch) -> Result<()> {
        let row_of = Columns { batch };
        for row in 0..batch.num_rows() {
            let outcome = row_of.text("outcome", row)?.as_deref().and_then(Outcome::parse);
            let outcome = outcome.ok_or_else(|| Error::corrupt("a finding without an outcome"))?;
            self.count.add(outcome);
            self.kept.push(Finding {
                audit_id: None,
                check: self.check.code.to_owned(),
                outcome,
                severity: self.check.severity.clone(),
                layer: row_of.text("layer", row)?.unwrap_or_default(),
                run_id: row_of.text("run_id", row)?,
                step: row_of.long("step", row)?,
                group_id: row_of.text("group_id", row)?,
                rollout_id: row_of.text("rollout_id", row)?,
                call_id: row_of.text("call_id", row)?,
                build_id: row_of.text("build_id", row)?,
                derivation_id: row_of.text("derivation_id", row)?,
                row_index: row_of.int("row_index", row)?,
                position: row_of.int("position", row)?,
                position_in: row_of.text("position_in", row)?,
                length: row_of.int("length", row)?,
                expected: row_of.text("expected", row)?,
                observed: row_of.text("observed", row)?,
                message: row_of.text("message", row)?.unwrap_or_default(),
            });
        }
        Ok(())
    }

    fn trim(&mut self) {
        self.kept.sort_by(|a, b| a.order().cmp(&b.order()));
        self.kept.truncate(FINDINGS_KEPT);
    }

    fn finish(mut self) -> (Count, Vec<Finding>) {
        self.trim();
        (self.count, self.kept)
    }
}

struct Columns<'a> {
    batch: &'a RecordBatch,
}

impl Columns<'_> {
    fn column(&self, name: &str) -> Result<&dyn Array> {
        self.batch
            .column_by_name(name)
            .map(AsRef::as_ref)
            .ok_or_else(|| Error::corrupt(format!("the findings lost column {name}")))
    }

    fn text(&self, name: &str, row: usize) -> Result<Option<String>> {
        let array = self.column(name)?.as_string::<i32>();
        Ok(array.is_valid(row).then(|| array.value(row).to_owned()))
    }

    fn int(&self, name: &str, row: usize) -> Result<Option<i32>> {
        let array = self.column(name)?.as_primitive::<Int32Type>();
        Ok(array.is_valid(row).then(|| array.value(row)))
    }

    fn long(&self, name: &str, row: usize) -> Result<Option<i64>> {
        let array = self.column(name)?.as_primitive::<Int64Type>();
        Ok(array.is_valid(row).then(|| array.value(row)))
    }
}
