//! The SQL of a recipe: parsed, and narrowed to the rows a run of it may see.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    ObjectName, Query, Statement as SqlStatement, TableAlias, TableFactor, VisitMut, VisitorMut,
};

use crate::error::{Error, Result};
use crate::session::parse;

/// Parses the SQL of a recipe or of one of its checks; errors name the recipe, the line and the column.
pub(crate) fn parse_query(recipe: &str, sql: &str) -> Result<Query> {
    let statement = parse(sql).map_err(|error| located(recipe, &error))?;
    match statement {
        Statement::Statement(inner) => match *inner {
            SqlStatement::Query(query) => Ok(*query),
            other => Err(not_a_query(recipe, &other.to_string())),
        },
        other => Err(not_a_query(recipe, &other.to_string())),
    }
}

fn not_a_query(recipe: &str, statement: &str) -> Error {
    let verb = statement.split_whitespace().next().unwrap_or("nothing");
    Error::invalid(format!("recipe {recipe} must be one SELECT, not {verb}"))
}

/// Turns the parser's ` at Line: 3, Column: 9` into the place in the recipe.
fn located(recipe: &str, error: &Error) -> Error {
    let message = error.to_string();
    let message = message.trim_end_matches(['"', ')']);
    let message = message.strip_prefix("SQL error: ").unwrap_or(message);
    let message = ["ParserError(\"", "TokenizerError(\""]
        .iter()
        .find_map(|prefix| message.strip_prefix(prefix))
        .unwrap_or(message);
    let place = message.rsplit_once(" at Line: ").and_then(|(what, place)| {
        let (line, column) = place.split_once(", Column: ")?;
        Some((what, line.trim(), column.trim()))
    });
    match place {
        Some((what, line, column)) => Error::invalid(format!("recipe {recipe}, line {line}, column {column}: {what}")),
        None => Error::invalid(format!("recipe {recipe}: {message}")),
    }
}

/// Replaces tables by queries over them, so that a recipe sees only the rows it may, under the names it knows.
pub(crate) fn narrow(recipe: &str, query: &mut Query, scopes: &BTreeMap<String, Query>) -> Result<()> {
    let mut narrowing = Narrowing { recipe, scopes };
    match VisitMut::visit(query, &mut narrowing) {
        ControlFlow::Break(error) => Err(error),
        ControlFlow::Continue(()) => Ok(()),
    }
}

/// Collects the tables a query names.
pub(crate) fn relations(query: &mut Query) -> Vec<String> {
    struct Names(Vec<String>);
    impl VisitorMut for Names {
        type Break = ();

        fn post_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
            if let TableFactor::Table { name, args: None, .. } = factor {
                self.0.extend(plain_name(name));
            }
            ControlFlow::Continue(())
        }
    }
    let mut names = Names(Vec::new());
    match VisitMut::visit(query, &mut names) {
        // Nothing breaks off this walk.
        ControlFlow::Continue(()) | ControlFlow::Break(()) => names.0,
    }
}

struct Narrowing<'a> {
    recipe: &'a str,
    scopes: &'a BTreeMap<String, Query>,
}

impl VisitorMut for Narrowing<'_> {
    type Break = Error;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Error> {
        let tables = query.with.iter().flat_map(|with| &with.cte_tables);
        for table in tables {
            let name = table.alias.name.value.to_lowercase();
            if self.scopes.contains_key(&name) {
                return ControlFlow::Break(Error::invalid(format!(
                    "recipe {}: WITH {name} hides the table of that name; call it otherwise",
                    self.recipe
                )));
            }
        }
        ControlFlow::Continue(())
    }

    // After the children: the query that is put in is not walked, so the table inside it stays.
    fn post_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<Error> {
        let TableFactor::Table { name, alias, args: None, .. } = factor else {
            return ControlFlow::Continue(());
        };
        let Some((known, scope)) = plain_name(name).and_then(|name| self.scopes.get_key_value(&name)) else {
            return ControlFlow::Continue(());
        };
        let alias = alias.take().unwrap_or_else(|| TableAlias {
            explicit: true,
            name: known.as_str().into(),
            columns: Vec::new(),
            at: None,
        });
        *factor = TableFactor::Derived {
            lateral: false,
            subquery: Box::new(scope.clone()),
            alias: Some(alias),
            sample: None,
        };
        ControlFlow::Continue(())
    }
}

/// The name of a table written without catalog and schema, as the planner folds it.
fn plain_name(name: &ObjectName) -> Option<String> {
    let [part] = name.0.as_slice() else {
        return None;
    };
    let ident = part.as_ident()?;
    Some(if ident.quote_style.is_some() { ident.value.clone() } else { ident.value.to_lowercase() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_syntax_error_names_line_and_column_of_the_file() {
        let message = parse_query("r", "-- @kind reward\nSELECT\n  a b c\nFROM x").unwrap_err().to_string();
        assert!(message.starts_with("recipe r, line 3, column 7: "), "{message}");
    }

    #[test]
    fn only_one_select_is_a_recipe() {
        assert!(parse_query("r", "DROP TABLE x").unwrap_err().to_string().contains("must be one SELECT"));
        assert!(parse_query("r", "SELECT 1; SELECT 2").is_err());
    }

    #[test]
    fn tables_are_narrowed_under_their_names() {
        let scope = parse_query("r", "SELECT * FROM scores WHERE run_id = 'a'").unwrap();
        let scopes = BTreeMap::from([("scores".to_owned(), scope)]);
        let mut query =
            parse_query("r", "WITH s AS (SELECT * FROM scores) SELECT * FROM s JOIN SCORES AS t USING (x)").unwrap();
        assert_eq!(relations(&mut query), ["scores", "s", "scores"]);
        narrow("r", &mut query, &scopes).unwrap();
        assert_eq!(
            query.to_string(),
            "WITH s AS (SELECT * FROM (SELECT * FROM scores WHERE run_id = 'a') AS scores) \
             SELECT * FROM s JOIN (SELECT * FROM scores WHERE run_id = 'a') AS t USING(x)"
        );
        let mut hidden = parse_query("r", "WITH scores AS (SELECT 1) SELECT * FROM scores").unwrap();
        assert!(narrow("r", &mut hidden, &scopes).unwrap_err().to_string().contains("WITH scores hides"));
    }
}
