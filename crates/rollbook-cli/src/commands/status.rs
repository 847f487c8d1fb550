//! `rollbook status`: shows a snapshot and what each table holds.

use std::process::ExitCode;

use clap::Args;
use rollbook_lake::{ForeignCommit, Snapshot};
use serde_json::json;

use super::history::time;
use super::schema::TextFormat;
use crate::error::Result;
use crate::lake::LakeArgs;
use crate::output::{line, note, small_table};

/// Show the newest snapshot and what each table holds
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  rollbook status --lake my-lake
  rollbook status --lake my-lake --at 3 --format json")]
pub(crate) struct Arguments {
    #[command(flatten)]
    lake: LakeArgs,
    /// Snapshot to read; the newest when left out
    #[arg(long, value_name = "SNAPSHOT")]
    at: Option<u64>,
    /// How it is printed
    #[arg(long, value_enum, default_value_t = TextFormat::Table)]
    format: TextFormat,
}

/// Prints the status.
pub(crate) async fn run(arguments: Arguments) -> Result<ExitCode> {
    let lake = arguments.lake.open().await?;
    let snapshot = match arguments.at {
        Some(n) => lake.snapshot_at(n).await?,
        None => lake.snapshot().await?,
    };
    let foreign = if arguments.at.is_none() { lake.foreign_commits(&snapshot).await? } else { Vec::new() };
    match arguments.format {
        TextFormat::Table => {
            line(&format!("lake {} at {}", lake.id(), lake.url()))?;
            line(&format!("snapshot {} of {}", snapshot.n, time(snapshot.created_at)))?;
            show(&snapshot)?;
        }
        TextFormat::Json => line(&as_json(lake.id(), &snapshot, &foreign).to_string())?,
    }
    for commit in &foreign {
        note(&format!("warning: {commit}"));
    }
    Ok(ExitCode::SUCCESS)
}

fn show(snapshot: &Snapshot) -> Result<()> {
    let rows: Vec<Vec<String>> = rollbook_schema::tables()
        .iter()
        .map(|table| (table, snapshot.table(&table.name)))
        .filter(|(_, state)| !state.files.is_empty())
        .map(|(table, state)| {
            let bytes: u64 = state.files.iter().map(|file| file.size).sum();
            vec![
                table.name.clone(),
                state.rows().to_string(),
                state.files.len().to_string(),
                indicatif::HumanBytes(bytes).to_string(),
                state.version.to_string(),
            ]
        })
        .collect();
    if rows.is_empty() {
        return line("every table is empty: rollbook import tables DIR");
    }
    line(&small_table(&["table", "rows", "files", "bytes", "Delta version"], &rows))
}

fn as_json(id: &str, snapshot: &Snapshot, foreign: &[ForeignCommit]) -> serde_json::Value {
    let tables: serde_json::Map<String, serde_json::Value> = snapshot
        .tables()
        .map(|(name, state)| {
            let bytes: u64 = state.files.iter().map(|file| file.size).sum();
            let facts =
                json!({ "rows": state.rows(), "files": state.files.len(), "bytes": bytes, "version": state.version });
            (name.to_owned(), facts)
        })
        .collect();
    let foreign: Vec<String> = foreign.iter().map(ToString::to_string).collect();
    json!({ "lake_id": id, "snapshot": snapshot.n, "created_at": time(snapshot.created_at), "tables": tables, "foreign_commits": foreign })
}
