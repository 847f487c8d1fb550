//! Running checks: each one's query, its gaps, and the count of what it judged.

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{Int32Type, Int64Type, UInt64Type};
use datafusion::logical_expr::LogicalPlan;
use futures::TryStreamExt;
use rollbook_query::{Error, Result, Session};

use crate::catalog::{checks, matching};
use crate::check::{Check, Outcome, Scope};
use crate::prepare::{Prepared, only_run, prepare};
use crate::register::session_for_checks;
use crate::report::{Count, Finding, Report};
use crate::since::{Since, Touched, bases, session_within, without_known};

/// Findings of one check that a report keeps; the rest is counted.
pub const FINDINGS_KEPT: usize = 100_000;

/// What to audit.
#[derive(Debug, Clone, Default)]
pub struct AuditOptions {
    /// Patterns of check codes with `*` and `?`; none = all checks.
    pub checks: Vec<String>,
    /// Run to which it is restricted; none = all runs.
    pub run: Option<String>,
    /// Where it starts.
    pub since: Since,
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
    let head = match &options.run {
        // No file holds two runs, so the run's files are the run.
        Some(run) => {
            let part = session.snapshot().only(|_, file| {
                let range = file.run_id.as_ref();
                range.is_none_or(|(first, last)| first.as_str() <= run.as_str() && run.as_str() <= last.as_str())
            });
            Session::at(session.lake(), part, session.options().clone()).await?
        }
        None => session.clone(),
    };
    let bases = bases(session, &chosen, options.since, options.run.as_deref()).await?;
    let since = bases.keys().next().copied().flatten();
    let mut answers = Vec::new();
    for (since, checks) in bases {
        match since {
            None => {
                // A check that compares runs sees all of them, also where it answers for one.
                let is_wide = |check: &Check| options.run.is_some() && check.scope == Scope::Lake;
                let (wide, own): (Vec<&'static Check>, Vec<_>) = checks.into_iter().partition(|check| is_wide(check));
                for (seen, checks) in [(&head, own), (session, wide)] {
                    if !checks.is_empty() {
                        let own = session_for_checks(seen, seen.snapshot().clone()).await?;
                        answers.extend(answer_all(&own, &checks, options.run.as_deref()).await?);
                    }
                }
            }
            Some(since) => answers.extend(answer_new(session, &head, since, &checks, options.run.as_deref()).await?),
        }
    }
    let place = |code: &str| chosen.iter().position(|check| check.code == code);
    answers.sort_by_key(|(count, _)| place(count.check));
    let (checks, findings): (Vec<Count>, Vec<Vec<Finding>>) = answers.into_iter().unzip();
    let findings = findings.into_iter().flatten().collect();
    Ok(Report { snapshot: session.snapshot().n, checks, findings, since, run: options.run.clone() })
}

/// Answers checks about what came after a snapshot.
async fn answer_new(
    session: &Session,
    head: &Session,
    since: u64,
    checks: &[&'static Check],
    run: Option<&str>,
) -> Result<Vec<(Count, Vec<Finding>)>> {
    let touched = Touched::find(head, since).await?;
    if touched.is_empty() {
        return Ok(checks.iter().map(|check| (Count::of(check), Vec::new())).collect());
    }
    let mut answers = Vec::new();
    for scope in [Scope::Rollout, Scope::Build, Scope::Run, Scope::Lake] {
        let checks: Vec<&'static Check> = checks.iter().copied().filter(|check| check.scope == scope).collect();
        if checks.is_empty() {
            continue;
        }
        let seen = if scope == Scope::Lake { session } else { head };
        let own = session_within(seen, &touched, scope).await?;
        for (mut count, mut findings) in answer_all(&own, &checks, run).await? {
            without_known(session, &mut count, &mut findings).await?;
            answers.push((count, findings));
        }
    }
    Ok(answers)
}

/// Answers checks over a session, which tells what they see.
async fn answer_all(
    session: &Session,
    checks: &[&'static Check],
    run: Option<&str>,
) -> Result<Vec<(Count, Vec<Finding>)>> {
    let mut answers = Vec::with_capacity(checks.len());
    // One after the other: what each may hold of the session's memory shrinks with every operator that is there.
    for prepared in prepare(session, checks, run).await? {
        answers.push(answer(session, &prepared).await?);
    }
    Ok(answers)
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
    let batches: Vec<RecordBatch> = session.run_optimized(plan).await?.try_collect().await?;
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
        Self { check, count: Count::of(check), kept: Vec::new() }
    }

    async fn add_all(&mut self, session: &Session, plan: &LogicalPlan) -> Result<()> {
        let mut stream = session.run_optimized(plan).await?;
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
                epoch: row_of.int("epoch", row)?,
                micro_batch: row_of.int("micro_batch", row)?,
                rank: row_of.int("rank", row)?,
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
