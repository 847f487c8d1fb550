//! `rollbook quickstart`: the whole way on a small real run, each step being the command a user would type.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Parser};

use super::Command;
use crate::error::{CommandError, Result};
use crate::output::line;

/// Walk the whole way on a small real run: import, audit, reward, credit, build, export
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  rollbook quickstart
  rollbook quickstart --dir walk

Makes quickstart-data, quickstart-lake and quickstart-export in this folder and prints each command before it runs.
The run is real: 384 rollouts of a small open model with a calculator and a guessing game, exact tokens and logprobs.")]
pub(crate) struct Arguments {
    /// Folder to work in
    #[arg(long, default_value = ".", value_name = "DIR")]
    dir: PathBuf,
}

/// The shipped run: file name and compressed content.
const RUN: [(&str, &[u8]); 7] = [
    ("runs.jsonl", include_bytes!("../../quickstart/calculator-run/runs.jsonl.zst")),
    ("policies.jsonl", include_bytes!("../../quickstart/calculator-run/policies.jsonl.zst")),
    ("encodings.jsonl", include_bytes!("../../quickstart/calculator-run/encodings.jsonl.zst")),
    ("rollouts.jsonl", include_bytes!("../../quickstart/calculator-run/rollouts.jsonl.zst")),
    ("calls.jsonl", include_bytes!("../../quickstart/calculator-run/calls.jsonl.zst")),
    ("environment_records.jsonl", include_bytes!("../../quickstart/calculator-run/environment_records.jsonl.zst")),
    ("scores.jsonl", include_bytes!("../../quickstart/calculator-run/scores.jsonl.zst")),
];

/// A command line of the walk and what it is for.
struct Step {
    why: &'static str,
    words: Vec<String>,
}

/// Runs every step.
pub(crate) async fn run(arguments: Arguments) -> Result<ExitCode> {
    let dir = &arguments.dir;
    std::fs::create_dir_all(dir).map_err(|error| cannot_write(dir, &error))?;
    let (data, lake, export) = (place(dir, "quickstart-data"), place(dir, "quickstart-lake"), free_export(dir));
    let again = Path::new(&lake).join("_rollbook").join("lake.json").exists();
    unpack(Path::new(&data))?;
    line(&format!(
        "A real run lies in {data}: 48 groups of 8 rollouts, 1,335 model calls, exact tokens and logprobs."
    ))?;
    for step in steps(&data, &lake, &export) {
        if again && step.words.first().is_some_and(|word| word == "init") {
            line(&format!("\n{lake} is there already: this walk goes on in it."))?;
            continue;
        }
        step.run().await?;
    }
    let next = [
        (format!("rollbook sql --lake {lake}"), "a prompt over the same lake"),
        ("rollbook checks token/prefix".to_owned(), "what the audit's first finding means"),
        ("rollbook functions grpo".to_owned(), "the credit's rules, written out"),
        (format!("rollbook credit dr_grpo --reward verifier_value --lake {lake}"), "another credit, no rollout rerun"),
        (format!("rollbook import tables YOUR-RUN/ --lake {lake}"), "your own rollouts: rollbook schema calls"),
    ];
    let width = next.iter().map(|(command, _)| command.len()).max().unwrap_or_default();
    line("\nWhat to try next:")?;
    for (command, why) in next {
        line(&format!("  {command:<width$}  {why}"))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn steps(data: &str, lake: &str, export: &str) -> Vec<Step> {
    let step =
        |why: &'static str, words: &[&str]| Step { why, words: words.iter().map(|word| (*word).to_owned()).collect() };
    vec![
        step("Make a lake: a folder here, s3://bucket/prefix elsewhere.", &["init", lake]),
        step(
            "Import the run: one commit, prompts stored as what each call added.",
            &["import", "tables", data, "--lake", lake],
        ),
        step(
            "Query it. Every table and view is plain SQL.",
            &[
                "sql",
                "--lake",
                lake,
                "-c",
                "SELECT environment, status, count(*) AS rollouts FROM rollouts GROUP BY environment, status ORDER BY environment, status",
            ],
        ),
        step(
            "Audit it. The findings are genuine: re-tokenized histories, and logprobs the engine left out.",
            &["audit", "--lake", lake],
        ),
        step(
            "Reward: the verifier's value. Scoring again never reruns an environment.",
            &["reward", "verifier_value", "--lake", lake],
        ),
        step(
            "Credit: GRPO within each group, every rollout one vote.",
            &["credit", "grpo", "--reward", "verifier_value", "--lake", lake],
        ),
        step(
            "Build: calls merged along exact extensions, packed, each rollout weighing the same.",
            &["build", "merged", "--credit", "grpo", "--max-tokens", "2048", "--objective", "rollout", "--lake", lake],
        ),
        step(
            "Audit again: now the build is checked too.",
            &["audit", "--lake", lake, "--check", "pack/*", "--check", "token/coverage"],
        ),
        step(
            "Export: Parquet and a manifest, for a trainer.",
            &["export", "merged", export, "--format", "parquet", "--lake", lake],
        ),
        step(
            "What was left out of training, and why.",
            &[
                "sql",
                "--lake",
                lake,
                "-c",
                "SELECT reason, count(*) AS places, sum(length) AS tokens FROM exclusions GROUP BY reason ORDER BY reason",
            ],
        ),
    ]
}

impl Step {
    async fn run(&self) -> Result<()> {
        line(&format!("\n# {}", self.why))?;
        line(&format!("$ rollbook {}", self.words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ")))?;
        let words = std::iter::once("rollbook").chain(self.words.iter().map(String::as_str));
        let parsed = Line::try_parse_from(words).map_err(|error| CommandError::usage(error.to_string()))?;
        // A boxed future, since the walk runs commands and is itself one.
        let _status = Box::pin(parsed.command.run()).await?;
        Ok(())
    }
}

/// A command line as a user types it.
#[derive(Debug, Parser)]
#[command(name = "rollbook")]
struct Line {
    #[command(subcommand)]
    command: Command,
}

fn quoted(word: &str) -> String {
    let bare = |character: char| character.is_alphanumeric() || "-_./:=".contains(character);
    if !word.is_empty() && word.chars().all(bare) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

/// The first place for an export that is not taken: a second walk makes another build, and no export is overwritten.
fn free_export(dir: &Path) -> String {
    let mut export = place(dir, "quickstart-export");
    let mut number = 2;
    while Path::new(&export).exists() {
        export = place(dir, &format!("quickstart-export-{number}"));
        number += 1;
    }
    export
}

fn place(dir: &Path, name: &str) -> String {
    if dir == Path::new(".") { name.to_owned() } else { dir.join(name).display().to_string() }
}

fn unpack(folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder).map_err(|error| cannot_write(folder, &error))?;
    for (name, packed) in RUN {
        let path = folder.join(name);
        let content = zstd::decode_all(packed)?;
        std::fs::write(&path, content).map_err(|error| cannot_write(&path, &error))?;
    }
    Ok(())
}

fn cannot_write(path: &Path, error: &std::io::Error) -> CommandError {
    CommandError::unavailable(format!("{} cannot be written: {error}", path.display()))
        .hint("run it in a folder of your own, or give --dir")
}
