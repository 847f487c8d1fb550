//! `rollbook schema`: shows the tables and columns of the format.

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

use arrow::datatypes::{DataType, Schema};
use arrow::ipc::writer::StreamWriter;
use clap::{Args, ValueEnum};
use rollbook_schema::{Column, Layer, Table, table, tables};
use serde_json::json;

use crate::error::{CommandError, Result};
use crate::output::{line, small_table, written};

/// A report's form: for people, or for programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum TextFormat {
    /// A table that fits the terminal
    Table,
    /// One JSON document
    Json,
}

/// The schema's form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum SchemaFormat {
    /// A table that fits the terminal
    Table,
    /// One JSON document
    Json,
    /// The logical Arrow schema as an empty IPC stream, for one table
    Arrow,
}

/// Show the tables and columns of the format
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  rollbook schema                                  all tables
  rollbook schema calls                            the columns of calls, with unit and what null means
  rollbook schema calls --format arrow > calls.arrow")]
pub(crate) struct Arguments {
    /// Table; all of them when left out
    table: Option<String>,
    /// How the schema is printed
    #[arg(long, value_enum, default_value_t = SchemaFormat::Table)]
    format: SchemaFormat,
}

/// Prints the schema.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let chosen = match &arguments.table {
        Some(name) => Some(table(name).ok_or_else(|| unknown(name))?),
        None => None,
    };
    match (arguments.format, chosen) {
        (SchemaFormat::Table, Some(table)) => columns(table)?,
        (SchemaFormat::Table, None) => overview()?,
        (SchemaFormat::Json, Some(table)) => line(&as_json(table).to_string())?,
        (SchemaFormat::Json, None) => {
            let all: Vec<_> = tables().iter().map(as_json).collect();
            line(&serde_json::Value::Array(all).to_string())?;
        }
        (SchemaFormat::Arrow, Some(table)) => arrow(&table.logical())?,
        (SchemaFormat::Arrow, None) => {
            return Err(
                CommandError::usage("the Arrow form is of one table").hint("rollbook schema calls --format arrow")
            );
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn unknown(name: &str) -> CommandError {
    let names: Vec<&str> = tables().iter().map(|table| table.name.as_str()).collect();
    CommandError::usage(format!("no table is called {name}; there are: {}", names.join(", ")))
}

fn overview() -> Result<()> {
    let rows: Vec<Vec<String>> = tables()
        .iter()
        .map(|table| {
            vec![table.name.clone(), table.columns.len().to_string(), table.key.join(", "), table.comment.clone()]
        })
        .collect();
    line(&small_table(&["table", "columns", "key", "what it holds"], &rows))
}

fn columns(table: &Table) -> Result<()> {
    line(&format!("{}: {}", table.name, table.comment))?;
    let rows: Vec<Vec<String>> =
        table.columns.iter().filter(|column| column.layer != Layer::Physical).map(row).collect();
    line(&small_table(&["column", "type", "unit", "what it holds", "null means"], &rows))
}

fn row(column: &Column) -> Vec<String> {
    vec![
        column.field.name().clone(),
        type_name(column.field.data_type()),
        column.unit.clone().unwrap_or_default(),
        column.comment.clone(),
        column.null_means.clone().unwrap_or_default(),
    ]
}

/// A type in the exchange format's words.
fn type_name(kind: &DataType) -> String {
    match kind {
        DataType::Utf8 => "string".to_owned(),
        DataType::Int32 => "integer".to_owned(),
        DataType::Int64 => "long".to_owned(),
        DataType::Float32 => "float".to_owned(),
        DataType::Float64 => "double".to_owned(),
        DataType::Boolean => "boolean".to_owned(),
        DataType::Timestamp(_, _) => "timestamp".to_owned(),
        DataType::List(item) => format!("array<{}>", type_name(item.data_type())),
        DataType::Map(_, _) => "map<string,double>".to_owned(),
        DataType::Struct(fields) => {
            let inner: Vec<String> =
                fields.iter().map(|field| format!("{} {}", field.name(), type_name(field.data_type()))).collect();
            format!("struct<{}>", inner.join(", "))
        }
        other => other.to_string(),
    }
}

fn as_json(table: &Table) -> serde_json::Value {
    let columns: Vec<_> = table
        .columns
        .iter()
        .map(|column| {
            json!({
                "name": column.field.name(),
                "type": type_name(column.field.data_type()),
                "nullable": column.field.is_nullable(),
                "layer": match column.layer { Layer::Both => "both", Layer::Logical => "logical", Layer::Physical => "physical" },
                "comment": column.comment,
                "unit": column.unit,
                "null": column.null_means,
                "since": column.since,
            })
        })
        .collect();
    json!({ "table": table.name, "comment": table.comment, "keyed": table.keyed, "key": table.key, "columns": columns })
}

fn arrow(schema: &Schema) -> Result<()> {
    let stdout = io::stdout();
    if stdout.is_terminal() {
        return Err(CommandError::usage("a binary format is not printed to a terminal")
            .hint("rollbook schema calls --format arrow > calls.arrow"));
    }
    let mut writer = StreamWriter::try_new(stdout, schema)?;
    writer.finish()?;
    written(writer.into_inner()?.flush())
}
