//! `rollbook rules`: shows and sets what a run's owner expects of it.

use std::process::ExitCode;

use clap::Args;
use rollbook_audit::{Rule, RuleChanges, rules, set_rules};
use rollbook_query::Session;
use serde_json::{Value, json};

use super::schema::TextFormat;
use crate::error::{CommandError, Result};
use crate::lake::ReadArgs;
use crate::output::{line, note, small_table};

/// Show and set what a run is expected to be, and which checks that switches on
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  rollbook rules run-7 --lake my-lake
  rollbook rules run-7 --set expected_group_size=8 --set objective_unit=rollout --lake my-lake
  rollbook rules run-7 --set credit_rule.std_scope=group --unset max_staleness --lake my-lake
  rollbook rules run-7 --format json --lake my-lake

Setting appends a revision of the run's row; what was declared before stays in runs_history. An expectation that is not
declared is not checked, and the checks that need it answer undeclared.")]
pub(crate) struct Arguments {
    /// Run
    run: String,
    #[command(flatten)]
    read: ReadArgs,
    /// Declare an expectation, as name=value
    #[arg(long, value_name = "NAME=VALUE")]
    set: Vec<String>,
    /// Declare nothing of this name any more
    #[arg(long, value_name = "NAME")]
    unset: Vec<String>,
    /// How it is printed
    #[arg(long, value_enum, default_value_t = TextFormat::Table)]
    format: TextFormat,
}

/// Sets what is to be set, and prints the run's expectations.
pub(crate) async fn run(arguments: Arguments) -> Result<ExitCode> {
    let mut changes = RuleChanges { set: Vec::new(), unset: arguments.unset };
    for pair in &arguments.set {
        let (name, value) =
            pair.split_once('=').ok_or_else(|| CommandError::usage(format!("--set takes name=value, not {pair}")))?;
        changes.set.push((name.trim().to_owned(), value.to_owned()));
    }
    let mut session = arguments.read.session().await?;
    if changes != RuleChanges::default() {
        if arguments.read.at.is_some() {
            return Err(CommandError::usage("--set and --unset change the newest snapshot: leave --at out"));
        }
        match set_rules(&session, &arguments.run, &changes).await? {
            Some(n) => {
                note(&format!("declared in snapshot {n}"));
                session = Session::open(session.lake(), Some(n), session.options().clone()).await?;
            }
            None => note("that is declared already; nothing was written"),
        }
    }
    let rules = rules(&session, &arguments.run).await?;
    match arguments.format {
        TextFormat::Table => show(&rules)?,
        TextFormat::Json => line(&json!({ "run_id": arguments.run, "rules": rules }).to_string())?,
    }
    Ok(ExitCode::SUCCESS)
}

fn show(rules: &[Rule]) -> Result<()> {
    let rows: Vec<Vec<String>> = rules
        .iter()
        .map(|rule| {
            let value = match &rule.value {
                Value::Null => "undeclared".to_owned(),
                Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            vec![rule.name.clone(), value, rule.kind.clone(), rule.checks.join(", ")]
        })
        .collect();
    line(&small_table(&["expectation", "declared", "is", "checks that need it"], &rows))
}
