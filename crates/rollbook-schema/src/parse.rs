//! Delta's schema JSON, read into columns.

use std::sync::Arc;

use arrow_schema::{DataType, Field, Fields, TimeUnit};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{Column, Error, ErrorKind, Layer, Result, Table};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TableFile {
    #[serde(rename = "type")]
    kind: String,
    metadata: TableFacts,
    fields: Vec<ColumnEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TableFacts {
    comment: String,
    keyed: bool,
    key: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ColumnEntry {
    name: String,
    #[serde(rename = "type")]
    data_type: Value,
    nullable: bool,
    metadata: ColumnFacts,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ColumnFacts {
    comment: String,
    unit: Option<String>,
    null: Option<String>,
    since: String,
    layer: LayerName,
    #[serde(default)]
    json: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum LayerName {
    Both,
    Logical,
    Physical,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
enum NestedType {
    Array {
        #[serde(rename = "elementType")]
        element: Value,
        #[serde(rename = "containsNull")]
        contains_null: bool,
    },
    Struct {
        fields: Vec<MemberEntry>,
    },
    Map {
        #[serde(rename = "keyType")]
        key: Value,
        #[serde(rename = "valueType")]
        value: Value,
        #[serde(rename = "valueContainsNull")]
        value_contains_null: bool,
    },
}

#[derive(Deserialize)]
struct MemberEntry {
    name: String,
    #[serde(rename = "type")]
    data_type: Value,
    nullable: bool,
}

/// Reads one table file.
pub(crate) fn table(name: &'static str, text: &'static str) -> Result<Table> {
    let file: TableFile = serde_json::from_str(text)
        .map_err(|error| Error::new(ErrorKind::Invalid, "not a table file").with("table", name).caused_by(error))?;
    if file.kind != "struct" {
        return Err(Error::new(ErrorKind::Invalid, "a table is a struct").with("table", name));
    }
    let columns = file
        .fields
        .into_iter()
        .map(|entry| column(entry).map_err(|error| error.with("table", name)))
        .collect::<Result<Vec<_>>>()?;
    Ok(Table::new(name, text, file.metadata.comment, file.metadata.keyed, file.metadata.key, columns))
}

fn column(entry: ColumnEntry) -> Result<Column> {
    let data_type = arrow_type(&entry.data_type).map_err(|error| error.with("column", entry.name.as_str()))?;
    let mut delta_metadata = json!({ "comment": entry.metadata.comment });
    if let Some(unit) = &entry.metadata.unit {
        delta_metadata["unit"] = json!(unit);
    }
    let delta = json!({
        "name": entry.name,
        "type": entry.data_type,
        "nullable": entry.nullable,
        "metadata": delta_metadata,
    });
    Ok(Column {
        field: Field::new(entry.name, data_type, entry.nullable),
        layer: match entry.metadata.layer {
            LayerName::Both => Layer::Both,
            LayerName::Logical => Layer::Logical,
            LayerName::Physical => Layer::Physical,
        },
        comment: entry.metadata.comment,
        unit: entry.metadata.unit,
        null_means: entry.metadata.null,
        since: entry.metadata.since,
        is_json: entry.metadata.json,
        delta,
    })
}

/// Turns a Delta type into the Arrow type it is read as.
fn arrow_type(delta: &Value) -> Result<DataType> {
    match delta {
        Value::String(name) => primitive(name),
        nested => nested_type(nested),
    }
}

fn primitive(name: &str) -> Result<DataType> {
    Ok(match name {
        "string" => DataType::Utf8,
        "integer" => DataType::Int32,
        "long" => DataType::Int64,
        "float" => DataType::Float32,
        "double" => DataType::Float64,
        "boolean" => DataType::Boolean,
        "timestamp" => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        other => {
            return Err(Error::new(ErrorKind::Unsupported, format!("the type {other} is not part of the format")));
        }
    })
}

fn nested_type(delta: &Value) -> Result<DataType> {
    let nested = NestedType::deserialize(delta)
        .map_err(|error| Error::new(ErrorKind::Invalid, "not a Delta type").caused_by(error))?;
    Ok(match nested {
        NestedType::Array { element, contains_null } => {
            DataType::List(Arc::new(Field::new("element", arrow_type(&element)?, contains_null)))
        }
        NestedType::Struct { fields } => DataType::Struct(
            fields
                .into_iter()
                .map(|member| Ok(Field::new(member.name, arrow_type(&member.data_type)?, member.nullable)))
                .collect::<Result<Fields>>()?,
        ),
        NestedType::Map { key, value, value_contains_null } => {
            let entries = Fields::from(vec![
                Field::new("key", arrow_type(&key)?, false),
                Field::new("value", arrow_type(&value)?, value_contains_null),
            ]);
            DataType::Map(Arc::new(Field::new("key_value", DataType::Struct(entries), false)), false)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_type_is_unsupported_and_named() {
        let error = arrow_type(&json!("decimal(10,2)")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("decimal(10,2)"));
    }

    #[test]
    fn misspelt_fact_is_invalid_and_places_the_table() {
        let text = r#"{"type":"struct","metadata":{"comment":"","keyed":false,"key":[],"kyed":1},"fields":[]}"#;
        let error = table("calls", text).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert_eq!(error.context(), [("table", "calls".to_owned())]);
    }
}
