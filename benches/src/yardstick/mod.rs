//! The yardstick: every task in Rollbook and in its peers, alternately, and the ratios.

mod measured;
mod phases;
mod prepare;
mod report;
mod tasks;

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;
use rollbook_testing::generate::Size;

pub(crate) use measured::{Measured, cpu_seconds};
pub(crate) use report::{megabytes, short};
pub(crate) use tasks::{TOKENS, call_files, token_batches};

use report::{Row, write};

/// Run every task in Rollbook and in the peers, alternately, and print the ratios
#[derive(Debug, Args)]
pub(crate) struct Yardstick {
    /// Folder for the data, made where it is missing; what lies there from an earlier run of the same size is used again
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// S (64 rollouts), M/100 (1,000), M/10 (10,000) or M (100,000)
    #[arg(long, default_value = "S")]
    size: Size,
    /// Times that each side runs each task
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Only the tasks whose name contains this
    #[arg(long)]
    task: Option<String>,
    /// Python that has numpy, numba, pyarrow, polars and duckdb
    #[arg(long, default_value = "python3")]
    python: PathBuf,
    /// Where the table is written, as Markdown
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// Run one task of Rollbook's once, and print what it cost as JSON
#[derive(Debug, Args)]
pub(crate) struct Task {
    /// Name of the task; `check:token/prefix` is one check alone
    name: String,
    /// The yardstick's folder
    data: PathBuf,
}

impl Task {
    pub(crate) fn run(self) -> Result<(), Box<dyn Error>> {
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()?
            .block_on(tasks::run(&self.name, &self.data))
    }
}

impl Yardstick {
    /// Prepares the data, runs the tasks, prints the table.
    pub(crate) fn run(self) -> Result<(), Box<dyn Error>> {
        prepare::prepare(&self.data, self.size, &self.python)?;
        let mut rows = Vec::new();
        for task in tasks::TASKS {
            if self.task.as_ref().is_some_and(|part| !task.name.contains(part.as_str())) {
                continue;
            }
            let mut ours = Vec::new();
            let mut theirs: Vec<Vec<Measured>> = vec![Vec::new(); task.peers.len()];
            for _ in 0..self.rounds {
                ours.push(own_task(task.name, &self.data)?);
                for (peer, runs) in task.peers.iter().zip(&mut theirs) {
                    runs.push(self.theirs(task.name, peer)?);
                }
            }
            let row = Row::new(task, ours, theirs);
            row.print();
            rows.push(row);
        }
        if let Some(out) = &self.out {
            std::fs::write(out, write(&rows, self.size, &self.python)?)?;
        }
        Ok(())
    }

    fn theirs(&self, task: &str, peer: &str) -> Result<Measured, Box<dyn Error>> {
        // What Rollbook does besides, as a measure.
        if let Some(own) = peer.strip_prefix("rollbook ") {
            return own_task(own, &self.data);
        }
        let mut command = Command::new(&self.python);
        command.arg(peers_script()).args([task, peer]).arg(&self.data);
        measured::run(command, &format!("{task} in {peer}"))
    }
}

/// Runs one of Rollbook's tasks in a process of its own.
pub(crate) fn own_task(task: &str, data: &Path) -> Result<Measured, Box<dyn Error>> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["task", task]).arg(data);
    measured::run(command, task)
}

/// The peers' side, beside this crate.
fn peers_script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("peers/peers.py")
}
