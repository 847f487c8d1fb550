//! Adds one entry to a snapshot: the state of all tables is the log's entries, folded in order.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rollbook_schema::digest::bytes_digest;

use crate::delta::{CommitActions, read_commit};
use crate::error::{Error, Kind, Result};
use crate::file::DataFile;
use crate::snapshot::{Entry, Snapshot, TableState};

/// Folds `entry` into the state before it (none before entry 0); `texts` holds every touched table's commit text.
pub(crate) fn fold(before: Option<Snapshot>, entry: &Entry, texts: &BTreeMap<String, String>) -> Result<Snapshot> {
    let expected = before.as_ref().map_or(0, |snapshot| snapshot.n + 1);
    if entry.n != expected {
        return Err(corrupt(entry.n, "its number does not follow the entry before"));
    }
    let (mut tables, state_n) = before.map_or_else(Default::default, |snapshot| (snapshot.tables, snapshot.state_n));
    for (name, change) in &entry.changes {
        let text = texts.get(name).ok_or_else(|| corrupt(entry.n, "a commit text is missing").with("table", name))?;
        let next = tables.get(name).map_or(0, |table| table.version + 1);
        if change.version != next {
            return Err(corrupt(entry.n, "a Delta version does not follow the one before").with("table", name));
        }
        let actions = read_commit(name, text).map_err(|error| error.with("entry", entry.n))?;
        let table = tables.entry(name.clone()).or_default();
        fold_table(Arc::make_mut(table), entry, change.version, text, actions)
            .map_err(|error| error.with("table", name))?;
    }
    for (name, table) in &tables {
        if entry.tables.get(name) != Some(&table.version) {
            return Err(corrupt(entry.n, "its table versions differ from the log's").with("table", name));
        }
    }
    Ok(Snapshot {
        n: entry.n,
        created_at: entry.created_at,
        source_digest: entry.source_digest.clone(),
        state_n,
        tables,
    })
}

/// Returns the files one commit text of an entry adds.
pub(crate) fn added(entry: &Entry, table: &str, text: &str) -> Result<Vec<DataFile>> {
    Ok(signed(entry, read_commit(table, text)?.add).collect())
}

/// Files know the entry that added them from the entry, not from the Delta commit.
fn signed(entry: &Entry, files: Vec<DataFile>) -> impl Iterator<Item = DataFile> {
    files.into_iter().map(|file| DataFile {
        import_id: entry.import_id.clone(),
        derivation_id: entry.derivation_id.clone(),
        snapshot: entry.n,
        ..file
    })
}

fn fold_table(table: &mut TableState, entry: &Entry, version: u64, text: &str, actions: CommitActions) -> Result<()> {
    if !actions.remove.is_empty() {
        let removed: BTreeSet<&str> = actions.remove.iter().map(String::as_str).collect();
        let before = table.files.len();
        table.files.retain(|file| !removed.contains(file.path.as_str()));
        if before - table.files.len() != removed.len() {
            return Err(corrupt(entry.n, "it removes a file that is not there"));
        }
    }
    table.files.extend(signed(entry, actions.add).map(Arc::new));
    if let Some(metadata) = actions.metadata {
        table.metadata_id = metadata.id;
        table.schema_digest = metadata.schema_digest;
        table.columns = metadata.columns;
    }
    table.version = version;
    table.entry = entry.n;
    table.commit_size = text.len() as u64;
    table.commit_digest = bytes_digest(text.as_bytes());
    Ok(())
}

fn corrupt(n: u64, what: &str) -> Error {
    Error::new(Kind::Corrupt, format!("the snapshot log cannot be replayed: {what}")).with("entry", n)
}
