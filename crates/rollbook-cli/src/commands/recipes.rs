//! `rollbook recipes`: lists the shipped recipes, shows one, or runs the tests a recipe carries.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use rollbook_query::recipe::testing::run_tests;
use rollbook_query::recipe::{Recipe, catalog, find_recipe};
use serde_json::json;

use super::schema::TextFormat;
use crate::error::{CommandError, Result};
use crate::output::{line, plain, small_table};

/// List the shipped recipes, show one, or test one
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:
  rollbook recipes                     all of them: formula, defaults, source, what differs from namesakes
  rollbook recipes grpo                one, with its SQL: copy it to a file to make your own
  rollbook recipes test my_credit.sql  run the tests in its leading comment

A parameter without a default must be given. Beside those shown every reward and credit has group_key = group_id, the
expression over rollouts that says which belong together."
)]
pub(crate) struct Arguments {
    /// A recipe's file or name; all shipped ones when left out
    name: Option<String>,
    /// How it is printed
    #[arg(long, value_enum, default_value_t = TextFormat::Table)]
    format: TextFormat,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the tests that recipes carry, each in a lake of its own
    Test(TestArguments),
}

/// Run the tests that recipes carry, each in a lake of its own
#[derive(Debug, Args)]
#[command(after_help = "A test stands in the leading comment of the recipe:

  -- @test the winner stands out
  --   reward {\"rollout_id\": \"a\", \"group_id\": \"g\", \"value\": 1}
  --   reward {\"rollout_id\": \"b\", \"group_id\": \"g\", \"value\": 0}
  --   param eps=0
  --   expect {\"rollout_id\": \"a\", \"value\": 0.7071067811865475}
  --   expect {\"rollout_id\": \"b\", \"value\": -0.7071067811865475}

A line is TABLE and rows of it as JSON (the tables of the exchange format; reward and credit are the upstream), param
NAME=VALUE, expect and rows that must come, or error and part of the message that must come. Only the columns of an
expected row are compared. A run that is not named, rollouts, score ids and a call's exactness are filled in.

Exit status: 0 all pass, 1 one fails, 2 a recipe cannot be read or has no test.")]
pub(crate) struct TestArguments {
    /// Recipes' files or names; all shipped ones when left out
    recipes: Vec<String>,
    /// How the results are printed
    #[arg(long, value_enum, default_value_t = TextFormat::Table)]
    format: TextFormat,
}

/// Prints the recipes, or runs their tests.
pub(crate) async fn run(arguments: &Arguments) -> Result<ExitCode> {
    if let Some(Command::Test(arguments)) = &arguments.command {
        return test(arguments).await;
    }
    let chosen = match &arguments.name {
        Some(name) => vec![find_recipe(name)?],
        None => catalog()?,
    };
    match (arguments.format, &arguments.name) {
        (TextFormat::Json, _) => line(&serde_json::Value::Array(chosen.iter().map(as_json).collect()).to_string())?,
        (TextFormat::Table, Some(_)) => {
            for recipe in &chosen {
                line(recipe.text().trim_end())?;
            }
        }
        (TextFormat::Table, None) => {
            let rows: Vec<Vec<String>> = chosen.iter().map(row).collect();
            line(&small_table(&["kind", "recipe", "formula", "defaults", "source", "differs"], &rows))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn test(arguments: &TestArguments) -> Result<ExitCode> {
    let recipes = if arguments.recipes.is_empty() {
        catalog()?
    } else {
        arguments.recipes.iter().map(|name| Ok(find_recipe(name)?)).collect::<Result<Vec<_>>>()?
    };
    let options = crate::lake::options();
    let (mut passed, mut failed) = (0_usize, 0_usize);
    let mut rows = Vec::new();
    for recipe in &recipes {
        let outcomes = run_tests(recipe, &options).await?;
        if outcomes.is_empty() {
            return Err(CommandError::usage(format!("recipe {} has no test", recipe.name()))
                .hint("add a block `-- @test NAME` to its leading comment: rollbook recipes test --help"));
        }
        for outcome in outcomes {
            let has_passed = outcome.failures.is_empty();
            if has_passed {
                passed += 1;
            } else {
                failed += 1;
            }
            match arguments.format {
                TextFormat::Table => {
                    let word = if has_passed { "pass" } else { "FAIL" };
                    line(&plain(&format!("{word}  {}, line {}: {}", recipe.name(), outcome.line, outcome.name)))?;
                    for failure in &outcome.failures {
                        line(&plain(&format!("      {failure}")))?;
                    }
                }
                TextFormat::Json => rows.push(json!({
                    "recipe": recipe.name(),
                    "test": outcome.name,
                    "line": outcome.line,
                    "passed": has_passed,
                    "failures": outcome.failures,
                })),
            }
        }
    }
    match arguments.format {
        TextFormat::Table => line(&format!("{passed} passed, {failed} failed"))?,
        TextFormat::Json => line(&serde_json::Value::Array(rows).to_string())?,
    }
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

fn row(recipe: &Recipe) -> Vec<String> {
    let defaults: Vec<String> = recipe
        .parameters()
        .iter()
        // Every reward and credit has it; the column shows what is a recipe's own.
        .filter(|parameter| !(parameter.name == "group_key" && parameter.default.as_deref() == Some("group_id")))
        .map(|parameter| match &parameter.default {
            Some(default) => format!("{} = {default}", parameter.name),
            None => parameter.name.clone(),
        })
        .collect();
    vec![
        recipe.kind().as_str().to_owned(),
        recipe.name().to_owned(),
        recipe.formula().unwrap_or_else(|| recipe.doc()).to_owned(),
        defaults.join(", "),
        recipe.source().unwrap_or_default().to_owned(),
        recipe.differs().unwrap_or_default().to_owned(),
    ]
}

fn as_json(recipe: &Recipe) -> serde_json::Value {
    let parameters: Vec<_> = recipe
        .parameters()
        .iter()
        .map(|parameter| {
            json!({ "name": parameter.name, "type": parameter.ty.as_str(), "default": parameter.default, "doc": parameter.doc })
        })
        .collect();
    json!({
        "name": recipe.name(),
        "kind": recipe.kind().as_str(),
        "doc": recipe.doc(),
        "formula": recipe.formula(),
        "source": recipe.source(),
        "differs": recipe.differs(),
        "parameters": parameters,
        "text": recipe.text(),
    })
}
