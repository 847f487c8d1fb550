//! Ratios: each peer's cost over ours, so that more than 1 means that Rollbook took less.

use std::error::Error;
use std::fmt::Write;
use std::path::Path;
use std::process::Command;

use rollbook_testing::generate::Size;
use serde_json::Value;

use super::measured::Measured;
use super::tasks::{By, TaskOf};

/// A task with all its runs.
pub(super) struct Row {
    task: &'static TaskOf,
    ours: Vec<Measured>,
    theirs: Vec<Vec<Measured>>,
}

impl Row {
    pub(super) fn new(task: &'static TaskOf, ours: Vec<Measured>, theirs: Vec<Vec<Measured>>) -> Self {
        Self { task, ours, theirs }
    }

    #[expect(clippy::print_stdout, reason = "a benchmark prints its table")]
    pub(super) fn print(&self) {
        for line in self.lines() {
            println!("{line}");
        }
    }

    /// One line of the table for each side.
    #[expect(clippy::cast_precision_loss, reason = "figures for reading")]
    fn lines(&self) -> Vec<String> {
        let mut lines = vec![line(self.task.name, "rollbook", &self.ours, "1", "")];
        for (peer, runs) in self.task.peers.iter().zip(&self.theirs) {
            let bytes = |run: &Measured| run.bytes.unwrap_or_default() as f64;
            let cost = |run: &Measured| match self.task.by {
                By::Seconds => run.seconds,
                By::Bytes => bytes(run),
                By::SecondsPerByte => run.seconds / bytes(run).max(1.0),
            };
            let ratios = ratios(&self.ours, runs, cost);
            let ratio = format!("{} ({}-{})", short(ratios[1]), short(ratios[0]), short(ratios[2]));
            let note = if !self.task.same_answer || agrees(&self.ours, runs) { "" } else { "OTHER ANSWER" };
            lines.push(line("", peer, runs, &ratio, note));
        }
        lines
    }
}

/// Whether all runs found the same, numbers to six digits.
fn agrees(ours: &[Measured], theirs: &[Measured]) -> bool {
    let near = |a: f64, b: f64| (a - b).abs() <= 1e-6 * a.abs().max(b.abs());
    ours.iter().chain(theirs).all(|run| match (&ours[0].answer, &run.answer) {
        (Value::Number(a), Value::Number(b)) => near(a.as_f64().unwrap_or(0.0), b.as_f64().unwrap_or(1.0)),
        (a, b) => a == b,
    })
}

fn line(task: &str, side: &str, runs: &[Measured], ratio: &str, note: &str) -> String {
    let seconds = sorted(runs.iter().map(|run| run.seconds));
    let cpu = sorted(runs.iter().map(|run| run.cpu));
    let peak = runs.iter().map(|run| run.peak).max().unwrap_or_default();
    let bytes = runs.iter().find_map(|run| run.bytes).map_or_else(String::new, megabytes);
    format!(
        "| {task} | {side} | {} | {} | {} | {bytes} | {ratio} | {note} |",
        short(seconds[seconds.len() / 2]),
        short(cpu[cpu.len() / 2]),
        megabytes(peak)
    )
}

/// The least, median and greatest of a peer's cost over ours, round by round.
fn ratios(ours: &[Measured], theirs: &[Measured], cost: impl Fn(&Measured) -> f64) -> [f64; 3] {
    let all = sorted(ours.iter().zip(theirs).map(|(ours, theirs)| cost(theirs) / cost(ours).max(f64::MIN_POSITIVE)));
    [all[0], all[all.len() / 2], all[all.len() - 1]]
}

fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values
}

/// Three digits.
pub(crate) fn short(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}

/// Millions of bytes, with one digit.
pub(crate) fn megabytes(bytes: u64) -> String {
    let [whole, tenth] = [bytes / 1_000_000, bytes % 1_000_000 / 100_000];
    format!("{whole}.{tenth}")
}

/// The table as Markdown, with what it was run on.
pub(super) fn write(rows: &[Row], size: Size, python: &Path) -> Result<String, Box<dyn Error>> {
    let versions = "import sys, numpy, numba, pyarrow, polars, duckdb; print(', '.join(['Python ' + sys.version.split()[0]] \
                    + [m.__name__ + ' ' + m.__version__ for m in (numpy, numba, pyarrow, polars, duckdb)]))";
    let versions = String::from_utf8(Command::new(python).args(["-c", versions]).output()?.stdout)?;
    let cpus = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpus.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or("unknown");
    let mut text = format!("Size {size}; {}; {}.\n\n", model.trim_start_matches([' ', '\t', ':']), versions.trim());
    text.push_str(
        "| task | side | seconds | CPU s | peak MB | MB | theirs over ours (seconds; bytes where it is about them; export: seconds a byte): median (least-most) | |\n",
    );
    text.push_str("|---|---|---|---|---|---|---|---|\n");
    for row in rows {
        for line in row.lines() {
            writeln!(text, "{line}")?;
        }
    }
    text.push('\n');
    for row in rows {
        writeln!(text, "- **{}**: {}", row.task.name, row.task.question)?;
    }
    Ok(text)
}
