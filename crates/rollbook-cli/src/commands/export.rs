//! `rollbook export`: writes a build's samples as files for a trainer.

use std::process::ExitCode;

use clap::{Args, ValueEnum};
use rollbook_query::export::{self, ExportOptions};

use crate::error::Result;
use crate::lake::{ReadArgs, options};
use crate::output::{line, note, plain};

/// Form of the sample files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum SampleFormat {
    /// Parquet files
    Parquet,
    /// Arrow IPC files
    Arrow,
}

/// Write a build's samples as files for a trainer, with a manifest
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  rollbook export merged batches/ --format parquet --lake my-lake
  rollbook export merged s3://training/batches --format arrow --lake s3://lake/team-a
  rollbook verify batches/                       reads every file again and compares it with the manifest

manifest.json is written last: a folder without it is not a finished export.")]
pub(crate) struct Arguments {
    /// Build: its name (the newest of it) or id
    build: String,
    /// Folder or an s3 URL
    dest: String,
    #[command(flatten)]
    read: ReadArgs,
    /// Form of the files
    #[arg(long, value_enum, default_value_t = SampleFormat::Parquet)]
    format: SampleFormat,
    /// Export a build that accepted tokens whose source was only assumed
    #[arg(long)]
    accept_assumed: bool,
    /// Export rows although they are quarantined
    #[arg(long)]
    include_quarantined: bool,
}

/// Writes the export.
pub(crate) async fn run(arguments: Arguments) -> Result<ExitCode> {
    let session = arguments.read.session().await?;
    let format = match arguments.format {
        SampleFormat::Parquet => export::Format::Parquet,
        SampleFormat::Arrow => export::Format::Arrow,
    };
    let mut chosen = ExportOptions::new(format);
    chosen.accept_assumed = arguments.accept_assumed;
    chosen.include_quarantined = arguments.include_quarantined;
    chosen.env = options().env;
    let manifest = export::export(&session, &arguments.build, &arguments.dest, &chosen).await?;
    line(&format!(
        "{} rows, {} tokens ({} trained) in {} files at {}",
        manifest.rows,
        manifest.tokens,
        manifest.trained_tokens,
        manifest.files.len(),
        plain(&arguments.dest)
    ))?;
    if manifest.rows_quarantined > 0 {
        note(&format!("{} quarantined rows were left out", manifest.rows_quarantined));
    }
    line(&format!("  manifest.json: build {}, snapshot {}", manifest.build_id, manifest.snapshot))?;
    Ok(ExitCode::SUCCESS)
}
