//! Composes the text of a Delta commit.

use rollbook_schema::{FORMAT_VERSION, Table};
use serde_json::{Map, Value, json};

use crate::delta::checkpoint::CHECKPOINT_EVERY;
use crate::delta::{TAG_SORTED, TAG_UNRESOLVED};
use crate::error::{Error, Kind, Result};
use crate::file::DataFile;
use crate::snapshot::Kind as WriteKind;

/// What a commit says.
pub(crate) struct CommitSpec<'a> {
    pub(crate) table: &'a str,
    pub(crate) kind: WriteKind,
    /// Entry that carries it.
    pub(crate) n: u64,
    pub(crate) now_us: i64,
    /// New or changed metadata: the table's definition and Delta's id of it.
    pub(crate) define: Option<(&'a Table, String)>,
    pub(crate) is_new: bool,
    pub(crate) add: &'a [DataFile],
    pub(crate) remove: &'a [&'a DataFile],
}

/// Writes the commit, one action a line, no newline at the end.
pub(crate) fn commit_text(spec: &CommitSpec<'_>) -> Result<String> {
    let millis = spec.now_us.div_euclid(1000);
    let rows = |files: &mut dyn Iterator<Item = u64>| files.sum::<u64>();
    let is_same_rows =
        rows(&mut spec.add.iter().map(|file| file.rows)) == rows(&mut spec.remove.iter().map(|file| file.rows));
    // A rewrite that keeps every row only rearranges files, and a reader of changes may skip it.
    let changes_data = spec.kind == WriteKind::Append || !is_same_rows;
    let mut lines = vec![commit_info(spec, millis)];
    if spec.is_new {
        lines.push(json!({ "protocol": { "minReaderVersion": 1, "minWriterVersion": 2 } }));
    }
    if let Some((table, id)) = &spec.define {
        lines.push(metadata(table, id, millis));
    }
    for file in spec.remove {
        lines.push(json!({ "remove": {
            "path": inner_path(spec.table, &file.path)?,
            "deletionTimestamp": millis,
            "dataChange": changes_data,
            "extendedFileMetadata": true,
            "partitionValues": {},
            "size": file.size,
        } }));
    }
    for file in spec.add {
        lines.push(json!({ "add": {
            "path": inner_path(spec.table, &file.path)?,
            "partitionValues": {},
            "size": file.size,
            "modificationTime": millis,
            "dataChange": changes_data,
            "stats": file.stats,
            "tags": tags(file),
        } }));
    }
    Ok(lines.iter().map(Value::to_string).collect::<Vec<_>>().join("\n"))
}

fn commit_info(spec: &CommitSpec<'_>, millis: i64) -> Value {
    let (operation, parameters) = match (spec.is_new, spec.kind) {
        (true, _) => ("CREATE TABLE", json!({})),
        (false, WriteKind::Append) => ("WRITE", json!({ "mode": "Append" })),
        (false, WriteKind::Rewrite) => ("OPTIMIZE", json!({})),
    };
    json!({ "commitInfo": {
        "timestamp": millis,
        "operation": operation,
        "operationParameters": parameters,
        "isBlindAppend": spec.kind == WriteKind::Append,
        "engineInfo": concat!("rollbook/", env!("CARGO_PKG_VERSION")),
        "rollbookSnapshot": spec.n,
    } })
}

fn metadata(table: &Table, id: &str, millis: i64) -> Value {
    json!({ "metaData": {
        "id": id,
        "name": table.name,
        "description": table.comment,
        "format": { "provider": "parquet", "options": {} },
        "schemaString": table.delta_schema_string(),
        "partitionColumns": [],
        "createdTime": millis,
        "configuration": {
            "delta.enableExpiredLogCleanup": "false",
            "delta.checkpointInterval": CHECKPOINT_EVERY.to_string(),
            "rollbook.schemaVersion": FORMAT_VERSION.to_string(),
        },
    } })
}

fn tags(file: &DataFile) -> Value {
    let mut tags = Map::new();
    if file.unresolved {
        tags.insert(TAG_UNRESOLVED.to_owned(), json!("true"));
    }
    if file.sorted {
        tags.insert(TAG_SORTED.to_owned(), json!("true"));
    }
    Value::Object(tags)
}

/// A file's path as its table's log says it. Our names need no escaping; others are not ours to add.
fn inner_path<'a>(table: &str, path: &'a str) -> Result<&'a str> {
    let is_plain = |name: &str| {
        !name.is_empty()
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'/'))
    };
    path.strip_prefix(table).and_then(|rest| rest.strip_prefix('/')).filter(|name| is_plain(name)).ok_or_else(|| {
        Error::new(Kind::Invalid, "a file does not lie in its table").with("table", table).with("path", path)
    })
}
