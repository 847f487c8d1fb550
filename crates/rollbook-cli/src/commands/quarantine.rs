//! `rollbook quarantine`: shows and lifts what builds and exports leave out.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use rollbook_audit::{Quarantined, lift, quarantined};
use serde_json::json;

use super::schema::TextFormat;
use crate::error::Result;
use crate::lake::ReadArgs;
use crate::output::{line, plain, small_table};

/// Show and lift what builds and exports leave out
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  rollbook audit --quarantine --lake my-lake                    what findings name is left out from now on
  rollbook quarantine list --run run-7 --lake my-lake
  rollbook quarantine lift quarantine-0a1b --lake my-lake       by its id, or by a rollout, a call or an audit
  rollbook build merged --credit grpo --include-quarantined …   once, all the same

Nothing is deleted: a lift is a row of its own in the table quarantine.")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Show what is left out, and why
    List {
        #[command(flatten)]
        read: ReadArgs,
        /// Run; all of them when left out
        #[arg(long, value_name = "ID")]
        run: Option<String>,
        /// How it is printed
        #[arg(long, value_enum, default_value_t = TextFormat::Table)]
        format: TextFormat,
    },
    /// Take things back
    Lift {
        /// Ids of quarantine, or of rollouts, calls or audits
        #[arg(required = true)]
        ids: Vec<String>,
        #[command(flatten)]
        read: ReadArgs,
        /// How it is printed
        #[arg(long, value_enum, default_value_t = TextFormat::Table)]
        format: TextFormat,
    },
}

/// Lists or lifts.
pub(crate) async fn run(arguments: Arguments) -> Result<ExitCode> {
    match arguments.action {
        Action::List { read, run, format } => {
            show(&quarantined(&read.session().await?, run.as_deref()).await?, format, "nothing is quarantined")?;
        }
        Action::Lift { ids, read, format } => {
            show(&lift(&read.session().await?, &ids).await?, format, "nothing was lifted")?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn show(things: &[Quarantined], format: TextFormat, none: &str) -> Result<()> {
    if matches!(format, TextFormat::Json) {
        return line(&json!({ "quarantine": things }).to_string());
    }
    if things.is_empty() {
        return line(none);
    }
    let rows: Vec<Vec<String>> = things
        .iter()
        .map(|thing| {
            let name = match thing.level.as_str() {
                "sample" => row_name(thing),
                "call" => thing.call_id.clone().unwrap_or_default(),
                _ => thing.rollout_id.clone().unwrap_or_default(),
            };
            let texts =
                [&thing.quarantine_id, &thing.run_id, &thing.level, &name, thing.reason.as_ref().unwrap_or(&name)];
            texts.map(|text| plain(text)).to_vec()
        })
        .collect();
    line(&small_table(&["id", "run", "level", "what", "why"], &rows))
}

/// A row by its build and its place in it.
fn row_name(thing: &Quarantined) -> String {
    let parts = [
        Some(thing.build_id.clone().unwrap_or_else(|| "?".to_owned())),
        thing.step.map(|step| format!("step {step}")),
        thing.epoch.filter(|epoch| *epoch > 0).map(|epoch| format!("epoch {epoch}")),
        thing.rank.filter(|rank| *rank > 0).map(|rank| format!("rank {rank}")),
        thing.micro_batch.map(|batch| format!("micro-batch {batch}")),
        thing.row_index.map(|row| format!("row {row}")),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(" ")
}
