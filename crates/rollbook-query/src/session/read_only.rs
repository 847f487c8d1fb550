//! What a statement may be: one query, or a question about the schema or the plan of one.
//!
//! The check runs twice, on the syntax tree and on the plan, so that a statement which a parser change lets
//! through still meets a wall before anything runs.

use std::ops::ControlFlow;

use datafusion::execution::context::SQLOptions;
use datafusion::logical_expr::LogicalPlan;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    Ident, ObjectName, ObjectNamePart, Query, Select, Statement as SqlStatement, Visit, Visitor,
};

use crate::error::{Error, Result};

/// Refuses every statement that is not a query, `EXPLAIN`, `SHOW` or `DESCRIBE`.
pub(super) fn verify_statement(statement: &Statement) -> Result<()> {
    match statement {
        Statement::Statement(inner) => verify_sql(inner),
        Statement::Explain(explain) => verify_statement(&explain.statement),
        Statement::CopyTo(_) => Err(refusal("COPY")),
        Statement::CreateExternalTable(_) => Err(refusal("CREATE EXTERNAL TABLE")),
        Statement::Reset(_) => Err(refusal("RESET")),
    }
}

/// Refuses a plan that would write or change the session.
pub(super) fn verify_plan(plan: &LogicalPlan) -> Result<()> {
    SQLOptions::new()
        .with_allow_ddl(false)
        .with_allow_dml(false)
        .with_allow_statements(false)
        .verify_plan(plan)
        .map_err(|source| {
            Error::unsupported("Rollbook's SQL only reads: it takes queries, EXPLAIN, SHOW and DESCRIBE")
                .caused_by(source)
        })
}

fn refusal(what: &str) -> Error {
    Error::unsupported(format!(
        "{what} is refused: Rollbook's SQL only reads, it takes queries, EXPLAIN, SHOW and DESCRIBE"
    ))
}

fn verify_sql(statement: &SqlStatement) -> Result<()> {
    match statement {
        SqlStatement::Query(_)
        | SqlStatement::ExplainTable { .. }
        | SqlStatement::ShowTables { .. }
        | SqlStatement::ShowColumns { .. }
        | SqlStatement::ShowFunctions { .. }
        | SqlStatement::ShowCreate { .. }
        | SqlStatement::ShowVariable { .. } => {}
        SqlStatement::Explain { statement, .. } => verify_sql(statement)?,
        other => return Err(refusal(&verb(other))),
    }
    match statement.visit(&mut ReadsOnly) {
        ControlFlow::Break(error) => Err(error),
        ControlFlow::Continue(()) => Ok(()),
    }
}

/// The first word or two of a statement, for the message.
fn verb(statement: &SqlStatement) -> String {
    let text = statement.to_string();
    let words: Vec<&str> = text.split_whitespace().take(2).collect();
    match words.as_slice() {
        ["CREATE" | "DROP" | "ALTER" | "START", ..] => words.join(" "),
        [first, ..] => (*first).to_owned(),
        [] => "this statement".to_owned(),
    }
}

/// Looks for writes hidden inside a query, and for files in place of tables.
struct ReadsOnly;

impl Visitor for ReadsOnly {
    type Break = Error;

    fn pre_visit_statement(&mut self, statement: &SqlStatement) -> ControlFlow<Error> {
        match statement {
            SqlStatement::Query(_)
            | SqlStatement::Explain { .. }
            | SqlStatement::ExplainTable { .. }
            | SqlStatement::ShowTables { .. }
            | SqlStatement::ShowColumns { .. }
            | SqlStatement::ShowFunctions { .. }
            | SqlStatement::ShowCreate { .. }
            | SqlStatement::ShowVariable { .. } => ControlFlow::Continue(()),
            other => ControlFlow::Break(refusal(&verb(other))),
        }
    }

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<Error> {
        if query.locks.is_empty() { ControlFlow::Continue(()) } else { ControlFlow::Break(refusal("a locking clause")) }
    }

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<Error> {
        if select.into.is_some() {
            return ControlFlow::Break(refusal("SELECT INTO"));
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_relation(&mut self, relation: &ObjectName) -> ControlFlow<Error> {
        match relation.0.as_slice() {
            [ObjectNamePart::Identifier(ident)] if names_a_file(ident) => ControlFlow::Break(
                Error::unsupported(
                    "files and URLs cannot be read as tables: import them, then query the lake's tables",
                )
                .with("name", &ident.value),
            ),
            _ => ControlFlow::Continue(()),
        }
    }
}

/// `FROM 'x.parquet'` and `FROM "s3://…"` are ways to ask for a file.
fn names_a_file(ident: &Ident) -> bool {
    ident.quote_style == Some('\'') || ident.value.contains('/') || ident.value.contains("://")
}
