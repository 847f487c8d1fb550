//! `rollbook weights`: the loss account of a build.

use std::process::ExitCode;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{Float64Type, Int64Type};
use clap::Args;
use futures::TryStreamExt;
use rollbook_audit::{BuildKey, account, find_build, rollout_account};

use crate::error::{CommandError, Result};
use crate::lake::ReadArgs;
use crate::output::{Format, TableShape, line, plain, print, small_table};

/// Rollouts that the table form shows unless told otherwise.
const SHOWN: usize = 20;
/// How far a share or a step's scale may be from what it should be.
const TOLERANCE: f64 = 1e-6;

/// Account for a build's tokens and loss weight: what was sampled, trained, left out, and what each rollout weighs
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  rollbook weights merged --lake my-lake
  rollbook weights build-7 --lake my-lake --rollout r-12      what trains of one rollout, and what does not, and why
  rollbook weights merged --lake my-lake --rows 0 --format csv > weights.csv

Every sampled token is trained, excluded with a reason, or unaccounted; duplicated ones trained once more in the same epoch.
A step's scale is the sum of its loss weights over what the objective gives: the factor on the learning rate. A rollout's
share is its part of the step's loss weight. Machine formats have all lines, each with a statement that opens it.")]
pub(crate) struct Arguments {
    /// Build: its name (the newest of it) or id; an imported one as well
    build: String,
    #[command(flatten)]
    read: ReadArgs,
    /// Rollout to open: its spans in the build's rows, and what is left out of it
    #[arg(long, value_name = "ID")]
    rollout: Option<String>,
    /// How lines are printed
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
    /// Rollouts that a table shows at most, 0 for all
    #[arg(long, default_value_t = SHOWN)]
    rows: usize,
}

/// Prints the account.
pub(crate) async fn run(arguments: Arguments) -> Result<ExitCode> {
    let session = arguments.read.session().await?;
    let build = find_build(&session, &arguments.build).await?;
    let shape = TableShape { rows: (arguments.rows > 0).then_some(arguments.rows) };
    if let Some(rollout) = &arguments.rollout {
        let rows = rollout_account(&session, &build, rollout).await?;
        print(rows, arguments.format, &shape).await?;
        return Ok(ExitCode::SUCCESS);
    }
    let lines = account(&session, &build).await?;
    if arguments.format != Format::Table {
        print(lines, arguments.format, &shape).await?;
        return Ok(ExitCode::SUCCESS);
    }
    let batches: Vec<RecordBatch> = lines.try_collect().await.map_err(rollbook_audit::Error::from)?;
    let mut lines = Vec::new();
    for batch in &batches {
        lines.extend((0..batch.num_rows()).map(|row| Line::read(batch, row)).collect::<Result<Vec<_>>>()?);
    }
    show(&build, &lines, shape.rows)?;
    Ok(ExitCode::SUCCESS)
}

/// One line of the account.
struct Line {
    part: String,
    name: String,
    epoch: Option<i64>,
    step: Option<i64>,
    rows: Option<i64>,
    tokens: i64,
    weight: Option<f64>,
    expected: Option<f64>,
    observed: Option<f64>,
    opens: String,
}

impl Line {
    fn read(batch: &RecordBatch, row: usize) -> Result<Self> {
        let column = |name: &str| {
            batch
                .column_by_name(name)
                .ok_or_else(|| CommandError::unavailable(format!("the account lost column {name}")))
        };
        let text = |name: &str| -> Result<String> { Ok(column(name)?.as_string::<i32>().value(row).to_owned()) };
        let whole = |name: &str| -> Result<Option<i64>> {
            let array = arrow::compute::cast(column(name)?, &arrow::datatypes::DataType::Int64)?;
            let array = array.as_primitive::<Int64Type>();
            Ok(array.is_valid(row).then(|| array.value(row)))
        };
        let number = |name: &str| -> Result<Option<f64>> {
            let array = column(name)?.as_primitive::<Float64Type>();
            Ok(array.is_valid(row).then(|| array.value(row)))
        };
        Ok(Self {
            part: text("part")?,
            name: text("name")?,
            epoch: whole("epoch")?,
            step: whole("optimizer_step")?,
            rows: whole("rows")?,
            tokens: whole("tokens")?.unwrap_or(0),
            weight: number("weight")?,
            expected: number("expected")?,
            observed: number("observed")?,
            opens: text("opens")?,
        })
    }

