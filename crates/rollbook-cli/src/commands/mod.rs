//! The commands, one file each, in the order of the help.

mod audit;
mod build;
mod checks;
mod compact;
mod compare;
mod credit;
mod derive;
mod export;
mod functions;
mod history;
mod import;
mod init;
mod quarantine;
mod quickstart;
mod recipes;
mod reward;
mod rules;
mod schema;
mod sql;
mod status;
mod verify;
mod weights;

use std::process::ExitCode;

use clap::Subcommand;

use crate::error::Result;

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Walk the whole way on a small real run: import, audit, reward, credit, build, export
    Quickstart(quickstart::Arguments),
    /// Make a lake in a folder or at an s3 URL
    Init(init::Arguments),
    /// Read files of another system, or the exchange format, into the lake
    Import(import::Arguments),
    /// Query the lake, at one snapshot, read-only
    Sql(sql::Arguments),
    /// Check the lake's records and say where they contradict themselves
    Audit(audit::Arguments),
    /// Show and set what a run is expected to be, and which checks that switches on
    Rules(rules::Arguments),
    /// Show and lift what builds and exports leave out
    Quarantine(quarantine::Arguments),
    /// Run a reward recipe over stored scores
    Reward(reward::Arguments),
    /// Run a credit recipe over a reward
    Credit(credit::Arguments),
    /// Merge, pack and weight samples for a trainer
    Build(build::Arguments),
    /// Compare two rewards, credits or builds: where and by how much they differ
    Compare(compare::Arguments),
    /// Account for a build's tokens and loss weight
    Weights(weights::Arguments),
    /// Write a build's samples as files for a trainer, with a manifest
    Export(export::Arguments),
    /// Read an export again and compare it with its manifest
    Verify(verify::Arguments),
    /// Show the newest snapshot and what each table holds
    Status(status::Arguments),
    /// Join the small files that many imports leave, and bring each rollout's calls together
    Compact(compact::Arguments),
    /// List the lake's commits, newest first
    History(history::Arguments),
    /// Show the tables and columns of the format
    Schema(schema::Arguments),
    /// List the SQL functions with their rules
    Functions(functions::Arguments),
    /// List the audit's checks, or explain one
    Checks(checks::Arguments),
    /// List the shipped recipes, show one, or test one
    Recipes(recipes::Arguments),
}

impl Command {
    /// Runs the command.
    pub(crate) async fn run(self) -> Result<ExitCode> {
        match self {
            Self::Quickstart(arguments) => quickstart::run(arguments).await,
            Self::Init(arguments) => init::run(arguments).await,
            Self::Import(arguments) => import::run(arguments).await,
            Self::Sql(arguments) => sql::run(arguments).await,
            Self::Audit(arguments) => audit::run(arguments).await,
            Self::Rules(arguments) => rules::run(arguments).await,
            Self::Quarantine(arguments) => quarantine::run(arguments).await,
            Self::Reward(arguments) => reward::run(arguments).await,
            Self::Credit(arguments) => credit::run(arguments).await,
            Self::Build(arguments) => build::run(arguments).await,
            Self::Compare(arguments) => compare::run(arguments).await,
            Self::Weights(arguments) => weights::run(arguments).await,
            Self::Export(arguments) => export::run(arguments).await,
            Self::Verify(arguments) => verify::run(arguments).await,
            Self::Status(arguments) => status::run(arguments).await,
            Self::Compact(arguments) => compact::run(arguments).await,
            Self::History(arguments) => history::run(arguments).await,
            Self::Schema(arguments) => schema::run(&arguments),
            Self::Functions(arguments) => functions::run(&arguments),
            Self::Checks(arguments) => checks::run(&arguments),
            Self::Recipes(arguments) => recipes::run(&arguments).await,
        }
    }
}
