//! SQL text to one statement.

use datafusion::sql::parser::{DFParserBuilder, Statement};
use datafusion::sql::sqlparser::ast::Expr;

use super::dialect::RollbookDialect;
use crate::error::{Error, Result};

/// Parses exactly one statement in Rollbook's dialect.
pub fn parse(sql: &str) -> Result<Statement> {
    let mut statements = DFParserBuilder::new(sql).with_dialect(&RollbookDialect).build()?.parse_statements()?;
    match (statements.pop_front(), statements.len()) {
        (Some(statement), 0) => Ok(statement),
        (None, _) => Err(Error::invalid("there is no statement to run")),
        (Some(_), more) => Err(Error::invalid("one statement at a time, please").with("statements", more + 1)),
    }
}

/// Parses one expression, such as a group key, in Rollbook's dialect.
pub fn parse_expression(sql: &str) -> Result<Expr> {
    let parsed = DFParserBuilder::new(sql).with_dialect(&RollbookDialect).build()?.parse_into_expr()?;
    if parsed.alias.is_some() {
        return Err(Error::invalid("an expression takes no alias").with("expression", sql));
    }
    Ok(parsed.expr)
}
