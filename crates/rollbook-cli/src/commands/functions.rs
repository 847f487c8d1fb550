//! `rollbook functions`: lists the SQL functions with their rules.

use std::process::ExitCode;

use clap::Args;
use rollbook_functions::{Function, functions};
use serde_json::json;

use super::schema::TextFormat;
use crate::error::{CommandError, Result};
use crate::output::{line, small_table};

/// List the SQL functions with their rules
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  rollbook functions                  all of them
  rollbook functions grpo             one, with its arguments, rules and an example")]
pub(crate) struct Arguments {
    /// Function; all of them when left out
    name: Option<String>,
    /// How it is printed
    #[arg(long, value_enum, default_value_t = TextFormat::Table)]
    format: TextFormat,
}

/// Prints the functions.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let chosen: Vec<&Function> = match &arguments.name {
        Some(name) => {
            let found: Vec<&Function> = functions().iter().copied().filter(|function| function.name == name).collect();
            if found.is_empty() {
                let names: Vec<&str> = functions().iter().map(|function| function.name).collect();
                return Err(CommandError::usage(format!(
                    "no function is called {name}; there are: {}",
                    names.join(", ")
                )));
            }
            found
        }
        None => functions().to_vec(),
    };
    match (arguments.format, &arguments.name) {
        (TextFormat::Json, _) => {
            let all: Vec<_> = chosen.iter().map(|function| as_json(function)).collect();
            line(&serde_json::Value::Array(all).to_string())?;
        }
        (TextFormat::Table, Some(_)) => {
            for function in chosen {
                explain(function)?;
            }
        }
        (TextFormat::Table, None) => {
            let rows: Vec<Vec<String>> = chosen
                .iter()
                .map(|function| vec![function.family.to_owned(), function.syntax(), function.doc.to_owned()])
                .collect();
            line(&small_table(&["family", "function", "what it gives"], &rows))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn explain(function: &Function) -> Result<()> {
    line(&function.syntax())?;
    line(&format!("  {}", function.doc))?;
    let rows: Vec<Vec<String>> = function
        .params
        .iter()
        .map(|param| {
            let default = param.default.map_or_else(|| "required".to_owned(), str::to_owned);
            vec![param.name.to_owned(), param.type_name.to_owned(), default, param.doc.to_owned()]
        })
        .collect();
    line(&small_table(&["argument", "type", "default", "what it is"], &rows))?;
    line(function.definition.trim())?;
    if let Some(source) = function.source {
        line(&format!("Source: {source}"))?;
    }
    line("Example:")?;
    line(function.example_sql().trim())?;
    line(function.example_result().trim())
}

fn as_json(function: &Function) -> serde_json::Value {
    let params: Vec<_> = function
        .params
        .iter()
        .map(|param| json!({ "name": param.name, "type": param.type_name, "default": param.default, "doc": param.doc }))
        .collect();
    json!({
        "name": function.name,
        "family": function.family,
        "version": function.version,
        "syntax": function.syntax(),
        "returns": function.returns,
        "doc": function.doc,
        "definition": function.definition,
        "source": function.source,
        "params": params,
        "example": { "sql": function.example_sql().trim(), "result": function.example_result().trim() },
    })
}
