//! Rows that came against rows that were expected.

use std::collections::BTreeMap;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float64Type};
use arrow::util::display::array_value_to_string;
use serde_json::{Map, Value, json};

use crate::error::Result;
use crate::recipe::Kind;
use crate::recipe::testing::given::{RUN, Row};

/// Relative difference that two doubles may have, and two stored floats.
const DOUBLE: f64 = 1e-9;
const FLOAT: f64 = 1e-6;
/// What counts as zero where zero is expected.
const ZERO: f64 = 1e-12;

/// Lists what differs, a line each; nothing where all is as expected.
pub(super) fn differences(kind: Kind, batches: &[RecordBatch], expected: &[Row]) -> Result<Vec<String>> {
    let mut rows = Vec::new();
    for batch in batches {
        for row in 0..batch.num_rows() {
            rows.push(object(batch, row)?);
        }
    }
    let mut found = Vec::new();
    let pairs =
        if kind == Kind::Build { by_place(rows, expected, &mut found) } else { by_key(rows, expected, &mut found) };
    for (expected, row) in pairs {
        for (column, value) in &expected.fields {
            let place = format!("line {}: {}, column {column}", expected.line, name(&expected.fields));
            match row.get(column) {
                None => found.push(format!("{place} is not returned")),
                Some(given) => {
                    if !agree(given, value, tolerance(column)) {
                        found.push(format!("{place} is {given}, expected {value}"));
                    }
                }
            }
        }
    }
    Ok(found)
}

/// Pairs rows of a plan with those expected, one after the other.
fn by_place<'a>(
    rows: Vec<Map<String, Value>>,
    expected: &'a [Row],
    found: &mut Vec<String>,
) -> Vec<(&'a Row, Map<String, Value>)> {
    if rows.len() != expected.len() {
        found.push(format!("the plan has {} rows, expected {}", rows.len(), expected.len()));
    }
    expected.iter().zip(rows).collect()
}

/// Pairs rows of a reward or credit with those expected, by run, rollout and call.
fn by_key<'a>(
    rows: Vec<Map<String, Value>>,
    expected: &'a [Row],
    found: &mut Vec<String>,
) -> Vec<(&'a Row, Map<String, Value>)> {
    let mut by_key: BTreeMap<[String; 3], Map<String, Value>> = rows.into_iter().map(|row| (key(&row), row)).collect();
    let mut pairs = Vec::new();
    for expected in expected {
        match by_key.remove(&key(&expected.fields)) {
            Some(row) => pairs.push((expected, row)),
            None => found.push(format!("line {}: there is no row for {}", expected.line, name(&expected.fields))),
        }
    }
    found.extend(
        by_key.values().map(|row| {
            format!("an unexpected row for {}, value {}", name(row), row.get("value").unwrap_or(&Value::Null))
        }),
    );
    pairs
}

fn key(row: &Map<String, Value>) -> [String; 3] {
    let text = |name: &str, default: &str| row.get(name).and_then(Value::as_str).unwrap_or(default).to_owned();
    [text("run_id", RUN), text("rollout_id", ""), text("call_id", "")]
}

fn name(row: &Map<String, Value>) -> String {
    let [run, rollout, call] = key(row);
    let mut name = format!("rollout {rollout}");
    if run != RUN {
        name = format!("run {run}, {name}");
    }
    if call.is_empty() { name } else { format!("{name}, call {call}") }
}

fn tolerance(column: &str) -> f64 {
    if column == "token_values" { FLOAT } else { DOUBLE }
}

/// Whether two values are the same, numbers up to a relative difference.
fn agree(given: &Value, expected: &Value, tolerance: f64) -> bool {
    match (given, expected) {
        (Value::Number(given), Value::Number(expected)) => {
            let (Some(given), Some(expected)) = (given.as_f64(), expected.as_f64()) else {
                return given == expected;
            };
            let size = given.abs().max(expected.abs());
            (given - expected).abs() <= tolerance * size || (expected == 0.0 && given.abs() <= ZERO)
        }
        (Value::Array(given), Value::Array(expected)) => {
            given.len() == expected.len() && given.iter().zip(expected).all(|(a, b)| agree(a, b, tolerance))
        }
        (Value::Object(given), Value::Object(expected)) => {
            given.len() == expected.len()
                && expected.iter().all(|(key, b)| given.get(key).is_some_and(|a| agree(a, b, tolerance)))
        }
        _ => given == expected,
    }
}

fn object(batch: &RecordBatch, row: usize) -> Result<Map<String, Value>> {
    let schema = batch.schema();
    let mut object = Map::new();
    for (field, column) in schema.fields().iter().zip(batch.columns()) {
        object.insert(field.name().clone(), value(column, row)?);
    }
    Ok(object)
}

/// A cell as JSON; what is no JSON number is the word that the exchange format has for it.
fn value(array: &ArrayRef, row: usize) -> Result<Value> {
    if array.is_null(row) || array.data_type() == &DataType::Null {
        return Ok(Value::Null);
    }
    Ok(match array.data_type() {
        DataType::Boolean => json!(array.as_boolean().value(row)),
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => {
            json!(cast(array, &DataType::Utf8)?.as_string::<i32>().value(row))
        }
        kind if kind.is_integer() => {
            let text = array_value_to_string(array, row)?;
            text.parse::<i64>().map_or_else(|_| json!(text), |number| json!(number))
        }
        kind if kind.is_numeric() => {
            let number = cast(array, &DataType::Float64)?.as_primitive::<Float64Type>().value(row);
            match () {
                () if number.is_nan() => json!("NaN"),
                () if number.is_infinite() => json!(if number > 0.0 { "Infinity" } else { "-Infinity" }),
                () => json!(number),
            }
        }
        DataType::List(_) => items(&array.as_list::<i32>().value(row))?,
        DataType::LargeList(_) => items(&array.as_list::<i64>().value(row))?,
        DataType::Map(_, _) => {
            let entries = array.as_map().value(row);
            let mut object = Map::new();
            for entry in 0..entries.len() {
                let Value::String(key) = value(entries.column(0), entry)? else {
                    continue;
                };
                object.insert(key, value(entries.column(1), entry)?);
            }
            Value::Object(object)
        }
        _ => json!(array_value_to_string(array, row)?),
    })
}

fn items(array: &ArrayRef) -> Result<Value> {
    Ok(Value::Array((0..array.len()).map(|item| value(array, item)).collect::<Result<_>>()?))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case(json!(1.0), json!(1), true)]
    #[case(json!(1.000_000_000_1), json!(1), true)]
    #[case(json!(1.000_000_01), json!(1), false)]
    #[case(json!(1e-300), json!(2e-300), false)]
    #[case(json!(1e-17), json!(0), true)]
    #[case(json!(1e-9), json!(0), false)]
    #[case(json!(0), json!(1e-13), false)]
    #[case(json!("NaN"), json!("NaN"), true)]
    #[case(json!(null), json!(0), false)]
    #[case(json!([1, null]), json!([1, null]), true)]
    #[case(json!([1]), json!([1, 1]), false)]
    #[case(json!({"a": 1}), json!({"a": 1, "b": 2}), false)]
    fn numbers_agree_relative_to_their_size(#[case] given: Value, #[case] expected: Value, #[case] same: bool) {
        assert_eq!(agree(&given, &expected, DOUBLE), same);
    }
}
