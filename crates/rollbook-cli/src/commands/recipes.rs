//! `rollbook recipes`: lists the shipped recipes, or shows one.

use std::process::ExitCode;

use clap::Args;
use rollbook_query::recipe::{Recipe, catalog, find_recipe};
use serde_json::json;

use super::schema::TextFormat;
use crate::error::Result;
use crate::output::{line, small_table};

/// List the shipped recipes, or show one
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  rollbook recipes                     all of them, with formula and parameters
  rollbook recipes grpo                one, with its SQL: copy it to a file to make your own")]
pub(crate) struct Arguments {
    /// A recipe's file or name; all shipped ones when left out
    name: Option<String>,
    /// How it is printed
    #[arg(long, value_enum, default_value_t = TextFormat::Table)]
    format: TextFormat,
}

/// Prints the recipes.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
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
            line(&small_table(&["kind", "recipe", "formula", "parameters"], &rows))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn row(recipe: &Recipe) -> Vec<String> {
    let parameters: Vec<String> = recipe
        .parameters()
        .iter()
        .map(|parameter| match &parameter.default {
            Some(default) => format!("{} = {default}", parameter.name),
            None => parameter.name.clone(),
        })
        .collect();
    vec![
        recipe.kind().as_str().to_owned(),
        recipe.name().to_owned(),
        recipe.formula().unwrap_or_else(|| recipe.doc()).to_owned(),
        parameters.join(", "),
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
        "parameters": parameters,
        "text": recipe.text(),
    })
}
