//! Running checks: each one's query, its gaps, and the count of what it judged.

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{Int32Type, Int64Type, UInt64Type};
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::execute_stream;
use futures::TryStreamExt;
use rollbook_query::{Error, Result, Session};

use crate::catalog::{checks, matching};
use crate::check::{Check, Outcome};
use crate::prepare::{Prepared, only_run, prepare};
use crate::register::session_for_checks;
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
    if let Some(run) = &options.run {
        verify_run(session, run).await?;
    }
    // No file holds two runs, so the run's files are the run.
    let snapshot = match &options.run {
        Some(run) => session.snapshot().only(|_, file| {
            file.run_id
                .as_ref()
                .is_none_or(|(first, last)| first.as_str() <= run.as_str() && run.as_str() <= last.as_str())
        }),
        None => session.snapshot().clone(),
    };
    let own = session_for_checks(session, snapshot).await?;
    let prepared = prepare(&own, &chosen, options.run.as_deref()).await?;
    let mut report =
        Report { snapshot: own.snapshot().n, checks: Vec::new(), findings: Vec::new(), run: options.run.clone() };
    // One after the other: what each may hold of the session's memory shrinks with every operator that is there.
    for prepared in prepared {
        let (count, findings) = answer(&own, &prepared).await?;
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

async fn answer(session: &Session, prepared: &Prepared) -> Result<(Count, Vec<Finding>)> {
    let check = prepared.check;
    let named = |error: Error| error.with("check", check.code);
    let mut found = Found::new(check);
    for plan in prepared.findings() {
        found.add_all(session, plan).await.map_err(named)?;
    }
    let (mut count, findings) = found.finish();
    count.examined = examined(session, prepared.examined()).await.map_err(named)?;
    Ok((count, findings))
}

async fn examined(session: &Session, plan: Option<&LogicalPlan>) -> Result<u64> {
    let Some(plan) = plan else {
        return Ok(0);
    };
    let (plan, task) = session.physical(plan).await?;
    let batches: Vec<RecordBatch> = execute_stream(plan, task)?.try_collect().await?;
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

    async fn add_all(&mut self, session: &Session, plan: &LogicalPlan) -> Result<()> {
        let (plan, task) = session.physical(plan).await?;
        let mut stream = execute_stream(plan, task)?;
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
