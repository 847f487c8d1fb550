//! `rollbook reward`: runs a reward recipe over stored scores.

use std::process::ExitCode;

use clap::Args;
use rollbook_query::recipe::{DeriveOptions, find_recipe, run_reward};

use super::derive::{runs, show_all};
use super::schema::TextFormat;
use crate::error::Result;
use crate::lake::ReadArgs;

/// Run a reward recipe over stored scores
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  rollbook reward verifier_value --lake my-lake
  rollbook reward weighted_sum --param 'weights={\"tests\": 1.0, \"format\": 0.1}' --param length_penalty=0.001
  rollbook reward clip --reward verifier_value --param low=-1 --param high=1 --name clipped
  rollbook reward my_reward.sql --name mine --run run-7

rollbook recipes lists the shipped ones with their parameters; a recipe is a SQL file, so your own is one too.

A list of values makes one result for each, several lists one for each combination: --param eps=0,1e-6 makes NAME:eps=0 and
NAME:eps=1e-6. A comma separates numbers and booleans; text, JSON and expressions may hold one, so for a list of those the
parameter is given again: --param verifier=tests --param verifier=judge.")]
pub(crate) struct Arguments {
    /// A recipe's file or name
    recipe: String,
    #[command(flatten)]
    read: ReadArgs,
    /// Reward that the recipe transforms, where it transforms one: NAME or NAME@DERIVATION
    #[arg(long, value_name = "NAME")]
    reward: Option<String>,
    /// Name of the result; the recipe's own when left out
    #[arg(long)]
    name: Option<String>,
    /// Run to reward; all of them when left out
    #[arg(long, value_name = "ID")]
    run: Option<String>,
    /// A parameter of the recipe, as name=value or name=value,value
    #[arg(long = "param", value_name = "NAME=VALUE")]
    parameters: Vec<String>,
    /// How the result is printed
    #[arg(long, value_enum, default_value_t = TextFormat::Table)]
    format: TextFormat,
}

/// Runs the recipe.
pub(crate) async fn run(arguments: Arguments) -> Result<ExitCode> {
    let recipe = find_recipe(&arguments.recipe)?;
    let runs = runs(&recipe, arguments.name.as_deref(), &arguments.parameters)?;
    let session = arguments.read.session().await?;
    let mut results = Vec::new();
    for run in runs {
        let options = DeriveOptions {
            name: run.name.clone(),
            run: arguments.run.clone(),
            parameters: run.parameters.clone(),
            reward: arguments.reward.clone(),
            credit: None,
        };
        let derived = run_reward(&session, &recipe, &options).await?;
        results.push((run, derived));
    }
    show_all(&results, "reward", arguments.format)?;
    Ok(ExitCode::SUCCESS)
}
