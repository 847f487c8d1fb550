//! `rollbook import`: reads a source into the lake.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use rollbook_import::{importer, importers};
use rollbook_query::ingest::{self, ImportReport, IngestOptions};
use serde_json::json;

use super::schema::TextFormat;
use crate::error::{CommandError, Result};
use crate::lake::{LakeArgs, MemoryArgs};
use crate::output::{line, note, small_table};
use crate::progress::ImportBar;

/// Read files of another system, or the exchange format, into the lake
#[derive(Debug, Args)]
#[command(after_help = "Formats:
  tables      a folder with <table>.jsonl, .parquet or .arrow in the logical columns (rollbook schema shows them)
  openai-log  lines of {request, response, metadata} as vLLM, SGLang and OpenAI-compatible servers give them

Examples:
  rollbook import tables my-run/ --lake my-lake
  rollbook import openai-log requests.jsonl --lake my-lake --run run-7
  rollbook import tables my-run/ --dry-run            count and name bad records, write nothing

The same source twice adds nothing. A record that cannot be read is reported with file, line and field, and kept in the
table rejects; the rest goes in, unless --strict.")]
pub(crate) struct Arguments {
    /// Format of the source: tables or openai-log
    #[arg(value_name = "FORMAT")]
    source_format: String,
    /// Files or folders
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    #[command(flatten)]
    lake: LakeArgs,
    /// Run of the rows that name none
    #[arg(long, value_name = "ID")]
    run: Option<String>,
    /// Read and count only
    #[arg(long)]
    dry_run: bool,
    /// End at the first record that cannot be read, and write nothing
    #[arg(long)]
    strict: bool,
    /// How the report is printed
    #[arg(long, value_enum, default_value_t = TextFormat::Table)]
    format: TextFormat,
    #[command(flatten)]
    memory: MemoryArgs,
}

/// Imports the source.
pub(crate) async fn run(arguments: Arguments) -> Result<ExitCode> {
    let reader = importer(&arguments.source_format).ok_or_else(|| {
        let names: Vec<&str> = importers().iter().map(|reader| reader.name()).collect();
        CommandError::usage(format!("no format is called {}; there are: {}", arguments.source_format, names.join(", ")))
    })?;
    let lake = arguments.lake.open().await?;
    let options = IngestOptions {
        run_id: arguments.run,
        strict: arguments.strict,
        dry_run: arguments.dry_run,
        memory_limit: arguments.memory.memory_limit << 20,
        spill_dir: None,
    };
    let bar = ImportBar::start();
    let imported = ingest::import(&lake, reader, &arguments.paths, &options, &|progress| bar.show(progress)).await;
    bar.finish();
    let report = imported?;
    match arguments.format {
        TextFormat::Table => show(&report, arguments.dry_run)?,
        TextFormat::Json => line(&as_json(&report, arguments.dry_run).to_string())?,
    }
    // A source that gave nothing but rejects did not do what was asked.
    let nothing = report.rejected > 0 && report.tables.values().all(|count| count.read == 0);
    Ok(if nothing { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn show(report: &ImportReport, dry_run: bool) -> Result<()> {
    for text in &report.notes {
        note(&format!("note: {text}"));
    }
    for reject in &report.rejects {
        let place = reject.line.map(|line| format!(", line {line}")).unwrap_or_default();
        let field = reject.field.as_ref().map(|field| format!(", {field}")).unwrap_or_default();
        note(&format!("rejected: {}{place}{field}: {}", reject.file, reject.reason));
    }
    if report.rejected > report.rejects.len() as u64 {
        note(&format!("… {} rejected in all; the table rejects has each of them", report.rejected));
    }
    for text in &report.warnings {
        note(&format!("warning: {text}"));
    }
    if report.already_in {
        let at = report.snapshot.map(|n| format!(" (snapshot {n})")).unwrap_or_default();
        return line(&format!("this source is in the lake already{at}: nothing to add"));
    }
    let rows: Vec<Vec<String>> = report
        .tables
        .iter()
        .map(|(table, count)| {
            vec![table.clone(), count.read.to_string(), count.added.to_string(), count.known.to_string()]
        })
        .collect();
    line(&small_table(&["table", "read", "added", "known already"], &rows))?;
    match report.snapshot {
        Some(n) => line(&format!("{} is in snapshot {n}; {} rejected", report.import_id, report.rejected)),
        None if dry_run => line(&format!("dry run: nothing was written; {} would be rejected", report.rejected)),
        None => Ok(()),
    }
}

fn as_json(report: &ImportReport, dry_run: bool) -> serde_json::Value {
    let tables: serde_json::Map<String, serde_json::Value> = report
        .tables
        .iter()
        .map(|(table, count)| {
            (table.clone(), json!({ "read": count.read, "added": count.added, "known": count.known }))
        })
        .collect();
    let rejects: Vec<_> = report
        .rejects
        .iter()
        .map(|reject| json!({ "file": reject.file, "line": reject.line, "field": reject.field, "reason": reject.reason }))
        .collect();
    json!({
        "import_id": report.import_id,
        "source_digest": report.source_digest,
        "snapshot": report.snapshot,
        "already_in": report.already_in,
        "dry_run": dry_run,
        "tables": tables,
        "rejected": report.rejected,
        "rejects": rejects,
        "notes": report.notes,
        "warnings": report.warnings,
    })
}
