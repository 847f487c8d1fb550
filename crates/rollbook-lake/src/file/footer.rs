//! What the footer of a file says beside Parquet's own: whether its row groups can be decoded each for itself.
//!
//! A rollout's rows stand on earlier ones. Where no rollout goes on from one row group into the next, several threads may
//! rebuild the prompts of one file, and nobody can tell so from the statistics of the keys alone.

use parquet::file::metadata::{KeyValue, ParquetMetaData};

const ROW_GROUPS: &str = "rollbook.row_groups";
const WHOLE_ROLLOUTS: &str = "whole rollouts";

/// The mark of a file in which every row group begins with a rollout.
pub(super) fn whole_rollouts() -> KeyValue {
    KeyValue::new(ROW_GROUPS.to_owned(), WHOLE_ROLLOUTS.to_owned())
}

/// Returns whether each row group of a file of calls can be decoded for itself.
pub fn holds_whole_rollouts(footer: &ParquetMetaData) -> bool {
    let marks = footer.file_metadata().key_value_metadata();
    footer.num_row_groups() < 2
        || marks.is_some_and(|marks| {
            marks.iter().any(|mark| mark.key == ROW_GROUPS && mark.value.as_deref() == Some(WHOLE_ROLLOUTS))
        })
}
