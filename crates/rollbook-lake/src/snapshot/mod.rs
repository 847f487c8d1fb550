//! The snapshot log: entries, the state they add up to, and how both are read.

mod entry;
mod fold;
mod log;
pub(crate) mod place;
mod state;

pub use entry::{Entry, EntryChange, Kind};

pub(crate) use entry::ENTRY_FORMAT;
pub(crate) use fold::{added, fold};
pub(crate) use log::Log;
pub(crate) use state::{encode as encode_state, state_is_due};

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use crate::file::DataFile;

/// One consistent version of the whole lake.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Snapshot {
    /// Number of the newest entry it holds.
    pub n: u64,
    /// When that entry was made, UTC microseconds.
    pub created_at: i64,
    /// Source that entry brought in.
    pub(crate) source_digest: Option<String>,
    /// State from which it was replayed.
    pub(crate) state_n: Option<u64>,
    pub(crate) tables: BTreeMap<String, Arc<TableState>>,
}

/// One table at a snapshot.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct TableState {
    /// Delta version.
    pub version: u64,
    /// Live files, oldest first.
    pub files: Vec<Arc<DataFile>>,
    /// Entry that made this version.
    pub entry: u64,
    /// Bytes of that version's commit text.
    pub(crate) commit_size: u64,
    /// `sha256:` of that version's commit text.
    pub(crate) commit_digest: String,
    /// Delta's id of the table.
    pub(crate) metadata_id: String,
    /// `sha256:` of the Delta schema string.
    pub(crate) schema_digest: String,
    /// Number of stored columns.
    pub(crate) columns: usize,
}

impl TableState {
    /// Counts the rows of all files.
    pub fn rows(&self) -> u64 {
        self.files.iter().map(|file| file.rows).sum()
    }
}

static EMPTY: LazyLock<TableState> = LazyLock::new(TableState::default);

impl Snapshot {
    /// Returns a table's state; a table this lake does not have yet is empty.
    pub fn table(&self, name: &str) -> &TableState {
        self.tables.get(name).map_or(&EMPTY, AsRef::as_ref)
    }

    /// Iterates over the tables by name.
    pub fn tables(&self) -> impl Iterator<Item = (&str, &TableState)> {
        self.tables.iter().map(|(name, state)| (name.as_str(), state.as_ref()))
    }

    /// Returns the snapshot with some of its files only: what is left of each table is read as if it were all of it.
    ///
    /// Such a snapshot is for reading; nothing may be committed upon it.
    #[must_use]
    pub fn only(&self, keep: impl Fn(&str, &DataFile) -> bool) -> Self {
        let tables = self.tables.iter().map(|(name, state)| {
            let files = state.files.iter().filter(|file| keep(name, file)).map(Arc::clone).collect();
            (name.clone(), Arc::new(TableState { files, ..state.as_ref().clone() }))
        });
        Self { tables: tables.collect(), ..self.clone() }
    }

    /// Returns the Delta version of every table.
    pub fn versions(&self) -> BTreeMap<String, u64> {
        self.tables.iter().map(|(name, state)| (name.clone(), state.version)).collect()
    }
}
