//! `rollbook history`: lists the lake's commits.

use std::process::ExitCode;

use clap::Args;
use rollbook_lake::{Entry, Kind};
use serde_json::json;

use super::schema::TextFormat;
use crate::error::Result;
use crate::lake::LakeArgs;
use crate::output::{line, small_table};

/// List the lake's commits, newest first
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  rollbook history --lake my-lake
  rollbook history --lake my-lake --limit 5 --format json")]
pub(crate) struct Arguments {
    #[command(flatten)]
    lake: LakeArgs,
    /// Snapshot to start at; the newest when left out
    #[arg(long, value_name = "SNAPSHOT")]
    at: Option<u64>,
    /// How many commits
    #[arg(long, default_value_t = 20)]
    limit: usize,
    /// How it is printed
    #[arg(long, value_enum, default_value_t = TextFormat::Table)]
    format: TextFormat,
}

/// Prints the history.
pub(crate) async fn run(arguments: Arguments) -> Result<ExitCode> {
    let lake = arguments.lake.open().await?;
    let entries = lake.history(arguments.at, arguments.limit).await?;
    match arguments.format {
        TextFormat::Table => {
            let rows: Vec<Vec<String>> = entries.iter().map(row).collect();
            line(&small_table(&["snapshot", "time", "kind", "author", "reason", "tables"], &rows))?;
        }
        TextFormat::Json => {
            let all: Vec<_> = entries.iter().map(as_json).collect();
            line(&serde_json::Value::Array(all).to_string())?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn kind(entry: &Entry) -> &'static str {
    match entry.kind {
        Kind::Append => "append",
        Kind::Rewrite => "rewrite",
    }
}

fn row(entry: &Entry) -> Vec<String> {
    let tables: Vec<&str> = entry.changes.keys().map(String::as_str).collect();
    let tables = if entry.n == 0 { "all".to_owned() } else { tables.join(", ") };
    vec![
        entry.n.to_string(),
        time(entry.created_at),
        kind(entry).to_owned(),
        entry.author.clone(),
        entry.reason.clone(),
        tables,
    ]
}

fn as_json(entry: &Entry) -> serde_json::Value {
    json!({
        "snapshot": entry.n,
        "parent": entry.parent,
        "kind": kind(entry),
        "created_at": time(entry.created_at),
        "author": entry.author,
        "reason": entry.reason,
        "source_digest": entry.source_digest,
        "import_id": entry.import_id,
        "derivation_id": entry.derivation_id,
        "tables": entry.tables,
        "changed": entry.changes.keys().collect::<Vec<_>>(),
    })
}

/// UTC microseconds as RFC 3339.
pub(crate) fn time(microseconds: i64) -> String {
    chrono::DateTime::from_timestamp_micros(microseconds)
        .map_or_else(|| microseconds.to_string(), |time| time.to_rfc3339_opts(chrono::SecondsFormat::Secs, true))
}
