//! Data files: what the log knows about each, and the writer that makes them.

mod encoder;
mod footer;
mod order;
mod properties;
mod stats;
mod text_bounds;
mod writer;

pub use footer::holds_whole_rollouts;
pub use order::sort_columns;
pub use writer::{TableWriter, WriterLimits};

pub(crate) use stats::ranges_of_stats;

use serde::{Deserialize, Serialize};

/// One Parquet file of a table, as the snapshot log describes it.
///
/// The ranges hold every value in the file: exact as a rule, wider where a value is very long.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct DataFile {
    /// Path below the lake's root: `calls/part-….parquet`.
    pub path: String,
    /// Size in bytes.
    pub size: u64,
    /// Number of rows.
    pub rows: u64,
    /// Smallest and largest `run_id`; `None` where the table has none, or no row has one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub run_id: Option<(String, String)>,
    /// Smallest and largest step.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub step: Option<(i64, i64)>,
    /// Smallest and largest `group_id`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub group_id: Option<(String, String)>,
    /// Rows whose step is null.
    #[serde(default)]
    pub step_nulls: u64,
    /// Rows whose `group_id` is null.
    #[serde(default)]
    pub group_nulls: u64,
    /// Whether `step` and `group_id` still wait for their rollout, so that scans must join rollouts.
    #[serde(default)]
    pub unresolved: bool,
    /// Whether the rows are in the order of [`sort_columns`], nulls last.
    #[serde(default)]
    pub sorted: bool,
    /// Largest `prompt_len` (calls).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub max_prompt_len: Option<i32>,
    /// Delta statistics: JSON with numRecords, minValues, maxValues, nullCount.
    pub stats: String,
    /// Import that wrote the file.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub import_id: Option<String>,
    /// Derivation that wrote the file.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub derivation_id: Option<String>,
    /// Snapshot that added the file; 0 until it is published.
    #[serde(default)]
    pub snapshot: u64,
}
