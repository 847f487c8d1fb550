//! The columns a recipe returns: which it may, which it must, and how they become those of its table.

use std::sync::{Arc, LazyLock};

use arrow::array::{Array, ArrayRef, AsArray, MapArray, RecordBatch, StructArray};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, Field, FieldRef, Schema};

use crate::error::{Error, Result};
use crate::recipe::{Kind, Place, Recipe};

/// One column a recipe may return.
#[derive(Debug, Clone)]
pub(crate) struct OutputColumn {
    pub(crate) name: &'static str,
    pub(crate) data_type: DataType,
    required: bool,
}

/// Names of the columns of `rewards` that a recipe returns; the engine fills the others.
const REWARD: &[(&str, bool)] = &[
    ("run_id", false),
    ("rollout_id", true),
    ("call_id", false),
    ("value", true),
    ("exclusion_reason", false),
    ("components", false),
    ("score_ids", false),
];

/// The same for `credits`.
const CREDIT: &[(&str, bool)] = &[
    ("run_id", false),
    ("rollout_id", true),
    ("call_id", false),
    ("quantity", false),
    ("level", false),
    ("value", true),
    ("token_values", false),
    ("baseline_scope", false),
    ("baseline_key", false),
    ("baseline_count", false),
];

/// Makes a list type as the tables have it.
pub(crate) fn list_of(item: DataType, nullable: bool) -> DataType {
    DataType::List(Arc::new(Field::new("element", item, nullable)))
}

/// The columns of a plan, which is no table.
static BUILD: LazyLock<Vec<OutputColumn>> = LazyLock::new(|| {
    let column = |name, data_type, required| OutputColumn { name, data_type, required };
    vec![
        column("optimizer_step", DataType::Int64, true),
        column("micro_batch", DataType::Int32, false),
        column("rank", DataType::Int32, false),
        column("row_index", DataType::Int32, true),
        column("sequence_index", DataType::Int32, true),
        column("rollout_id", DataType::Utf8, true),
        column("call_ids", list_of(DataType::Utf8, true), true),
    ]
});

fn columns(kind: Kind) -> Result<Vec<OutputColumn>> {
    let (table, names) = match kind {
        Kind::Reward => ("rewards", REWARD),
        Kind::Credit => ("credits", CREDIT),
        Kind::Build => return Ok(BUILD.clone()),
    };
    let schema = rollbook_schema::table(table)
        .ok_or_else(|| Error::corrupt(format!("the schema has no table {table}")))?
        .logical();
    names
        .iter()
        .map(|(name, required)| {
            let data_type = schema.field_with_name(name)?.data_type().clone();
            Ok(OutputColumn { name, data_type, required: *required })
        })
        .collect()
}

/// Checks what a recipe's SELECT returns, and gives the columns that it does return, in table order.
pub(crate) fn output_of(recipe: &Recipe, returned: &Schema) -> Result<Vec<OutputColumn>> {
    let known = columns(recipe.kind())?;
    let kind = recipe.kind().as_str();
    for field in returned.fields() {
        if known.iter().all(|column| column.name != field.name()) {
            let names: Vec<_> = known.iter().map(|column| column.name).collect();
            return Err(wrong(
                recipe,
                Place::last_of(recipe.text(), field.name()),
                &format!("a {kind} has no column {}; it may return {}", field.name(), names.join(", ")),
            ));
        }
    }
    let mut output = Vec::new();
    for column in known {
        match returned.field_with_name(column.name) {
            Ok(field) if fits(field.data_type(), &column.data_type) => output.push(column),
            Ok(field) => {
                return Err(wrong(
                    recipe,
                    Place::last_of(recipe.text(), column.name),
                    &format!(
                        "column {} is returned as {}; expected {}",
                        column.name,
                        plain(field.data_type()),
                        plain(&column.data_type)
                    ),
                ));
            }
            Err(_) if column.required => {
                return Err(wrong(
                    recipe,
                    Place::of(recipe.text(), "SELECT"),
                    &format!("column {} is not returned; expected {}", column.name, plain(&column.data_type)),
                ));
            }
            Err(_) => {}
        }
    }
    Ok(output)
}

/// The error for a column, at the word that names it.
fn wrong(recipe: &Recipe, place: Option<Place>, message: &str) -> Error {
    let place = place.map_or_else(String::new, |place| format!(", {place}"));
    Error::invalid(format!("recipe {}{place}: {message}", recipe.name()))
}

/// The words of the schema files for a type.
fn plain(data_type: &DataType) -> String {
    match data_type {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => "string".to_owned(),
        DataType::Int32 => "integer".to_owned(),
        DataType::Int64 => "long".to_owned(),
        DataType::Float32 => "float".to_owned(),
        DataType::Float64 => "double".to_owned(),
        DataType::Boolean => "boolean".to_owned(),
        DataType::List(item) | DataType::LargeList(item) => {
            format!("array<{}>", plain(item.data_type()))
        }
        DataType::Map(entries, _) => match entry_types(entries) {
            Some((key, value)) => format!("map<{},{}>", plain(key), plain(value)),
            None => "map".to_owned(),
        },
        other => other.to_string().to_lowercase(),
    }
}

fn entry_types(entries: &FieldRef) -> Option<(&DataType, &DataType)> {
    match entries.data_type() {
        DataType::Struct(fields) if fields.len() == 2 => Some((fields[0].data_type(), fields[1].data_type())),
        _ => None,
    }
}

