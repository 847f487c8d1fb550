//! `rollbook audit`: runs checks over a snapshot and records what they find.

use std::collections::BTreeMap;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use rollbook_audit::{AuditOptions, Count, ErrorKind, Finding, Outcome, Report, Since, junit, quarantine, record};

use crate::error::{CommandError, Result};
use crate::lake::ReadArgs;
use crate::output::{line, note, plain, small_table};

/// Findings of one check that the table form repeats.
const SHOWN: usize = 5;

/// The mildest outcome that makes the exit status 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum FailOn {
    /// The record contradicts itself
    Violation,
    /// Or a declared expectation is broken
    Rule,
    /// Or something cannot be judged
    Undeclared,
    /// Nothing that is found
    Never,
}

impl FailOn {
    /// The mildest outcome that fails; none does under `never`.
    fn least(self) -> Option<Outcome> {
        match self {
            Self::Violation => Some(Outcome::Violation),
            Self::Rule => Some(Outcome::Rule),
            Self::Undeclared => Some(Outcome::Undeclared),
            Self::Never => None,
        }
    }

    fn is_reached(self, outcome: Outcome) -> bool {
        self.least().is_some_and(|least| outcome >= least)
    }
}

/// How a report is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ReportFormat {
    /// Aligned columns and the first findings
    Table,
    /// One JSON object
    Json,
    /// `JUnit` XML: a check is a test case, a finding at or above --fail-on a failure
    Junit,
}

/// Reads `last` or the number of a snapshot.
fn since(text: &str) -> Result<Since, String> {
    match text {
        "last" => Ok(Since::Last),
        number => {
            let number =
                number.parse().map_err(|error| format!("{number} is neither last nor a snapshot's number: {error}"))?;
            Ok(Since::Snapshot(number))
        }
    }
}

/// Check the lake's records and say where they contradict themselves
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  rollbook audit --lake my-lake
  rollbook audit --lake my-lake --check 'token/*' --check pack/weight --run run-7
  rollbook audit --lake my-lake --fail-on rule --format json > report.json
  rollbook audit --lake my-lake --since last     what came after the last recorded audit, as a scheduled job runs it
  rollbook audit --lake my-lake --quarantine     and leave what the findings name out of builds and exports
  rollbook checks token/prefix                   what a check means, and what to do about its findings

A violation: the record contradicts itself. A rule: an expectation that the run declares is broken. Undeclared: it cannot
be judged, and the finding says what is missing; that never counts as passed.
Exit status: 0 clean, 1 findings at or above --fail-on, 2 wrong usage, 3 the lake could not be read.")]
pub(crate) struct Arguments {
    #[command(flatten)]
    read: ReadArgs,
    /// Checks to run, as family/name with * and ?; all of them when left out
    #[arg(long = "check", value_name = "GLOB")]
    checks: Vec<String>,
    /// Run to check; all of them when left out
    #[arg(long, value_name = "ID")]
    run: Option<String>,
    /// Examine only what came after a snapshot, or after the last recorded audit of the same checks
    #[arg(long, value_name = "SNAPSHOT|last", value_parser = since)]
    since: Option<Since>,
    /// Mildest finding that makes the exit status 1
    #[arg(long, value_enum, default_value_t = FailOn::Violation)]
    fail_on: FailOn,
    /// How the report is printed
    #[arg(long, value_enum, default_value_t = ReportFormat::Table)]
    format: ReportFormat,
    /// Leave the tables audits and findings as they are
    #[arg(long)]
    no_record: bool,
    /// Quarantine what the findings at or above --fail-on name: builds and exports leave it out
    #[arg(long, conflicts_with = "no_record")]
    quarantine: bool,
}

/// Runs the audit.
pub(crate) async fn run(arguments: Arguments) -> Result<ExitCode> {
    let session = arguments.read.session().await?;
    let since = arguments.since.unwrap_or_default();
    let options = AuditOptions { checks: arguments.checks, run: arguments.run, since };
    let mut report = rollbook_audit::audit(&session, &options).await?;
    let recorded = if arguments.no_record { None } else { Some(record(session.lake(), &mut report).await) };
    match arguments.format {
        ReportFormat::Table => show(&report)?,
        ReportFormat::Json => line(&serde_json::to_string(&report)?)?,
        ReportFormat::Junit => line(junit(&report, |outcome| arguments.fail_on.is_reached(outcome)).trim_end())?,
    }
    for (check, left) in report.left_out() {
        note(&format!("{check}: {left} more findings were counted and not kept; audit one run, or fewer checks"));
    }
    match recorded {
        Some(Ok(recorded)) => {
            note(&format!("recorded as {} in snapshot {}", recorded.audit_id, recorded.n));
            recorded.warnings.iter().for_each(|warning| note(&format!("warning: {warning}")));
        }
        // A lake that may only be read is audited all the same.
        Some(Err(error)) if error.kind() == ErrorKind::Denied && !arguments.quarantine => {
            note(&format!("warning: the findings were not recorded: {error}"));
        }
        Some(Err(error)) => {
            return Err(CommandError::from(error).hint("the findings above stand; they are not recorded"));
        }
        None => {}
    }
    if arguments.quarantine {
        let least = arguments.fail_on.least().unwrap_or(Outcome::Violation);
        let things = quarantine(&session, &report, least).await?;
        note(&format!("{} rollouts, calls and rows are newly quarantined: rollbook quarantine list", things.len()));
    }
    Ok(ExitCode::from(u8::from(report.worst().is_some_and(|worst| arguments.fail_on.is_reached(worst)))))
}

