//! `rollbook reward`: runs a reward recipe over stored scores.

use std::process::ExitCode;

use clap::Args;
use rollbook_query::recipe::{DeriveOptions, find_recipe, run_reward};

use super::derive::{parameters, show};
use super::schema::TextFormat;
use crate::error::Result;
use crate::lake::ReadArgs;

/// Run a reward recipe over stored scores
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  rollbook reward verifier_value --lake my-lake
  rollbook reward weighted_sum --param 'weights={\"tests\": 1.0, \"format\": 0.1}' --param length_penalty=0.001
  rollbook reward my_reward.sql --name mine --run run-7

rollbook recipes lists the shipped ones with their parameters; a recipe is a SQL file, so your own is one too.")]
pub(crate) struct Arguments {
    /// A recipe's file or name
    recipe: String,
    #[command(flatten)]
    read: ReadArgs,
    /// Name of the result; the recipe's own when left out
    #[arg(long)]
    name: Option<String>,
    /// Run to reward; all of them when left out
    #[arg(long, value_name = "ID")]
    run: Option<String>,
    /// A parameter of the recipe, as name=value
    #[arg(long = "param", value_name = "NAME=VALUE")]
    parameters: Vec<String>,
    /// How the result is printed
    #[arg(long, value_enum, default_value_t = TextFormat::Table)]
    format: TextFormat,
}

/// Runs the recipe.
pub(crate) async fn run(arguments: Arguments) -> Result<ExitCode> {
    let recipe = find_recipe(&arguments.recipe)?;
    let options =
        DeriveOptions { name: arguments.name, run: arguments.run, parameters: parameters(&arguments.parameters)? };
    let session = arguments.read.session().await?;
    show(&run_reward(&session, &recipe, &options).await?, "reward", arguments.format)?;
    Ok(ExitCode::SUCCESS)
}
