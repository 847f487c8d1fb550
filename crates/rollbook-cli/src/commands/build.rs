//! `rollbook build`: merges, packs and weights samples for a trainer.

use std::process::ExitCode;

use clap::Args;
use rollbook_query::build::{BuildOptions, run_build};
use rollbook_query::recipe::find_recipe;

use super::derive::{parameters, show};
use super::schema::TextFormat;
use crate::error::Result;
use crate::lake::ReadArgs;

/// Merge, pack and weight samples for a trainer
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  rollbook build merged --credit grpo --max-tokens 32768 --objective rollout --lake my-lake
  rollbook build merged --credit grpo@credit-0a1b --max-tokens 8192 --objective rollout --name short

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
    /// What one unit of loss weight belongs to: rollout
    #[arg(long, value_name = "NAME")]
    objective: String,
    /// Name of the build; the recipe's own when left out
    #[arg(long)]
    name: Option<String>,
    /// Run to build; the only one when left out
    #[arg(long, value_name = "ID")]
    run: Option<String>,
    /// Also train on tokens whose ids or logprobs were given without saying where from
    #[arg(long)]
    accept_assumed: bool,
    /// A parameter of the recipe, as name=value
    #[arg(long = "param", value_name = "NAME=VALUE")]
    parameters: Vec<String>,
    /// How the result is printed
    #[arg(long, value_enum, default_value_t = TextFormat::Table)]
    format: TextFormat,
}

/// Runs the build.
pub(crate) async fn run(arguments: Arguments) -> Result<ExitCode> {
    let recipe = find_recipe(&arguments.recipe)?;
    let mut options = BuildOptions::new(arguments.max_tokens);
    options.name = arguments.name;
    options.run = arguments.run;
    options.objective = arguments.objective.parse()?;
    options.accept_assumed = arguments.accept_assumed;
    options.parameters = parameters(&arguments.parameters)?;
    let session = arguments.read.session().await?;
    show(&run_build(&session, &recipe, &arguments.credit, &options).await?, "build", arguments.format)?;
    Ok(ExitCode::SUCCESS)
}
