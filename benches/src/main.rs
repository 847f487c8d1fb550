//! Is it fast? The generator of workloads, and what they cost in Rollbook and in its peers.

mod append;
mod generate;
mod growth;
mod job;
mod layout;
mod yardstick;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use mimalloc::MiMalloc;

/// As the program has it.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

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
    Growth(growth::Growth),
    Job(job::Job),
    Layout(layout::Layout),
    Yardstick(yardstick::Yardstick),
    #[command(hide = true)]
    Task(yardstick::Task),
}

fn main() -> ExitCode {
    let done = match Arguments::parse().command {
        Command::Append(command) => command.run(),
        Command::Generate(command) => command.run(),
        Command::Growth(command) => command.run(),
        Command::Job(command) => command.run(),
        Command::Layout(command) => command.run(),
        Command::Yardstick(command) => command.run(),
        Command::Task(command) => command.run(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            generate::report(error.as_ref());
            ExitCode::FAILURE
        }
    }
}
