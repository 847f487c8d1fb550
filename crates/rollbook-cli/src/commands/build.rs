//! `rollbook build`: merges, packs and weights samples for a trainer.

use std::process::ExitCode;

use clap::Args;
use rollbook_query::build::{BuildOptions, Objective, run_build};
use rollbook_query::recipe::find_recipe;

use super::derive::{runs, show_all};
use super::schema::TextFormat;
use crate::error::Result;
use crate::lake::ReadArgs;

/// Merge, pack and weight samples for a trainer
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  rollbook build merged --credit grpo --max-tokens 32768 --objective rollout --lake my-lake
  rollbook build merged --credit grpo@credit-0a1b --max-tokens 8192 --objective rollout --name short
  rollbook build merged --credit grpo --max-tokens 8192 --objective token --objective-scope micro_batch
  rollbook build merged --credit dr_grpo --max-tokens 8192 --objective constant --objective-constant 524288

A unit of loss weight is divided among the trained tokens of what --objective names:
  token      1 / T                     T trained tokens
  row        1 / (N T_row)             N packed rows with a trained token
  rollout    1 / (R T_rollout)         R rollouts with a trained token
  group      1 / (G T_group)           G groups with a trained token
  constant   1 / --objective-constant
counted over an optimizer step, or over each of its micro-batches or ranks and divided by their number.

A sequence longer than --max-tokens is an error that names it: nothing is cut. What does not train stands in the table
exclusions, with the reason.")]
pub(crate) struct Arguments {
    /// A recipe's file or name
    recipe: String,
    #[command(flatten)]
    read: ReadArgs,
    /// Credit that the samples train with: NAME or NAME@DERIVATION
    #[arg(long, value_name = "NAME")]
    credit: String,
    /// Most tokens of a packed row
    #[arg(long, value_name = "N")]
    max_tokens: u32,
    /// What one unit of loss weight belongs to: token, row, rollout, group or constant
    #[arg(long, value_name = "NAME")]
    objective: String,
    /// Over what its units are counted: step, `micro_batch` or rank
    #[arg(long, value_name = "NAME", default_value = "step")]
    objective_scope: String,
    /// Denominator of the objective constant
    #[arg(long, value_name = "NUMBER")]
    objective_constant: Option<f64>,
    /// Name of the build; the recipe's own when left out
    #[arg(long)]
    name: Option<String>,
    /// Run to build; the only one when left out
    #[arg(long, value_name = "ID")]
    run: Option<String>,
    /// Also train on tokens whose ids or logprobs were given without saying where from
    #[arg(long)]
    accept_assumed: bool,
    /// Also train on what is quarantined
    #[arg(long)]
    include_quarantined: bool,
    /// A parameter of the recipe, as name=value or name=value,value
    #[arg(long = "param", value_name = "NAME=VALUE")]
    parameters: Vec<String>,
    /// How the result is printed
    #[arg(long, value_enum, default_value_t = TextFormat::Table)]
    format: TextFormat,
}

/// Runs the build.
pub(crate) async fn run(arguments: Arguments) -> Result<ExitCode> {
    let recipe = find_recipe(&arguments.recipe)?;
    let runs = runs(&recipe, arguments.name.as_deref(), &arguments.parameters)?;
    let objective =
        Objective::new(arguments.objective.parse()?, arguments.objective_scope.parse()?, arguments.objective_constant)?;
    let session = arguments.read.session().await?;
    let mut results = Vec::new();
    for run in runs {
        let mut options = BuildOptions::new(arguments.max_tokens);
        options.name.clone_from(&run.name);
        options.run.clone_from(&arguments.run);
        options.objective = objective;
        options.accept_assumed = arguments.accept_assumed;
        options.include_quarantined = arguments.include_quarantined;
        options.parameters.clone_from(&run.parameters);
        let derived = run_build(&session, &recipe, &arguments.credit, &options).await?;
        results.push((run, derived));
    }
    show_all(&results, "build", arguments.format)?;
    Ok(ExitCode::SUCCESS)
}
