//! `rollbook verify`: reads an export again and compares it with its manifest.

use std::process::ExitCode;

use clap::Args;
use rollbook_query::export;

use crate::error::Result;
use crate::lake::options;
use crate::output::{line, plain};

/// Read an export again and compare it with its manifest
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  rollbook verify batches/
  rollbook verify s3://training/batches

Exit status: 0 all files are as the manifest says, 1 one is not.")]
pub(crate) struct Arguments {
    /// Folder or an s3 URL of an export
    dest: String,
}

/// Checks the export.
pub(crate) async fn run(arguments: Arguments) -> Result<ExitCode> {
    let (manifest, faults) = export::verify(&arguments.dest, &options().env).await?;
    for fault in &faults {
        line(&format!("{}: {}", plain(&fault.path), plain(&fault.message)))?;
    }
    if !faults.is_empty() {
        return Ok(ExitCode::FAILURE);
    }
    line(&format!(
        "{} files, {} rows: all as build {} was exported",
        manifest.files.len(),
        manifest.rows,
        manifest.build_id
    ))?;
    Ok(ExitCode::SUCCESS)
}
