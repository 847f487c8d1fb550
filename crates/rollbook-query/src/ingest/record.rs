//! The rows that an import writes about itself: one in `imports`, one in `rejects` for each record left out.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, Int64Array, ListBuilder, RecordBatch, StringArray, StringBuilder, TimestampMicrosecondArray,
};
use arrow::datatypes::{DataType, Schema};
use rollbook_import::Reject;
use rollbook_schema::Table;

use super::TableCount;
use super::spool::conform;
use crate::error::{Error, Result};

/// What an import says of its source.
#[derive(Debug, Clone)]
pub(super) struct Source {
    pub(super) import_id: String,
    pub(super) format: String,
    pub(super) version: String,
    pub(super) digest: String,
    pub(super) paths: Vec<String>,
}

/// The one row of `imports`.
pub(super) fn import_row(
    source: &Source,
    counts: &BTreeMap<String, TableCount>,
    rejected: u64,
    created_at: i64,
) -> Result<RecordBatch> {
    let table =
        rollbook_schema::table("imports").ok_or_else(|| Error::corrupt("the schema lacks the table imports"))?;
    let mut tables = serde_json::Map::new();
    for (name, count) in counts {
        tables.insert(
            name.clone(),
            serde_json::json!({ "read": count.read, "added": count.added, "known": count.known }),
        );
    }
    let counts = serde_json::json!({ "tables": tables, "rejected": rejected }).to_string();
    let text = |value: &str| Arc::new(StringArray::from(vec![value])) as ArrayRef;
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("import_id", text(&source.import_id)),
        ("format", text(&source.format)),
        ("sources", sources(table, &source.paths)?),
        ("source_digest", text(&source.digest)),
        ("importer_version", text(&source.version)),
        ("counts", text(&counts)),
        ("created_at", Arc::new(TimestampMicrosecondArray::from(vec![created_at]).with_timezone("UTC"))),
    ];
    named(table, columns)
}

fn sources(table: &Table, paths: &[String]) -> Result<ArrayRef> {
    let field = table.column("sources").map(|column| column.field.data_type().clone());
    let Some(DataType::List(item)) = field else {
        return Err(Error::corrupt("imports.sources is not a list in the schema"));
    };
    let mut list = ListBuilder::new(StringBuilder::new()).with_field(item);
    for path in paths {
        list.values().append_value(path);
    }
    list.append(true);
    Ok(Arc::new(list.finish()))
}

/// One row of `rejects`, its import not filled yet.
pub(super) fn reject_row(table: &Table, reject: &Reject) -> Result<RecordBatch> {
    let text = |value: Option<&str>| Arc::new(StringArray::from(vec![value])) as ArrayRef;
    let line = reject.line.and_then(|line| i64::try_from(line).ok());
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("file", text(Some(&reject.file))),
        ("line", Arc::new(Int64Array::from(vec![line]))),
        ("field", text(reject.field.as_deref())),
        ("reason", text(Some(&reject.reason))),
        ("raw", text(reject.raw.as_deref())),
    ];
    named(table, columns)
}

fn named(table: &Table, columns: Vec<(&str, ArrayRef)>) -> Result<RecordBatch> {
    let fields: Vec<_> = columns
        .iter()
        .map(|(name, column)| arrow::datatypes::Field::new(*name, column.data_type().clone(), true))
        .collect();
    let arrays = columns.into_iter().map(|(_, column)| column).collect();
    let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays)?;
    conform(&batch, &table.physical())
}
