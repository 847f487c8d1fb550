//! Reads the text of a Delta commit that Rollbook wrote.

use std::collections::BTreeMap;

use rollbook_schema::digest::bytes_digest;
use serde::Deserialize;
use serde_json::Value;

use crate::delta::{TAG_SORTED, TAG_UNRESOLVED};
use crate::error::{Error, Kind, Result};
use crate::file::{DataFile, ranges_of_stats};

/// What a commit does to its table.
#[derive(Debug, Default)]
pub(crate) struct CommitActions {
    pub(crate) add: Vec<DataFile>,
    /// Paths below the lake's root.
    pub(crate) remove: Vec<String>,
    pub(crate) metadata: Option<TableMetadata>,
}

/// What the log remembers of a table's metadata.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TableMetadata {
    pub(crate) id: String,
    pub(crate) schema_digest: String,
    pub(crate) columns: usize,
}

#[derive(Deserialize)]
struct Line {
    add: Option<Add>,
    remove: Option<Remove>,
    #[serde(rename = "metaData")]
    metadata: Option<Metadata>,
}

#[derive(Deserialize)]
struct Add {
    path: String,
    size: u64,
    stats: String,
    #[serde(default)]
    tags: Option<BTreeMap<String, Option<String>>>,
}

#[derive(Deserialize)]
struct Remove {
    path: String,
}

#[derive(Deserialize)]
struct Metadata {
    id: String,
    #[serde(rename = "schemaString")]
    schema_string: String,
}

#[derive(Deserialize)]
struct Fields {
    fields: Vec<Value>,
}

/// Reads a commit of `table`.
pub(crate) fn read_commit(table: &str, text: &str) -> Result<CommitActions> {
    let mut actions = CommitActions::default();
    for line in text.lines().filter(|line| !line.is_empty()) {
        let line: Line = serde_json::from_str(line).map_err(|source| unreadable(table).with_source(source))?;
        if let Some(add) = line.add {
            actions.add.push(data_file(table, add).map_err(|error| error.with("table", table))?);
        }
        if let Some(remove) = line.remove {
            actions.remove.push(format!("{table}/{}", remove.path));
        }
        if let Some(metadata) = line.metadata {
            let schema: Fields = serde_json::from_str(&metadata.schema_string)
                .map_err(|source| unreadable(table).with_source(source))?;
            actions.metadata = Some(TableMetadata {
                id: metadata.id,
                schema_digest: bytes_digest(metadata.schema_string.as_bytes()),
                columns: schema.fields.len(),
            });
        }
    }
    Ok(actions)
}

fn data_file(table: &str, add: Add) -> Result<DataFile> {
    let ranges = ranges_of_stats(&add.stats)?;
    let is_set = |tag: &str| {
        add.tags.as_ref().and_then(|tags| tags.get(tag)).and_then(Option::as_deref).is_some_and(|value| value == "true")
    };
    Ok(DataFile {
        path: format!("{table}/{}", add.path),
        size: add.size,
        rows: ranges.rows,
        run_id: ranges.run_id,
        step: ranges.step,
        group_id: ranges.group_id,
        step_nulls: ranges.step_nulls,
        group_nulls: ranges.group_nulls,
        unresolved: is_set(TAG_UNRESOLVED),
        sorted: is_set(TAG_SORTED),
        max_prompt_len: ranges.max_prompt_len,
        stats: add.stats,
        import_id: None,
        derivation_id: None,
        snapshot: 0,
    })
}

fn unreadable(table: &str) -> Error {
    Error::new(Kind::Corrupt, "the text of a Delta commit cannot be read").with("table", table)
}