/// Whether a column of one type can stand for one of another without guessing.
fn fits(from: &DataType, to: &DataType) -> bool {
    match (from, to) {
        (DataType::Null, _) => true,
        (DataType::Dictionary(_, values), _) => fits(values, to),
        (_, DataType::Float64 | DataType::Float32) => from.is_numeric(),
        // `row_number() - 1` is a decimal without places: an unsigned and a signed integer have no wider one.
        (_, DataType::Int64 | DataType::Int32) => from.is_integer() || matches!(from, DataType::Decimal128(_, 0)),
        (_, DataType::Utf8) => from.is_string(),
        (DataType::List(a) | DataType::LargeList(a), DataType::List(b)) => fits(a.data_type(), b.data_type()),
        (DataType::Map(a, _) | DataType::List(a), DataType::Map(b, _)) => match (entry_types(a), entry_types(b)) {
            (Some((key_a, value_a)), Some((key_b, value_b))) => fits(key_a, key_b) && fits(value_a, value_b),
            _ => false,
        },
        _ => from == to,
    }
}

/// Turns the column of a batch into the table's type; `None` where the recipe does not return it.
pub(crate) fn conform(recipe: &str, batch: &RecordBatch, column: &OutputColumn) -> Result<Option<ArrayRef>> {
    let Some(array) = batch.column_by_name(column.name) else {
        return Ok(None);
    };
    convert(array, &column.data_type).map(Some).map_err(|error| {
        Error::invalid(format!("recipe {recipe}, column {}: {error}", column.name))
            .with("expected", plain(&column.data_type))
    })
}

fn convert(array: &ArrayRef, to: &DataType) -> Result<ArrayRef> {
    // A value that does not fit is an error here, never a null.
    let strict = CastOptions { safe: false, ..CastOptions::default() };
    let DataType::Map(entries, sorted) = to else {
        return Ok(cast_with_options(array, to, &strict)?);
    };
    let (offsets, structs, nulls) = match array.data_type() {
        DataType::Map(_, _) => {
            let map = array.as_map();
            (map.offsets().clone(), map.entries().clone(), map.nulls().cloned())
        }
        DataType::List(_) => {
            let list = array.as_list::<i32>();
            (list.offsets().clone(), list.values().as_struct().clone(), list.nulls().cloned())
        }
        _ => return Ok(cast_with_options(array, to, &strict)?),
    };
    let DataType::Struct(fields) = entries.data_type() else {
        return Err(Error::corrupt("a map's entries are no struct"));
    };
    let converted = fields
        .iter()
        .zip(structs.columns())
        .map(|(field, values)| Ok(cast_with_options(values, field.data_type(), &strict)?))
        .collect::<Result<Vec<_>>>()?;
    let structs = StructArray::try_new(fields.clone(), converted, None)?;
    Ok(Arc::new(MapArray::try_new(Arc::clone(entries), offsets, structs, nulls, *sorted)?))
}

#[cfg(test)]
mod tests {
    use arrow::array::{Float64Array, Int64Array, StringViewArray};

    use super::*;

    const REWARD_TEXT: &str = "-- @kind reward\nSELECT 1";

    fn recipe() -> Recipe {
        Recipe::parse("r", REWARD_TEXT).unwrap()
    }

    fn returned(fields: &[(&str, DataType)]) -> Schema {
        Schema::new(fields.iter().map(|(name, ty)| Field::new(*name, ty.clone(), true)).collect::<Vec<_>>())
    }

    #[test]
    fn columns_that_convert_without_loss_are_taken() {
        let output = output_of(
            &recipe(),
            &returned(&[
                ("value", DataType::Int64),
                ("rollout_id", DataType::Utf8View),
                ("score_ids", DataType::List(Arc::new(Field::new("item", DataType::Utf8, true)))),
                ("components", DataType::Null),
            ]),
        )
        .unwrap();
        let names: Vec<_> = output.iter().map(|column| column.name).collect();
        assert_eq!(names, ["rollout_id", "value", "components", "score_ids"]);
    }

    #[test]
    fn a_missing_an_extra_and_a_wrong_column_are_named_with_what_was_expected() {
        let message = |fields: &[(&str, DataType)]| output_of(&recipe(), &returned(fields)).unwrap_err().to_string();
        let id = ("rollout_id", DataType::Utf8);
        assert_eq!(
            message(std::slice::from_ref(&id)),
            "recipe r, line 2, column 1: column value is not returned; expected double"
        );
        assert_eq!(
            message(&[id.clone(), ("value", DataType::Utf8)]),
            "recipe r: column value is returned as string; expected double"
        );
        let extra = message(&[id, ("value", DataType::Float64), ("valeu", DataType::Float64)]);
        assert!(extra.starts_with("recipe r: a reward has no column valeu; it may return run_id"), "{extra}");
    }

    #[test]
    fn values_are_converted_and_an_overflow_is_an_error() {
        let batch = RecordBatch::try_from_iter([
            ("rollout_id", Arc::new(StringViewArray::from(vec!["a"])) as ArrayRef),
            ("baseline_count", Arc::new(Int64Array::from(vec![1_i64 << 40])) as ArrayRef),
            ("value", Arc::new(Float64Array::from(vec![0.5])) as ArrayRef),
        ])
        .unwrap();
        let column = |name, data_type| OutputColumn { name, data_type, required: true };
        let ids = conform("r", &batch, &column("rollout_id", DataType::Utf8)).unwrap().unwrap();
        assert_eq!(ids.data_type(), &DataType::Utf8);
        let error = conform("r", &batch, &column("baseline_count", DataType::Int32)).unwrap_err().to_string();
        assert!(error.starts_with("recipe r, column baseline_count"), "{error}");
    }
}