fn show(report: &Report) -> Result<()> {
    let rows: Vec<Vec<String>> = report
        .checks
        .iter()
        .map(|count| {
            vec![
                count.check.to_owned(),
                count.violation.to_string(),
                count.rule.to_string(),
                count.undeclared.to_string(),
                count.examined.to_string(),
            ]
        })
        .collect();
    line(&format!("audit of snapshot {}", report.snapshot))?;
    line(&small_table(&["check", "violation", "rule", "undeclared", "examined"], &rows))?;
    for count in report.checks.iter().filter(|count| count.violation + count.rule > 0) {
        findings(report, count)?;
    }
    undeclared(report)?;
    if report.worst().is_none() {
        line("nothing was found")?;
    }
    Ok(())
}

fn findings(report: &Report, count: &Count) -> Result<()> {
    line(&format!("\n{} ({})", count.check, numbers(count)))?;
    for finding in report.of(count.check).filter(|finding| finding.outcome > Outcome::Undeclared).take(SHOWN) {
        line(&format!("  {:<10} {}", finding.outcome.as_str(), plain(&finding.message)))?;
        let place = place(finding);
        if !place.is_empty() {
            line(&format!("             at {place}"))?;
        }
    }
    let more = (count.violation + count.rule).saturating_sub(SHOWN as u64);
    if more > 0 {
        line(&format!(
            "  … {more} more: rollbook sql -c \"SELECT * FROM findings WHERE \\\"check\\\" = '{}'\"",
            count.check
        ))?;
    }
    Ok(())
}

/// What could not be judged: one entry for each missing field of a run, with the checks that want it.
fn undeclared(report: &Report) -> Result<()> {
    let mut fields: BTreeMap<(Option<&str>, &str), (&Finding, Vec<&str>)> = BTreeMap::new();
    for finding in report.findings.iter().filter(|finding| finding.outcome == Outcome::Undeclared) {
        // Several checks want one field, each for calls of its own.
        let field = finding.message.split_once(" is missing").map_or(finding.message.as_str(), |(field, _)| field);
        let (_, checks) = fields.entry((finding.run_id.as_deref(), field)).or_insert((finding, Vec::new()));
        if !checks.contains(&finding.check.as_str()) {
            checks.push(&finding.check);
        }
    }
    if fields.is_empty() {
        return Ok(());
    }
    line(&format!("\nundeclared ({} fields or expectations are missing)", fields.len()))?;
    for (finding, checks) in fields.values() {
        line(&format!("  {}", plain(&finding.message)))?;
        let place = place(finding);
        let at = if place.is_empty() { String::new() } else { format!("at {place}, ") };
        line(&format!("             {at}for {}", checks.join(", ")))?;
    }
    Ok(())
}

fn numbers(count: &Count) -> String {
    let parts = [(count.violation, "violation"), (count.rule, "rule"), (count.undeclared, "undeclared")];
    let named = parts.iter().filter(|(number, _)| *number > 0).map(|(number, name)| format!("{number} {name}"));
    named.collect::<Vec<_>>().join(", ")
}

/// Where it is, from the run inwards, as far as the message does not say it.
fn place(finding: &Finding) -> String {
    let parts: Vec<String> = [
        finding.run_id.clone(),
        finding.step.map(|step| format!("step {step}")),
        finding.group_id.clone(),
        finding.rollout_id.clone(),
        finding.build_id.clone(),
        finding.row_index.and(finding.epoch.filter(|epoch| *epoch > 0)).map(|epoch| format!("epoch {epoch}")),
        finding.row_index.and(finding.rank.filter(|rank| *rank > 0)).map(|rank| format!("rank {rank}")),
        finding.row_index.and(finding.micro_batch).map(|batch| format!("micro-batch {batch}")),
        finding.row_index.map(|row| format!("row {row}")),
        finding.call_id.clone(),
    ]
    .into_iter()
    .flatten()
    .filter(|part| !finding.message.contains(part.as_str()))
    .collect();
    plain(&parts.join(" / "))
}
