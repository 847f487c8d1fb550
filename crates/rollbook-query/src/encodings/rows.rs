//! The rows of `encodings`, without a query: functions ask for them while one runs.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{Array, AsArray, RecordBatch, StringArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int32Type, Int64Type};
use rollbook_lake::{DataFile, Lake};
use serde_json::{Map, Value};

use super::Encoding;
use crate::error::{Error, Result};
use crate::ingest::files;

const COLUMNS: [&str; 8] = [
    "encoding_id",
    "tokenizer_digest",
    "chat_template_digest",
    "template_kwargs",
    "special_token_map",
    "detokenizer_flags",
    "generation_prompt_ids",
    "revision",
];

/// Reads the newest revision of every encoding.
pub(super) async fn read(lake: &Lake, from: &[Arc<DataFile>]) -> Result<HashMap<String, Arc<Encoding>>> {
    let mut newest: HashMap<String, (i64, Arc<Encoding>)> = HashMap::new();
    for file in from {
        for batch in files::read(lake, file, &COLUMNS).await? {
            let ids = text(&batch, "encoding_id")?;
            let revisions = column(&batch, "revision")?;
            let revisions = cast(revisions, &DataType::Int64)?;
            let revisions = revisions.as_primitive::<Int64Type>();
            for row in (0..batch.num_rows()).filter(|row| ids.is_valid(*row)) {
                let revision = if revisions.is_valid(row) { revisions.value(row) } else { 0 };
                let is_older = newest.get(ids.value(row)).is_some_and(|(known, _)| *known > revision);
                if !is_older {
                    newest.insert(ids.value(row).to_owned(), (revision, Arc::new(encoding(&batch, row)?)));
                }
            }
        }
    }
    Ok(newest.into_iter().map(|(id, (_, encoding))| (id, encoding)).collect())
}

fn encoding(batch: &RecordBatch, row: usize) -> Result<Encoding> {
    let value = |name: &str| -> Result<Option<String>> {
        let column = text(batch, name)?;
        Ok(column.is_valid(row).then(|| column.value(row).to_owned()))
    };
    // A value that is no object says nothing that a template or a decoder could use.
    let object = |name: &str| -> Result<Option<Map<String, Value>>> {
        Ok(value(name)?.and_then(|text| serde_json::from_str(&text).ok()))
    };
    Ok(Encoding {
        tokenizer_digest: value("tokenizer_digest")?,
        chat_template_digest: value("chat_template_digest")?,
        template_kwargs: object("template_kwargs")?.unwrap_or_default(),
        special_token_map: object("special_token_map")?,
        detokenizer_flags: object("detokenizer_flags")?.unwrap_or_default(),
        generation_prompt_ids: ids(batch, row)?,
    })
}

fn ids(batch: &RecordBatch, row: usize) -> Result<Vec<i32>> {
    let lists = column(batch, "generation_prompt_ids")?;
    let Some(lists) = lists.as_list_opt::<i32>().filter(|lists| lists.is_valid(row)) else {
        return Ok(Vec::new());
    };
    let items = cast(&lists.value(row), &DataType::Int32)?;
    Ok(items.as_primitive::<Int32Type>().values().to_vec())
}

fn column<'a>(batch: &'a RecordBatch, name: &str) -> Result<&'a Arc<dyn Array>> {
    batch.column_by_name(name).ok_or_else(|| Error::corrupt(format!("a file of encodings lacks {name}")))
}

fn text(batch: &RecordBatch, name: &str) -> Result<StringArray> {
    Ok(cast(column(batch, name)?, &DataType::Utf8)?.as_string::<i32>().clone())
}
