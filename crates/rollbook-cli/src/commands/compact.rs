//! `rollbook compact`: joins small files.

use std::process::ExitCode;

use clap::Args;
use rollbook_query::compact::{CompactOptions, CompactReport, compact};
use serde_json::json;

use super::schema::TextFormat;
use crate::error::Result;
use crate::lake::{LakeArgs, MemoryArgs};
use crate::output::{line, note, small_table};

/// Join the small files that many imports leave, and bring each rollout's calls together
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  rollbook compact --lake my-lake
  rollbook compact --lake s3://lake/team-a --run run-7

No row changes: one snapshot puts fewer files in the place of many. The old files stay for earlier snapshots.")]
pub(crate) struct Arguments {
    #[command(flatten)]
    lake: LakeArgs,
    /// Run to which it is restricted
    #[arg(long, value_name = "ID")]
    run: Option<String>,
    /// How the report is printed
    #[arg(long, value_enum, default_value_t = TextFormat::Table)]
    format: TextFormat,
    #[command(flatten)]
    memory: MemoryArgs,
}

/// Compacts the lake.
pub(crate) async fn run(arguments: Arguments) -> Result<ExitCode> {
    let lake = arguments.lake.open().await?;
    let memory_limit = arguments.memory.memory_limit << 20;
    let options = CompactOptions { run: arguments.run, memory_limit, ..CompactOptions::default() };
    let report = compact(&lake, &options).await?;
    for text in &report.notes {
        note(&format!("note: {text}"));
    }
    match arguments.format {
        TextFormat::Table => show(&report)?,
        TextFormat::Json => line(&as_json(&report).to_string())?,
    }
    Ok(ExitCode::SUCCESS)
}

fn show(report: &CompactReport) -> Result<()> {
    let Some(n) = report.snapshot else {
        return line("there is nothing to join");
    };
    let rows: Vec<Vec<String>> = report
        .tables
        .iter()
        .map(|(table, joined)| {
            vec![
                table.clone(),
                joined.rows.to_string(),
                format!("{} -> {}", joined.files_before, joined.files_after),
                format!(
                    "{} -> {}",
                    indicatif::HumanBytes(joined.bytes_before),
                    indicatif::HumanBytes(joined.bytes_after)
                ),
            ]
        })
        .collect();
    line(&small_table(&["table", "rows", "files", "bytes"], &rows))?;
    line(&format!("snapshot {n} has the joined files"))
}

fn as_json(report: &CompactReport) -> serde_json::Value {
    let tables: serde_json::Map<_, _> = report
        .tables
        .iter()
        .map(|(table, joined)| {
            let counts = json!({
                "rows": joined.rows, "files_before": joined.files_before, "files_after": joined.files_after,
                "bytes_before": joined.bytes_before, "bytes_after": joined.bytes_after,
            });
            (table.clone(), counts)
        })
        .collect();
    json!({ "snapshot": report.snapshot, "tables": tables, "notes": report.notes })
}