    /// Whether it is what the objective gives; of a step the observed number is a factor.
    fn is_right(&self) -> bool {
        match (self.part.as_str(), self.expected, self.observed) {
            ("step", _, Some(scale)) => (scale - 1.0).abs() <= TOLERANCE,
            ("rollout", Some(expected), Some(share)) => (share - expected).abs() <= TOLERANCE,
            _ => true,
        }
    }
}

fn show(build: &BuildKey, lines: &[Line], most: Option<usize>) -> Result<()> {
    let of = |part: &str| lines.iter().filter(|line| line.part == part).collect::<Vec<_>>();
    line(&format!("loss account of build {} (run {})", plain(&build.build_id), plain(&build.run_id)))?;
    let tokens = of("tokens");
    let rows: Vec<Vec<String>> =
        tokens.iter().map(|line| vec![plain(&line.name), line.tokens.to_string(), percent(line.observed)]).collect();
    line(&small_table(&["tokens", "count", "of the sampled"], &rows))?;
    steps(&of("step"))?;
    rollouts(&of("rollout"), most)?;
    line("\nTo open a line: --rollout ID, or rollbook sql -c with")?;
    let counted = tokens.into_iter().filter(|line| line.tokens > 0);
    for opened in counted.chain(of("step").into_iter().take(1)) {
        line(&format!("  {:<24} {}", plain(&opened.name), plain(&opened.opens)))?;
    }
    Ok(())
}

fn steps(lines: &[&Line]) -> Result<()> {
    let rows: Vec<Vec<String>> = lines
        .iter()
        .map(|line| {
            vec![
                whole(line.epoch),
                whole(line.step),
                whole(line.rows),
                line.tokens.to_string(),
                number(line.weight),
                number(line.expected),
                number(line.observed),
            ]
        })
        .collect();
    line("")?;
    line(&small_table(&["epoch", "optimizer step", "rows", "trained", "weight", "expected", "scale"], &rows))
}

/// The rollouts whose share is wrong come first; of the others the first ones.
fn rollouts(lines: &[&Line], most: Option<usize>) -> Result<()> {
    let (right, wrong): (Vec<&Line>, Vec<&Line>) = lines.iter().partition(|line| line.is_right());
    let most = most.unwrap_or(usize::MAX);
    let rows: Vec<Vec<String>> = wrong
        .iter()
        .chain(&right)
        .take(most)
        .map(|line| {
            let ratio = line.observed.zip(line.expected).map(|(share, wanted)| share / wanted);
            vec![
                plain(&line.name),
                whole(line.epoch),
                whole(line.step),
                whole(line.rows),
                line.tokens.to_string(),
                number(line.observed),
                number(line.expected),
                number(ratio),
            ]
        })
        .collect();
    let headers = ["rollout", "epoch", "optimizer step", "rows", "trained", "share", "expected", "ratio"];
    line("")?;
    line(&small_table(&headers, &rows))?;
    line(&format!(
        "{} of {} shares are those of the objective{}",
        right.len(),
        lines.len(),
        if lines.len() > most { format!("; {most} shown, --rows 0 shows all") } else { String::new() }
    ))
}

fn whole(value: Option<i64>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}

fn number(value: Option<f64>) -> String {
    value.map_or_else(|| "unknown".to_owned(), |value| ((value * 1e9).round() / 1e9).to_string())
}

fn percent(value: Option<f64>) -> String {
    value.map_or_else(String::new, |value| format!("{:.2} %", value * 100.0))
}
