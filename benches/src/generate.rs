//! `generate`: writes a seeded run of a given size as a folder in the exchange format.

use std::error::Error;
use std::path::PathBuf;

use clap::Args;
use rollbook_testing::generate::write::{Format, write_tables};
use rollbook_testing::generate::{Generator, Options, Size};

/// Writes a seeded run of realistic rollouts as a folder that `rollbook import tables` reads.
#[derive(Debug, Args)]
pub(crate) struct Generate {
    /// S (64 rollouts), M/100 (1,000), M/10 (10,000) or M (100,000).
    #[arg(long, default_value = "S")]
    size: Size,
    /// The folder to write to; created where it is missing.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// The same seed gives the same bytes; each size has one of its own.
    #[arg(long)]
    seed: Option<u64>,
    /// jsonl, parquet or arrow.
    #[arg(long, default_value = "jsonl")]
    format: Format,
    /// Groups of 8 rollouts, in place of the size's.
    #[arg(long)]
    groups: Option<u64>,
    /// Turns a rollout in the mean, in place of the size's.
    #[arg(long)]
    turns: Option<f64>,
    /// Makes every prompt extend its parent's context.
    #[arg(long)]
    clean: bool,
    /// The run's id.
    #[arg(long, default_value = "generated")]
    run: String,
}

impl Generate {
    pub(crate) fn run(self) -> Result<(), Box<dyn Error>> {
        let mut options = Options::of(self.size);
        options.seed = self.seed.unwrap_or(options.seed);
        options.groups = self.groups.unwrap_or(options.groups);
        options.turns = self.turns.unwrap_or(options.turns);
        options.is_clean = self.clean;
        options.run_id = self.run;
        let summary = write_tables(&self.out, Generator::new(options), self.format)?;
        note(&summary);
        Ok(())
    }
}

/// Says what went wrong.
pub(crate) fn report(error: &dyn Error) {
    note(&format_args!("error: {error}"));
}

#[expect(clippy::print_stderr, reason = "a command line tool that only developers run")]
/// Prints to standard error.
pub(crate) fn note(text: &dyn std::fmt::Display) {
    eprintln!("{text}");
}
