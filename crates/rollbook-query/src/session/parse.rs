//! SQL text to one statement.

use std::convert::Infallible;
use std::ops::ControlFlow;

use datafusion::sql::parser::{DFParserBuilder, Statement};
use datafusion::sql::sqlparser::ast::{Expr, Ident, Query, SelectItem, SetExpr, SetQuantifier, VisitMut, VisitorMut};

use super::dialect::RollbookDialect;
use crate::error::{Error, Result};

/// Parses exactly one statement in Rollbook's dialect.
pub fn parse(sql: &str) -> Result<Statement> {
    let mut statements = DFParserBuilder::new(sql).with_dialect(&RollbookDialect).build()?.parse_statements()?;
    match (statements.pop_front(), statements.len()) {
        (Some(mut statement), 0) => {
            name_arms(&mut statement);
            Ok(statement)
        }
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

/// Gives names of their own to the columns of every arm of a UNION, INTERSECT or EXCEPT but the first, whose names are those of the
/// result. `DataFusion` renames the others to them one by one, and fails where a column is there twice or has the name of another place.
fn name_arms(statement: &mut Statement) {
    match statement {
        Statement::Statement(statement) => {
            let _: ControlFlow<Infallible> = statement.visit(&mut NameArms);
        }
        Statement::Explain(explain) => name_arms(&mut explain.statement),
        _ => {}
    }
}

struct NameArms;

impl VisitorMut for NameArms {
    type Break = Infallible;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Infallible> {
        name(&mut query.body, false);
        ControlFlow::Continue(())
    }
}

fn name(arm: &mut SetExpr, is_later: bool) {
    match arm {
        SetExpr::SetOperation { left, right, set_quantifier, .. } if !is_by_name(*set_quantifier) => {
            name(left, is_later);
            name(right, true);
        }
        SetExpr::Select(select) if is_later => {
            for (place, item) in select.projection.iter_mut().enumerate() {
                if let SelectItem::UnnamedExpr(expr) = item {
                    let alias = Ident::with_quote('"', format!("#{place}"));
                    *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias };
                }
            }
        }
        _ => {}
    }
}

fn is_by_name(quantifier: SetQuantifier) -> bool {
    matches!(quantifier, SetQuantifier::ByName | SetQuantifier::AllByName | SetQuantifier::DistinctByName)
}

#[cfg(test)]
mod tests {
    use arrow::util::pretty::pretty_format_batches;
    use rstest::rstest;

    use crate::fixture::Scratch;

    const ROWS: &str =
        "WITH a AS (SELECT value AS x, value + 10 AS y FROM range(0, 3)), b AS (SELECT x + 1 AS x, y + 1 AS y FROM a)";

    #[rstest]
    #[case::twice("SELECT x, y FROM a WHERE x = 0 UNION ALL SELECT x, x FROM a WHERE x = 2", &["0 10", "2 2"])]
    #[case::swapped("SELECT x, y FROM a WHERE x = 0 UNION SELECT s.y, s.x FROM (SELECT * FROM a) AS s WHERE s.x = 1", &["0 10", "11 1"])]
    #[case::of_two_tables(
        "SELECT x, y FROM a EXCEPT SELECT b.x, a.y FROM a JOIN b ON a.x + 1 = b.x WHERE a.x < 0",
        &["0 10", "1 11", "2 12"],
    )]
    #[case::both_sides("SELECT x, y FROM a INTERSECT SELECT b.x, b.y FROM a JOIN b ON a.x = b.x", &["1 11", "2 12"])]
    #[case::by_name("SELECT x, y FROM a WHERE x = 0 UNION ALL BY NAME SELECT y, x FROM a WHERE x = 1", &["0 10", "1 11"])]
    #[case::in_a_subquery(
        "SELECT x, y FROM (SELECT x, y FROM a WHERE x = 0 UNION ALL SELECT y, y FROM a WHERE x = 1) AS s",
        &["0 10", "11 11"],
    )]
    #[case::grouped(
        "SELECT x, y FROM a WHERE x = 9 UNION ALL SELECT x % 2, count(*) FROM a GROUP BY 1 HAVING count(*) > 1",
        &["0 2"],
    )]
    #[case::constants("SELECT x, y FROM a WHERE x = 0 UNION ALL SELECT 7, 7", &["0 10", "7 7"])]
    #[tokio::test]
    async fn later_arms_may_name_their_columns_as_they_like(#[case] sql: &str, #[case] expected: &[&str]) {
        let session = Scratch::new().await.session().await;
        let found = session.collect(&format!("{ROWS} {sql} ORDER BY x, y")).await.unwrap();
        let text = pretty_format_batches(&found).unwrap().to_string();
        let rows: Vec<String> = text
            .lines()
            .skip(3)
            .filter(|line| line.starts_with('|'))
            .map(|line| line.replace('|', " ").split_whitespace().collect::<Vec<_>>().join(" "))
            .collect();
        assert_eq!(rows, expected);
        assert!(text.lines().nth(1).unwrap().starts_with("| x "), "{text}");
    }
}
