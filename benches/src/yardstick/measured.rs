//! What one run of a task cost: measured in the process that did it, so that starting it counts on neither side.

use std::error::Error;
use std::fs;
use std::process::Command;
use std::time::Instant;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Clock ticks a second in `/proc`, the same on every Linux that people run this on.
const TICKS: f64 = 100.0;

/// The cost of one run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Measured {
    /// Wall seconds.
    pub(crate) seconds: f64,
    /// User and system seconds of all threads.
    pub(crate) cpu: f64,
    /// Largest resident set of the process, in bytes.
    pub(crate) peak: u64,
    /// Bytes read, written or made, where the task is about them.
    #[serde(default)]
    pub(crate) bytes: Option<u64>,
    /// What it found.
    #[serde(default)]
    pub(crate) answer: Value,
    /// Parts of the bytes, where there are any.
    #[serde(default)]
    pub(crate) parts: Value,
}

/// Runs a process whose last line of output is its cost.
pub(super) fn run(mut command: Command, what: &str) -> Result<Measured, Box<dyn Error>> {
    let output = command.output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let last = text.lines().last().unwrap_or_default();
    if !output.status.success() {
        return Err(format!("{what} failed: {}", String::from_utf8_lossy(&output.stderr).trim()).into());
    }
    Ok(serde_json::from_str(last).map_err(|error| format!("{what} printed {last:?}: {error}"))?)
}

/// A clock over this process.
pub(super) struct Clock {
    wall: Instant,
    cpu: f64,
}

impl Clock {
    pub(super) fn start() -> Self {
        Self { wall: Instant::now(), cpu: cpu_seconds() }
    }

    /// Prints the cost since the start.
    #[expect(clippy::print_stdout, reason = "the line that the yardstick reads")]
    pub(super) fn stop(self, answer: Value, bytes: Option<u64>, parts: Value) -> Result<(), Box<dyn Error>> {
        let seconds = self.wall.elapsed().as_secs_f64();
        let cpu = cpu_seconds() - self.cpu;
        let cost = Measured { seconds, cpu, peak: peak_bytes(), bytes, answer, parts };
        println!("{}", serde_json::to_string(&cost)?);
        Ok(())
    }
}

/// Fields 14 and 15 of `/proc/self/stat`, counted behind the name, which may hold spaces; 0 where there is no `/proc`.
pub(crate) fn cpu_seconds() -> f64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    fields.skip(11).take(2).filter_map(|ticks| ticks.parse::<f64>().ok()).sum::<f64>() / TICKS
}

fn peak_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kilobytes.unwrap_or_default() << 10
}
