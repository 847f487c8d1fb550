//! `rollbook credit`: runs a credit recipe over a reward, or over another credit.

use std::process::ExitCode;

use clap::Args;
use rollbook_query::recipe::{DeriveOptions, find_recipe, run_credit};

use super::derive::{runs, show_all};
use super::schema::TextFormat;
use crate::error::Result;
use crate::lake::ReadArgs;

/// Run a credit recipe over a reward, or over another credit
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  rollbook credit grpo --reward verifier_value --lake my-lake
  rollbook credit grpo --reward verifier_value --param ddof=0 --name grpo_population
  rollbook credit rloo --reward verifier_value --param group_key=task_id
  rollbook credit advantage_clip --credit grpo --param low=-1 --param high=3 --name grpo_clipped

--reward NAME is the newest run of that reward, NAME@ID one of them; --credit names a credit likewise, for recipes that transform
one. A list of values makes one result for each, several
lists one for each combination: --param ddof=0,1 makes grpo:ddof=0 and grpo:ddof=1 (rollbook reward --help says more).")]
pub(crate) struct Arguments {
    /// A recipe's file or name
    recipe: String,
    #[command(flatten)]
    read: ReadArgs,
    /// Reward to turn into credit: NAME or NAME@DERIVATION
    #[arg(long, value_name = "NAME")]
    reward: Option<String>,
    /// Credit that the recipe transforms, where it transforms one: NAME or NAME@DERIVATION
    #[arg(long, value_name = "NAME")]
    credit: Option<String>,
    /// Name of the result; the recipe's own when left out
    #[arg(long)]
    name: Option<String>,
    /// Run to credit; all of the reward's when left out
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
            credit: arguments.credit.clone(),
            ..DeriveOptions::default()
        };
        let derived = run_credit(&session, &recipe, arguments.reward.as_deref(), &options).await?;
        results.push((run, derived));
    }
    show_all(&results, "credit", arguments.format)?;
    Ok(ExitCode::SUCCESS)
}
