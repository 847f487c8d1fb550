//! Cached states: what the log adds up to at some entry, so that opening a lake costs the same at any age.
//!
//! A state may be deleted at any time; nothing but speed is lost.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Kind, Result};
use crate::file::DataFile;
use crate::snapshot::{Snapshot, TableState};

/// A state is written at every multiple of this.
const STATE_EVERY: u64 = 32;
const STATE_FORMAT: u32 = 1;
const COMPRESSION_LEVEL: i32 = 3;
/// A state larger than this is not believed: the log is replayed instead.
const STATE_BYTES_MAX: usize = 1 << 31;

/// Whether the writer of `snapshot` leaves a state: on every multiple, and where the last one lies too far back
/// because a writer was killed before it wrote its own.
pub(crate) fn state_is_due(snapshot: &Snapshot) -> bool {
    let since = snapshot.n - snapshot.state_n.unwrap_or(0);
    snapshot.n > 0 && (snapshot.n.is_multiple_of(STATE_EVERY) || since >= 2 * STATE_EVERY)
}

/// The multiple at or below `n`, where a state most likely lies.
pub(super) fn likely_state(n: u64) -> Option<u64> {
    Some(n - n % STATE_EVERY).filter(|&n| n > 0)
}

#[derive(Serialize, Deserialize)]
struct Stored<F> {
    format: u32,
    lake_id: String,
    n: u64,
    created_at: i64,
    source_digest: Option<String>,
    tables: BTreeMap<String, StoredTable<F>>,
}

#[derive(Serialize, Deserialize)]
struct StoredTable<F> {
    version: u64,
    entry: u64,
    commit_size: u64,
    commit_digest: String,
    metadata_id: String,
    schema_digest: String,
    columns: usize,
    files: Vec<F>,
}

/// Encodes a snapshot as a state.
pub(crate) fn encode(snapshot: &Snapshot, lake_id: &str) -> Result<Vec<u8>> {
    let tables = snapshot.tables.iter().map(|(name, table)| (name.clone(), stored(table))).collect();
    let state = Stored {
        format: STATE_FORMAT,
        lake_id: lake_id.to_owned(),
        n: snapshot.n,
        created_at: snapshot.created_at,
        source_digest: snapshot.source_digest.clone(),
        tables,
    };
    let text = serde_json::to_vec(&state).map_err(|source| unusable(snapshot.n).with_source(source))?;
    zstd::bulk::compress(&text, COMPRESSION_LEVEL).map_err(|source| unusable(snapshot.n).with_source(source))
}

fn stored(table: &TableState) -> StoredTable<&DataFile> {
    StoredTable {
        version: table.version,
        entry: table.entry,
        commit_size: table.commit_size,
        commit_digest: table.commit_digest.clone(),
        metadata_id: table.metadata_id.clone(),
        schema_digest: table.schema_digest.clone(),
        columns: table.columns,
        files: table.files.iter().map(AsRef::as_ref).collect(),
    }
}

/// Decodes a state; whatever is wrong with it, the caller replays the log instead.
pub(super) fn decode(bytes: &[u8], n: u64, lake_id: &str) -> Result<Snapshot> {
    let decoder = zstd::stream::read::Decoder::new(bytes).map_err(|source| unusable(n).with_source(source))?;
    let mut text = Vec::new();
    std::io::Read::read_to_end(&mut std::io::Read::take(decoder, STATE_BYTES_MAX as u64), &mut text)
        .map_err(|source| unusable(n).with_source(source))?;
    let state: Stored<DataFile> = serde_json::from_slice(&text).map_err(|source| unusable(n).with_source(source))?;
    if state.format != STATE_FORMAT || state.n != n || state.lake_id != lake_id {
        return Err(unusable(n));
    }
    let tables = state.tables.into_iter().map(|(name, table)| (name, Arc::new(loaded(table)))).collect();
    Ok(Snapshot { n, created_at: state.created_at, source_digest: state.source_digest, state_n: Some(n), tables })
}

fn loaded(table: StoredTable<DataFile>) -> TableState {
    TableState {
        version: table.version,
        entry: table.entry,
        commit_size: table.commit_size,
        commit_digest: table.commit_digest,
        metadata_id: table.metadata_id,
        schema_digest: table.schema_digest,
        columns: table.columns,
        files: table.files.into_iter().map(Arc::new).collect(),
    }
}

fn unusable(n: u64) -> Error {
    Error::new(Kind::Corrupt, "a cached state cannot be used").with("state", n)
}
