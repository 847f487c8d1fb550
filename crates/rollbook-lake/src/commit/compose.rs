//! Composes an entry: the Delta commits of the tables it touches, and what the log says about it.

use std::collections::{BTreeMap, BTreeSet};

use rollbook_schema::{Table, table as table_of};
use uuid::Uuid;

use crate::commit::{Change, Intent};
use crate::delta::{CommitSpec, commit_text};
use crate::error::{Error, Kind, Result};
use crate::file::DataFile;
use crate::snapshot::{ENTRY_FORMAT, Entry, EntryChange, Kind as WriteKind, Log, Snapshot, TableState};

/// Texts of one entry beyond this many bytes go to blobs.
const INLINE_BYTES_MAX: usize = 256 << 10;
/// A text below this stays in the entry anyway: a blob would cost a request and save nothing.
const SIDECAR_BYTES_MIN: usize = 16 << 10;

/// Who writes, when, and why.
pub(crate) struct Signature<'a> {
    pub(crate) nonce: &'a str,
    pub(crate) author: &'a str,
    pub(crate) now_us: i64,
    pub(crate) intent: &'a Intent,
}

/// An entry with its commit texts.
pub(crate) struct Composed {
    pub(crate) entry: Entry,
    pub(crate) texts: BTreeMap<String, String>,
}

/// Composes the entry that follows `head`; without a head, entry 0.
pub(crate) fn compose(head: Option<&Snapshot>, sign: &Signature<'_>, changes: &[Change]) -> Result<Composed> {
    let n = head.map_or(0, |head| head.n + 1);
    let mut versions = head.map(Snapshot::versions).unwrap_or_default();
    let mut texts = BTreeMap::new();
    let mut parts = BTreeMap::new();
    for change in changes {
        let table = table_of(&change.table)
            .ok_or_else(|| Error::new(Kind::Invalid, "there is no such table").with("table", &change.table))?;
        let state = head.and_then(|head| head.tables.get(&change.table)).map(AsRef::as_ref);
        check_inputs(change, state, sign.intent.kind)?;
        let version = state.map_or(0, |state| state.version + 1);
        let remove: Vec<&DataFile> = change.remove.iter().map(AsRef::as_ref).collect();
        let text = commit_text(&CommitSpec {
            table: &change.table,
            kind: sign.intent.kind,
            n,
            now_us: sign.now_us,
            define: definition(table, state),
            is_new: state.is_none(),
            add: &change.add,
            remove: &remove,
        })?;
        if texts.insert(change.table.clone(), text).is_some() {
            return Err(Error::new(Kind::Invalid, "one write changes a table twice").with("table", &change.table));
        }
        versions.insert(change.table.clone(), version);
        parts.insert(change.table.clone(), EntryChange { version, commit_text: None, sidecar: None });
    }
    let entry = Entry {
        format: ENTRY_FORMAT,
        n,
        parent: head.map(|head| head.n),
        nonce: sign.nonce.to_owned(),
        kind: sign.intent.kind,
        created_at: sign.now_us,
        author: sign.author.to_owned(),
        reason: sign.intent.reason.clone(),
        source_digest: sign.intent.source_digest.clone(),
        import_id: sign.intent.import_id.clone(),
        derivation_id: sign.intent.derivation_id.clone(),
        tables: versions,
        changes: parts,
    };
    Ok(Composed { entry, texts })
}

impl Composed {
    /// Puts each text where it belongs, in the entry or in a blob, and returns the entry's bytes.
    pub(crate) async fn seal(&mut self, log: &Log) -> Result<Vec<u8>> {
        let total: usize = self.texts.values().map(String::len).sum();
        for (name, text) in &self.texts {
            let Some(change) = self.entry.changes.get_mut(name) else {
                continue;
            };
            if total > INLINE_BYTES_MAX && text.len() >= SIDECAR_BYTES_MIN {
                change.sidecar = Some(log.put_blob(text.clone().into()).await?);
            } else {
                change.commit_text = Some(text.clone());
            }
        }
        serde_json::to_vec(&self.entry)
            .map_err(|source| Error::new(Kind::Invalid, "the entry cannot be written as JSON").with_source(source))
    }
}

/// A new table is defined; a table from an older release of the same format gets the columns added since.
fn definition<'a>(table: &'a Table, state: Option<&TableState>) -> Option<(&'a Table, String)> {
    match state {
        None => Some((table, Uuid::new_v4().to_string())),
        Some(state) if table.physical().fields().len() > state.columns => Some((table, state.metadata_id.clone())),
        Some(_) => None,
    }
}

fn check_inputs(change: &Change, state: Option<&TableState>, kind: WriteKind) -> Result<()> {
    if change.remove.is_empty() {
        return Ok(());
    }
    if kind == WriteKind::Append {
        return Err(Error::new(Kind::Invalid, "an append removes nothing").with("table", &change.table));
    }
    let live: BTreeSet<&str> =
        state.map(|state| state.files.iter().map(|file| file.path.as_str()).collect()).unwrap_or_default();
    match change.remove.iter().find(|file| !live.contains(file.path.as_str())) {
        None => Ok(()),
        Some(gone) => Err(Error::new(Kind::Conflict, "another write already replaced a file this one rewrites")
            .with("table", &change.table)
            .with("file", &gone.path)
            .with_remedy("run it again on the newest snapshot")),
    }
}
