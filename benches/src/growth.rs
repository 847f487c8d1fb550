//! Does cost grow with what is new alone? Runs of equal new tokens with more and more turns, and runs of more and more
//! rollouts, each through import, audit, build and export, with plots.

use std::error::Error;
use std::fmt::Write;
use std::path::PathBuf;

use clap::Args;
use rollbook_testing::generate::write::{Format, write_tables};
use rollbook_testing::generate::{Generator, Options, Summary};

use crate::generate::note;
use crate::yardstick::{Measured, own_task, short};

/// Turns in the mean, and the groups that make as many new tokens, within a few hundredths.
const TURNS: [(f64, u64); 4] = [(10.0, 80), (20.0, 46), (40.0, 24), (80.0, 13)];
/// Groups of 8 rollouts of 30 turns.
const GROUPS: [u64; 4] = [16, 32, 64, 128];

/// Measure how bytes, import, audit and export grow with turns and with rollouts, and draw it
#[derive(Debug, Args)]
pub(crate) struct Growth {
    /// Folder for the runs and their lakes; must not exist
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// Times that each part is run; the median counts
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Where tables and plots are written, as Markdown
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// What one run cost.
struct Point {
    x: String,
    summary: Summary,
    source_bytes: u64,
    import: Measured,
    audit: Measured,
    export: Measured,
}

impl Growth {
    #[expect(clippy::print_stdout, reason = "a benchmark prints its table")]
    pub(crate) fn run(self) -> Result<(), Box<dyn Error>> {
        // Compactions and the like depend on length themselves, so the runs are clean.
        let options = |groups, turns| Options { groups, turns, is_clean: true, ..Options::default() };
        let mut turns = Vec::new();
        for (mean, groups) in TURNS {
            turns.push(self.point(&format!("turns-{mean}"), format!("{mean}"), options(groups, mean))?);
        }
        let mut rollouts = Vec::new();
        for groups in GROUPS {
            rollouts.push(self.point(
                &format!("rollouts-{}", groups * 8),
                format!("{}", groups * 8),
                options(groups, 30.0),
            )?);
        }
        let mut text = table("turns", &turns)?;
        text.push_str(&table("rollouts", &rollouts)?);
        println!("{text}");
        if let Some(out) = &self.out {
            std::fs::write(out, text)?;
        }
        Ok(())
    }

    fn point(&self, name: &str, x: String, options: Options) -> Result<Point, Box<dyn Error>> {
        note(&name);
        let folder = self.data.join(name);
        let piece = folder.join("piece");
        let summary = write_tables(&piece, Generator::new(options), Format::Jsonl)?;
        let source_bytes = std::fs::metadata(piece.join("calls.jsonl"))?.len();
        let lake = folder.join("lake");
        let import = self.median(|| {
            if lake.exists() {
                std::fs::remove_dir_all(&lake)?;
            }
            own_task("append", &folder)
        })?;
        std::fs::remove_dir_all(&piece)?;
        own_task("derive", &folder)?;
        own_task("build", &folder)?;
        let audit = self.median(|| own_task("checks", &folder))?;
        let export = self.median(|| own_task("export", &folder))?;
        std::fs::remove_dir_all(&folder)?;
        Ok(Point { x, summary, source_bytes, import, audit, export })
    }

    /// The run of median processor time.
    fn median(&self, mut run: impl FnMut() -> Result<Measured, Box<dyn Error>>) -> Result<Measured, Box<dyn Error>> {
        let mut runs = (0..self.rounds.max(1)).map(|_| run()).collect::<Result<Vec<_>, _>>()?;
        runs.sort_by(|a, b| a.cpu.total_cmp(&b.cpu));
        Ok(runs.swap_remove(runs.len() / 2))
    }
}

#[expect(clippy::cast_precision_loss, reason = "figures for reading")]
fn table(by: &str, points: &[Point]) -> Result<String, Box<dyn Error>> {
    let new = |point: &Point| (point.summary.new_tokens + point.summary.sampled_tokens) as f64 / 1e6;
    let stored = |point: &Point| point.import.bytes.unwrap_or_default() as f64;
    let gigabytes = |point: &Point| point.source_bytes as f64 / 1e9;
    let mut text = format!(
        "| {by} | new tokens, M | prompt tokens, M | stored bytes a new token | import CPU s a GB of JSON lines | audit CPU s \
         a M new tokens | export CPU s a M new tokens | peak MB: import, audit, export |\n|---|---|---|---|---|---|---|---|\n"
    );
    for point in points {
        writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} | {} | {}, {}, {} |",
            point.x,
            short(new(point)),
            short(point.summary.prompt_tokens as f64 / 1e6),
            short(stored(point) / new(point) / 1e6),
            short(point.import.cpu / gigabytes(point)),
            short(point.audit.cpu / new(point)),
            short(point.export.cpu / new(point)),
            point.import.peak >> 20,
            point.audit.peak >> 20,
            point.export.peak >> 20,
        )?;
    }
    let series: [(&str, &dyn Fn(&Point) -> f64); 4] = [
        ("stored MB", &|point| stored(point) / 1e6),
        ("import CPU s", &|point| point.import.cpu),
        ("audit CPU s", &|point| point.audit.cpu),
        ("export CPU s", &|point| point.export.cpu),
    ];
    for (title, value) in series {
        text.push_str(&plot(title, by, points, value)?);
    }
    Ok(text)
}

/// A plot that Markdown viewers draw.
fn plot(title: &str, by: &str, points: &[Point], value: &dyn Fn(&Point) -> f64) -> Result<String, Box<dyn Error>> {
    let labels: Vec<&str> = points.iter().map(|point| point.x.as_str()).collect();
    let values: Vec<String> = points.iter().map(|point| format!("{:.3}", value(point))).collect();
    let mut text = String::new();
    writeln!(text, "\n```mermaid\nxychart-beta\n    title \"{title} by {by}\"")?;
    writeln!(
        text,
        "    x-axis \"{by}\" [{}]\n    y-axis \"{title}\" 0 --> {:.3}",
        labels.join(", "),
        top(points, value)
    )?;
    writeln!(text, "    line [{}]\n```\n", values.join(", "))?;
    Ok(text)
}

fn top(points: &[Point], value: &dyn Fn(&Point) -> f64) -> f64 {
    points.iter().map(value).fold(0.0, f64::max) * 1.1
}
