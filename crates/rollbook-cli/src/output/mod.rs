//! Prints query results: tables for people, machine formats to stdout alone.

mod cell;
mod machine;
mod table;

use std::io::{self, IsTerminal, Write};

use clap::ValueEnum;
use datafusion::execution::SendableRecordBatchStream;

use crate::error::Result;

pub(crate) use cell::plain;
pub(crate) use table::{TableShape, small_table, width};

/// How rows are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// A table that fits the terminal; long lists and texts are shortened
    Table,
    /// Comma-separated values with a header; nested values as JSON text
    Csv,
    /// One array of JSON objects, nulls written out
    Json,
    /// One JSON object a line, nulls written out
    Ndjson,
    /// A Parquet file on stdout
    Parquet,
    /// An Arrow IPC stream on stdout
    Arrow,
}

/// Prints all rows of a stream in a format.
pub(crate) async fn print(stream: SendableRecordBatchStream, format: Format, shape: &TableShape) -> Result<()> {
    let stdout = io::stdout();
    let binary = matches!(format, Format::Parquet | Format::Arrow);
    if binary && stdout.is_terminal() {
        return Err(crate::error::CommandError::usage("a binary format is not printed to a terminal")
            .hint("send it to a file: rollbook sql … --format parquet > rows.parquet"));
    }
    match format {
        Format::Table => table::print(stream, shape).await,
        Format::Csv => machine::csv(stream).await,
        Format::Json => machine::json(stream).await,
        Format::Ndjson => machine::ndjson(stream).await,
        Format::Parquet => machine::parquet(stream).await,
        Format::Arrow => machine::arrow(stream).await,
    }
}

/// Prints a line to stdout; a reader that went away ends the output quietly.
pub(crate) fn line(text: &str) -> Result<()> {
    written(writeln!(io::stdout().lock(), "{text}"))
}

/// Prints a remark to stderr.
#[expect(clippy::print_stderr, reason = "remarks go to stderr so that stdout stays for data")]
pub(crate) fn note(text: &str) {
    eprintln!("{}", plain(text));
}

/// Turns a closed pipe into a quiet end: `rollbook sql … | head` is no failure.
pub(crate) fn written(result: io::Result<()>) -> Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => Ok(other?),
    }
}
