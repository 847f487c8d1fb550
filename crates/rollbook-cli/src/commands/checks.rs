//! `rollbook checks`: lists the audit's checks, or explains one.

use std::process::ExitCode;

use clap::Args;
use rollbook_audit::{Check, checks};
use serde_json::json;

use super::schema::TextFormat;
use crate::error::{CommandError, Result};
use crate::output::{line, small_table};

/// List the audit's checks, or explain one
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  rollbook checks                     all of them
  rollbook checks token/prefix        one: what it proves and cannot prove, false positives, the fix, its SQL
  rollbook checks --format json")]
pub(crate) struct Arguments {
    /// Check, as family/name; all of them when left out
    code: Option<String>,
    /// How it is printed
    #[arg(long, value_enum, default_value_t = TextFormat::Table)]
    format: TextFormat,
}

/// Prints the checks.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let chosen: Vec<&Check> = match &arguments.code {
        Some(code) => vec![rollbook_audit::check(code).ok_or_else(|| unknown(code))?],
        None => checks().iter().collect(),
    };
    match (arguments.format, &arguments.code) {
        (TextFormat::Json, _) => {
            let all: Vec<_> = chosen.into_iter().map(as_json).collect();
            line(&serde_json::Value::Array(all).to_string())?;
        }
        (TextFormat::Table, Some(_)) => chosen.into_iter().try_for_each(explain)?,
        (TextFormat::Table, None) => {
            let rows: Vec<Vec<String>> = chosen
                .into_iter()
                .map(|check| {
                    vec![
                        check.code.to_owned(),
                        check.question.clone(),
                        check.layer.clone(),
                        check.severity.clone(),
                        check.version.to_string(),
                    ]
                })
                .collect();
            line(&small_table(&["check", "question", "layer", "severity", "version"], &rows))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn unknown(code: &str) -> CommandError {
    let codes: Vec<&str> = checks().iter().map(|check| check.code).collect();
    CommandError::usage(format!("no check is called {code}; there are: {}", codes.join(", ")))
}

fn explain(check: &Check) -> Result<()> {
    line(check.readme.trim())?;
    line(&format!(
        "\nlayer {}, severity {}, version {}; needs {}",
        check.layer,
        check.severity,
        check.version,
        check.needs.join(", ")
    ))?;
    line(&format!("\n{}", check.sql.trim()))
}

fn as_json(check: &Check) -> serde_json::Value {
    json!({
        "check": check.code,
        "question": check.question,
        "layer": check.layer,
        "severity": check.severity,
        "version": check.version,
        "outcome": check.outcome.as_str(),
        "needs": check.needs,
        "readme": page(check.readme),
        "sql": check.sql.trim(),
    })
}

/// The page below its own title, which names the code once more.
fn page(readme: &str) -> &str {
    readme.trim().split_once('\n').map_or("", |(_, rest)| rest).trim()
}
