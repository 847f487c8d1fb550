//! Parameters put into the syntax tree: `$name` becomes a typed literal, or an expression for a group key.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use datafusion::arrow::array::Array;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{Expr, Value, VisitMut, VisitorMut};

use super::parse::parse_expression;
use crate::error::{Error, Result};

/// Replaces every `$name` of a statement.
pub(super) fn substitute(
    statement: &mut Statement,
    params: &BTreeMap<String, ScalarValue>,
    expressions: &BTreeMap<String, String>,
) -> Result<()> {
    let mut replacements = BTreeMap::new();
    for (name, value) in params {
        replacements.insert(name.as_str(), literal(value).map_err(|error| error.with("parameter", name))?);
    }
    for (name, sql) in expressions {
        let expr = parse_expression(sql).map_err(|error| error.with("parameter", name))?;
        replacements.insert(name.as_str(), Expr::Nested(Box::new(expr)));
    }
    let mut visitor = Substitution { replacements };
    match with_sql(statement, |sql| sql.visit(&mut visitor)) {
        Some(ControlFlow::Break(error)) => Err(error),
        _ => Ok(()),
    }
}

/// Runs `f` on the SQL statement inside, below any number of `EXPLAIN`s.
pub(super) fn with_sql<T>(
    statement: &mut Statement,
    f: impl FnOnce(&mut datafusion::sql::sqlparser::ast::Statement) -> T,
) -> Option<T> {
    match statement {
        Statement::Statement(inner) => Some(f(inner)),
        Statement::Explain(explain) => with_sql(&mut explain.statement, f),
        _ => None,
    }
}

struct Substitution<'a> {
    replacements: BTreeMap<&'a str, Expr>,
}

impl VisitorMut for Substitution<'_> {
    type Break = Error;

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Error> {
        let Expr::Value(value) = &*expr else {
            return ControlFlow::Continue(());
        };
        let Value::Placeholder(text) = &value.value else {
            return ControlFlow::Continue(());
        };
        let name = text.trim_start_matches(['$', '?', ':']);
        if let Some(replacement) = self.replacements.get(name) {
            *expr = replacement.clone();
            return ControlFlow::Continue(());
        }
        let known: Vec<&str> = self.replacements.keys().copied().collect();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        ControlFlow::Break(Error::invalid(format!("parameter {text} has no value")).with("parameters given", known))
    }
}

/// Writes a value as an expression of exactly its type.
fn literal(value: &ScalarValue) -> Result<Expr> {
    parse_expression(&text(value)?)
}

fn text(value: &ScalarValue) -> Result<String> {
    if value.is_null() {
        return Ok(format!("CAST(NULL AS {})", type_name(&value.data_type())?));
    }
    Ok(match value {
        ScalarValue::Boolean(Some(b)) => b.to_string(),
        ScalarValue::Utf8(Some(s)) | ScalarValue::LargeUtf8(Some(s)) | ScalarValue::Utf8View(Some(s)) => quoted(s),
        ScalarValue::Float64(Some(v)) => float(*v),
        ScalarValue::Float32(Some(v)) => float(f64::from(*v)),
        ScalarValue::List(list) => {
            let mut items = Vec::new();
            let values = list.value(0);
            for index in 0..values.len() {
                items.push(text(&ScalarValue::try_from_array(&values, index)?)?);
            }
            let name = type_name(&value.data_type())?;
            format!("CAST([{}] AS {name})", items.join(", "))
        }
        ScalarValue::Map(map) => {
            let entries = map.value(0);
            let keys = entries.column(0);
            let values = entries.column(1);
            map_text(keys.as_ref(), values.as_ref())?
        }
        number => format!("CAST({} AS {})", quoted(&number.to_string()), type_name(&number.data_type())?),
    })
}

fn map_text(keys: &dyn Array, values: &dyn Array) -> Result<String> {
    let list = |array: &dyn Array| -> Result<String> {
        let items = (0..array.len())
            .map(|index| text(&ScalarValue::try_from_array(array, index)?))
            .collect::<Result<Vec<_>>>()?;
        Ok(format!("CAST([{}] AS {}[])", items.join(", "), type_name(array.data_type())?))
    };
    Ok(format!("map({}, {})", list(keys)?, list(values)?))
}

fn float(value: f64) -> String {
    // Text keeps NaN and the infinities, which have no numeric literal; the shortest text that reads back is exact.
    format!("CAST('{value:?}' AS DOUBLE)")
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

fn type_name(data_type: &DataType) -> Result<String> {
    Ok(match data_type {
        DataType::Null | DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => "VARCHAR".to_owned(),
        DataType::Boolean => "BOOLEAN".to_owned(),
        DataType::Int8 | DataType::Int16 | DataType::Int32 => "INT".to_owned(),
        DataType::Int64 | DataType::UInt8 | DataType::UInt16 | DataType::UInt32 | DataType::UInt64 => {
            "BIGINT".to_owned()
        }
        DataType::Float32 | DataType::Float64 => "DOUBLE".to_owned(),
        DataType::Timestamp(..) => "TIMESTAMP".to_owned(),
        DataType::List(field) => format!("{}[]", type_name(field.data_type())?),
        other => {
            return Err(Error::invalid(format!("a parameter cannot have the type {other}")));
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::sql::parser::Statement;

    fn run(sql: &str, params: &[(&str, ScalarValue)]) -> Result<String> {
        let mut statement = super::super::parse::parse(sql)?;
        let params = params.iter().map(|(k, v)| ((*k).to_owned(), v.clone())).collect();
        substitute(&mut statement, &params, &BTreeMap::new())?;
        match statement {
            Statement::Statement(inner) => Ok(inner.to_string()),
            other => Ok(other.to_string()),
        }
    }

    #[test]
    fn a_value_becomes_a_literal_of_its_type() {
        let sql = run(
            "SELECT $a, $b, $c",
            &[("a", ScalarValue::from("x'y")), ("b", ScalarValue::from(1.5)), ("c", ScalarValue::from(7_i64))],
        )
        .unwrap();
        assert_eq!(sql, "SELECT 'x''y', CAST('1.5' AS DOUBLE), CAST('7' AS BIGINT)");
    }

    #[test]
    fn a_missing_value_is_an_error_that_names_it() {
        let error = run("SELECT $a + $nope", &[("a", ScalarValue::from(1_i64))]).unwrap_err();
        assert!(error.to_string().contains("$nope"), "{error}");
    }
}
