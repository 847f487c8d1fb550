//! `cargo xtask`: what a contributor and CI run. One file per subcommand.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command line tool of the repository, not of users")]

mod ci;
mod docs;
mod generated;
mod process;
mod python;
mod schema;
mod test;
mod tidy;

use std::{error::Error, process::ExitCode};

use clap::{Args, Parser, Subcommand};

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

/// Builds, checks and generates what the repository holds.
#[derive(Parser)]
#[command(name = "xtask")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Generates column constants and docs/schema.md from schema/.
    Schema(Mode),
    /// Generates every page of docs/ that comes from source.
    Docs(Mode),
    /// Checks house rules that no lint knows.
    Tidy,
    /// Runs all tests; arguments go to the test runner.
    Test {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        runner: Vec<String>,
    },
    /// Runs everything CI runs, with the time of each step.
    Ci,
}

#[derive(Args, Clone, Copy)]
struct Mode {
    /// Writes nothing and fails where a file would change.
    #[arg(long)]
    check: bool,
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().task {
        Task::Schema(mode) => schema::run(mode.check),
        Task::Docs(mode) => docs::run(mode.check),
        Task::Tidy => tidy::run(),
        Task::Test { runner } => test::run(&runner),
        Task::Ci => ci::run(),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
