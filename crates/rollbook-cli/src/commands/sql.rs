//! `rollbook sql`: queries a snapshot, one-shot, from a file or interactively.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use rollbook_query::Session;
use rustyline::error::ReadlineError;
use rustyline::history::FileHistory;
use rustyline::{Config, Editor};

use crate::error::{CommandError, Result, report};
use crate::lake::ReadArgs;
use crate::output::{Format, TableShape, note, print};

/// Query the lake, at one snapshot, read-only
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  rollbook sql --lake my-lake -c 'SELECT call_id, prompt_len FROM calls LIMIT 5'
  rollbook sql --lake my-lake -f report.sql --format csv > report.csv
  rollbook sql --lake my-lake --at 3 -c 'SELECT count(*) FROM scores'
  rollbook sql --lake my-lake                          a prompt; statements end with ;  leave with \\q

Tables: rollbook schema. Views: groups, contexts, tokens, transitions, trajectories, call_rows, rollout_rows,
contract.
Functions: rollbook functions.
DuckDB's dialect, named arguments as name => value. Read-only: no DDL, DML, SET, COPY, no files by name.")]
pub(crate) struct Arguments {
    #[command(flatten)]
    read: ReadArgs,
    /// The statement
    #[arg(short, long, value_name = "SQL", conflicts_with = "file", allow_hyphen_values = true)]
    command: Option<String>,
    /// A file with the statement, - for standard input
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// How rows are printed
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
    /// Rows that a table shows at most, 0 for all
    #[arg(long, default_value_t = 100)]
    rows: usize,
}

/// Runs the statement, or the prompt.
pub(crate) async fn run(arguments: Arguments) -> Result<ExitCode> {
    let shape = TableShape { rows: (arguments.rows > 0).then_some(arguments.rows) };
    let statement = match (&arguments.command, &arguments.file) {
        (Some(command), _) => Some(command.clone()),
        (None, Some(file)) => Some(read(file)?),
        (None, None) if !std::io::stdin().is_terminal() => Some(read(&PathBuf::from("-"))?),
        (None, None) => None,
    };
    let session = arguments.read.session().await?;
    match statement {
        Some(statement) => print(session.stream(&statement).await?, arguments.format, &shape).await?,
        None => prompt(&session, arguments.format, &shape).await?,
    }
    Ok(ExitCode::SUCCESS)
}

fn read(file: &PathBuf) -> Result<String> {
    let text =
        if file.as_os_str() == "-" { std::io::read_to_string(std::io::stdin()) } else { std::fs::read_to_string(file) };
    text.map_err(|error| CommandError::usage(format!("{} cannot be read: {error}", file.display())))
}

async fn prompt(session: &Session, format: Format, shape: &TableShape) -> Result<()> {
    let config = Config::builder().auto_add_history(false).build();
    let mut editor: Editor<(), FileHistory> =
        Editor::with_history(config, FileHistory::new()).map_err(|error| no_prompt(&error))?;
    note(&format!(
        "snapshot {} of {}; statements end with ;  \\d lists tables, \\q leaves",
        session.snapshot().n,
        session.lake().url()
    ));
    let mut statement = String::new();
    loop {
        let asked = editor.readline(if statement.is_empty() { "rollbook> " } else { "     ...> " });
        let text = match asked {
            Ok(text) => text,
            Err(ReadlineError::Interrupted) => {
                statement.clear();
                continue;
            }
            Err(ReadlineError::Eof) => return Ok(()),
            Err(error) => return Err(no_prompt(&error)),
        };
        match text.trim() {
            "\\q" | "quit" | "exit" if statement.is_empty() => return Ok(()),
            "\\d" if statement.is_empty() => "SHOW TABLES;".clone_into(&mut statement),
            "" if statement.is_empty() => continue,
            more => {
                statement.push_str(more);
                statement.push('\n');
            }
        }
        if !statement.trim_end().ends_with(';') {
            continue;
        }
        // History is a comfort: a statement is run whether it could be remembered or not.
        if let Err(error) = editor.add_history_entry(statement.trim_end()) {
            note(&format!("not in the history: {error}"));
        }
        let shown = match session.stream(statement.trim_end().trim_end_matches(';')).await {
            Ok(stream) => print(stream, format, shape).await,
            Err(error) => Err(error.into()),
        };
        if let Err(error) = shown {
            report(&error);
        }
        statement.clear();
    }
}

fn no_prompt(error: &ReadlineError) -> CommandError {
    CommandError::unavailable(format!("the prompt failed: {error}"))
}
