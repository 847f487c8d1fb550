//! Is it fast? The generator of workloads; one file a question follows beside this one.

mod append;
mod generate;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Workloads and measurements of Rollbook.
#[derive(Debug, Parser)]
#[command(name = "rollbook-benches")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Append(append::Append),
    Generate(generate::Generate),
}

fn main() -> ExitCode {
    let done = match Arguments::parse().command {
        Command::Append(command) => command.run(),
        Command::Generate(command) => command.run(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            generate::report(error.as_ref());
            ExitCode::FAILURE
        }
    }
}
