//! The `rollbook` command: parses arguments, calls the libraries, prints. The only crate that prints, reads the
//! environment or asks the time.

mod commands;
mod error;
mod lake;
mod output;
mod progress;

use std::process::ExitCode;

use clap::Parser;

use crate::commands::Command;
use crate::error::CommandError;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The book of record for agentic-RL rollouts: exact tokens in, audited and packed batches out, every step SQL.
#[derive(Debug, Parser)]
#[command(name = "rollbook", version, max_term_width = 110, after_help = AFTER_HELP)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

const AFTER_HELP: &str = "Examples:
  rollbook quickstart                                    the whole way on a small real run, in ./quickstart-lake
  rollbook init my-lake                                  a lake in a folder (or s3://bucket/prefix)
  rollbook import tables my-run/ --lake my-lake
  rollbook sql --lake my-lake -c 'SELECT status, count(*) FROM rollouts GROUP BY status'

Exit status: 0 done, 1 findings or a failed check, 2 wrong usage or input, 3 the store could not be read or written.
Set ROLLBOOK_LAKE to leave --lake out.";

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    // object_store and Delta's kernel link two TLS providers: one has to be named before the first connection.
    if rustls::crypto::ring::default_provider().install_default().is_err() {
        return error::report(&CommandError::unavailable("no TLS provider could be installed"));
    }
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(source) => return error::report(&CommandError::unavailable(format!("no runtime: {source}"))),
    };
    match runtime.block_on(arguments.command.run()) {
        Ok(code) => code,
        Err(error) => error::report(&error),
    }
}
