//! One entry of the snapshot log: the file `_rollbook/snapshots/{n:020}.json`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Version of the entry's own layout; a larger one is refused.
pub(crate) const ENTRY_FORMAT: u32 = 1;

/// Whether an entry only adds rows or also replaces files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Adds files only.
    Append,
    /// Removes files that an earlier entry added.
    Rewrite,
}

/// One write: what the log says about it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// Layout of this file.
    pub format: u32,
    /// Number of the entry.
    pub n: u64,
    /// Entry it was made upon; null for the first.
    pub parent: Option<u64>,
    /// Names the writer's attempt, so that it knows its own entry again.
    pub nonce: String,
    /// Append or rewrite.
    pub kind: Kind,
    /// UTC microseconds.
    pub created_at: i64,
    /// Who wrote it.
    pub author: String,
    /// Why.
    pub reason: String,
    /// Digest of the imported source.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub source_digest: Option<String>,
    /// Import that made it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub import_id: Option<String>,
    /// Derivation that made it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub derivation_id: Option<String>,
    /// Delta version of every table after this entry.
    pub tables: BTreeMap<String, u64>,
    /// Tables it touches.
    pub changes: BTreeMap<String, EntryChange>,
}

/// One table's part of an entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EntryChange {
    /// Delta version the table becomes.
    pub version: u64,
    /// Text of that Delta commit, verbatim.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub commit_text: Option<String>,
    /// Digest of the blob that holds the text, where it is large.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub sidecar: Option<String>,
}
