//! The main job over a run of any size: import, reward and credit, build, audit, export, each in a process of its own.
//!
//! The run is generated and imported a few steps at a time, as a live run arrives, so that the disk holds one part of it
//! outside the lake.

use std::error::Error;
use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use rollbook_testing::generate::write::{Format, write_rollouts};
use rollbook_testing::generate::{Generator, Options, Size};

use crate::yardstick::{Measured, megabytes, own_task, short};

/// The part that makes the lake.
const IMPORT: &str = "import";

/// Run the main job over a generated run, and print what each part cost
#[derive(Debug, Args)]
pub(crate) struct Job {
    /// Folder for the run and its lake; must not hold one
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// S (64 rollouts), M/100 (1,000), M/10 (10,000) or M (100,000)
    #[arg(long, default_value = "S")]
    size: Size,
    /// Groups of 8 rollouts, in place of the size's
    #[arg(long)]
    groups: Option<u64>,
    /// Turns a rollout in the mean, in place of the size's
    #[arg(long)]
    turns: Option<f64>,
    /// Groups that one import brings
    #[arg(long, default_value_t = 1_280)]
    groups_per_import: u64,
    /// Format of what is imported: jsonl, parquet or arrow
    #[arg(long, default_value = "arrow")]
    format: Format,
    /// Which parts to run; without import, over the lake that is there
    #[arg(long, value_delimiter = ',', default_value = "import,derive,build,checks,columns,export")]
    parts: Vec<String>,
}

impl Job {
    #[expect(clippy::print_stdout, reason = "a benchmark prints its table")]
    pub(crate) fn run(self) -> Result<(), Box<dyn Error>> {
        let imports = self.parts.iter().any(|part| part == IMPORT);
        if imports && self.data.join("lake").exists() {
            return Err(format!("{} holds a lake: give another folder", self.data.display()).into());
        }
        let mut options = Options::of(self.size);
        options.groups = self.groups.unwrap_or(options.groups);
        options.turns = self.turns.unwrap_or(options.turns);
        println!("| part | seconds | CPU s | peak MB | MB |\n|---|---|---|---|---|");
        if imports {
            self.import(&options)?;
        }
        for part in self.parts.iter().filter(|&part| part != IMPORT) {
            print(part, &own_task(part, &self.data)?);
        }
        Ok(())
    }

    #[expect(clippy::print_stdout, reason = "a benchmark prints its table")]
    fn import(&self, options: &Options) -> Result<(), Box<dyn Error>> {
        let mut generator = Generator::new(options.clone());
        let piece = self.data.join("piece");
        let imports = options.groups.div_ceil(self.groups_per_import);
        let rollouts = usize::try_from(self.groups_per_import * u64::from(options.group_size))?;
        for n in 1..=imports {
            let began = Instant::now();
            let summary = write_rollouts(&piece, options, generator.by_ref().take(rollouts), self.format)?;
            println!(
                "| generate {n} of {imports}: {} calls, {} prompt tokens, {} new, {} sampled | {} | | | |",
                summary.calls,
                summary.prompt_tokens,
                summary.new_tokens,
                summary.sampled_tokens,
                short(began.elapsed().as_secs_f64())
            );
            print(&format!("import {n} of {imports}"), &own_task("append", &self.data)?);
            std::fs::remove_dir_all(&piece)?;
        }
        Ok(())
    }
}

#[expect(clippy::print_stdout, reason = "a benchmark prints its table")]
fn print(part: &str, cost: &Measured) {
    println!(
        "| {part} | {} | {} | {} | {} |",
        short(cost.seconds),
        short(cost.cpu),
        megabytes(cost.peak),
        cost.bytes.map_or_else(String::new, megabytes)
    );
}
