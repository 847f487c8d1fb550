//! How each column is laid out in Parquet.

use std::sync::Arc;

use arrow::datatypes::Schema;
use parquet::arrow::ArrowSchemaConverter;
use parquet::basic::{Compression, Type, ZstdLevel};
use parquet::file::metadata::SortingColumn;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::schema::types::ColumnDescriptor;
use rollbook_schema::Table;

use crate::error::Result;
use crate::file::order::sort_columns;

const ZSTD_LEVEL: i32 = 3;
const DATA_PAGE_BYTES: usize = 1 << 20;
/// Lists of tokens and their numbers are nearly all bytes of a lake, and worth a higher level (docs/decisions/0070).
const LISTS_ZSTD_LEVEL: i32 = 11;
/// Tokens repeat over long stretches, which only large pages hold.
const LISTS_PAGE_BYTES: usize = 8 << 20;
/// Keys that a lookup prunes pages by.
const PAGE_STATISTICS: [&str; 6] = ["run_id", "step", "group_id", "rollout_id", "call_id", "build_id"];
/// Text that hardly repeats within a file, so that a dictionary only costs.
const DISTINCT: [&str; 8] =
    ["call_id", "parent_call_id", "record_id", "score_id", "request_id", "response_id", "output_text", "content"];

/// Returns the writer properties of a table's files.
pub(super) fn properties(table: &Table, schema: &Schema) -> Result<WriterProperties> {
    let mut builder = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(ZSTD_LEVEL)?))
        .set_dictionary_enabled(false)
        .set_data_page_size_limit(DATA_PAGE_BYTES)
        .set_statistics_enabled(EnabledStatistics::Chunk)
        // Row groups end where a rollout ends; the writer decides, by bytes.
        .set_max_row_group_row_count(None)
        .set_max_row_group_bytes(None)
        .set_sorting_columns(sorting(table, schema));
    for leaf in ArrowSchemaConverter::new().convert(schema)?.columns() {
        let path = leaf.path().clone();
        if leaf.max_rep_level() > 0 {
            // Bounds over the items of a list prune nothing.
            builder = builder.set_column_statistics_enabled(path.clone(), EnabledStatistics::None);
            let level = ZstdLevel::try_new(LISTS_ZSTD_LEVEL)?;
            builder = builder
                .set_column_compression(path.clone(), Compression::ZSTD(level))
                .set_column_data_page_size_limit(path, LISTS_PAGE_BYTES);
        } else if PAGE_STATISTICS.contains(&leaf.name()) {
            builder = builder
                .set_column_statistics_enabled(path.clone(), EnabledStatistics::Page)
                .set_column_dictionary_enabled(path, repeats(table, leaf));
        } else {
            builder = builder.set_column_dictionary_enabled(path, repeats(table, leaf));
        }
    }
    Ok(builder.build())
}

fn repeats(table: &Table, leaf: &Arc<ColumnDescriptor>) -> bool {
    let name = leaf.name();
    let is_json = table.column(name).is_some_and(|column| column.is_json);
    leaf.physical_type() == Type::BYTE_ARRAY && !is_json && !name.ends_with("_digest") && !DISTINCT.contains(&name)
}

/// Only calls promise their order to a reader; there the writer refuses rows that break it.
fn sorting(table: &Table, schema: &Schema) -> Option<Vec<SortingColumn>> {
    if !requires_order(table) {
        return None;
    }
    let columns = ArrowSchemaConverter::new().convert(schema).ok()?;
    let place = |name: &str| columns.columns().iter().position(|leaf| leaf.path().string() == name);
    sort_columns(table)
        .into_iter()
        .map(|name| {
            let column_idx = i32::try_from(place(name)?).ok()?;
            Some(SortingColumn { column_idx, descending: false, nulls_first: false })
        })
        .collect()
}

/// Whether rows out of order are refused: the stored form of calls is read in order, base before heir.
pub(super) fn requires_order(table: &Table) -> bool {
    table.column("stored_index").is_some()
}
