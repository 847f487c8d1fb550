//! Reads the snapshot log: hint, state, listing, entries. Nothing here writes except content-addressed blobs.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

use bytes::Bytes;
use futures::TryStreamExt;
use object_store::path::Path;
use object_store::{Error as StoreError, ObjectStore, ObjectStoreExt, PutMode, PutOptions};
use rollbook_schema::digest::bytes_digest;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Kind, Result};
use crate::gather::gather;
use crate::snapshot::entry::ENTRY_FORMAT;
use crate::snapshot::fold::fold;
use crate::snapshot::{Entry, EntryChange, Snapshot, place, state};
use crate::store::store_error;

/// Requests in flight while replaying.
const CONCURRENT_GETS: usize = 16;

/// The hint in `snapshots/latest`: where a state lies. Wrong or missing, it costs one listing.
#[derive(Serialize, Deserialize)]
pub(crate) struct Hint {
    pub(crate) n: u64,
    pub(crate) state: Option<u64>,
}

#[derive(Serialize, Deserialize)]
struct SourceMark {
    n: u64,
}

/// The log of one lake.
pub(crate) struct Log {
    pub(crate) store: Arc<dyn ObjectStore>,
    pub(crate) lake_id: String,
}

impl Log {
    /// Reads an object; `None` where there is none.
    pub(crate) async fn get(&self, path: &Path) -> Result<Option<Bytes>> {
        let read = async { self.store.get(path).await?.bytes().await };
        match read.await {
            Ok(bytes) => Ok(Some(bytes)),
            Err(StoreError::NotFound { .. }) => Ok(None),
            Err(error) => Err(store_error(error, "read", path.as_ref())),
        }
    }

    /// Creates an object put-if-absent; false where one was already there.
    pub(crate) async fn put_if_absent(&self, path: &Path, bytes: impl Into<Bytes>) -> Result<bool> {
        let options = PutOptions::from(PutMode::Create);
        match self.store.put_opts(path, bytes.into().into(), options).await {
            Ok(_) => Ok(true),
            Err(StoreError::AlreadyExists { .. }) => Ok(false),
            Err(error) => Err(store_error(error, "write", path.as_ref())),
        }
    }

    /// Reads the newest snapshot from scratch.
    pub(crate) async fn newest(&self) -> Result<Snapshot> {
        let start = self.start().await?;
        let (snapshot, _) = self.advance_from(start).await?;
        snapshot.ok_or_else(|| {
            Error::new(Kind::NotFound, "the lake has no snapshot: its `init` did not finish")
                .with_remedy("run `rollbook init` on it again")
        })
    }

    /// Reads what was published after `known`: the new head and the entries, oldest first.
    pub(crate) async fn advance(&self, known: Snapshot) -> Result<(Snapshot, Vec<Entry>)> {
        let n = known.n;
        let (snapshot, entries) = self.advance_from(Some(known)).await?;
        let snapshot = snapshot.ok_or_else(|| Error::new(Kind::Corrupt, "an entry vanished").with("entry", n))?;
        Ok((snapshot, entries))
    }

    /// Reads snapshot `n`.
    pub(crate) async fn at(&self, n: u64) -> Result<Snapshot> {
        let mut start = match state::likely_state(n) {
            Some(likely) => self.state(likely).await?,
            None => None,
        };
        if start.is_none() && n > 0 {
            start = self.newest_state(n).await?;
        }
        let first = start.as_ref().map_or(0, |snapshot| snapshot.n + 1);
        let entries = match self.entries(first..=n).await {
            // The first entry that is missing is not the one that was asked for.
            Err(_) if self.entry(n).await?.is_none() => return Err(no_such_snapshot(n)),
            entries => entries?,
        };
        let replayed = self.replay(start, &entries).await?;
        replayed.ok_or_else(|| no_such_snapshot(n))
    }

    /// Reads one entry; `None` where it does not exist yet.
    pub(crate) async fn entry(&self, n: u64) -> Result<Option<Entry>> {
        let path = place::entry(n);
        let Some(bytes) = self.get(&path).await? else {
            return Ok(None);
        };
        read_entry(&bytes, n).map(Some)
    }

    /// Reads a range of entries, oldest first; all of them must exist.
    pub(crate) async fn entries(&self, range: RangeInclusive<u64>) -> Result<Vec<Entry>> {
        let entries = range.map(|n| async move { self.entry(n).await?.ok_or_else(|| no_such_snapshot(n)) });
        gather(entries.collect(), CONCURRENT_GETS).await
    }

    /// Returns a change's commit text, from the entry or from its blob.
    pub(crate) async fn text(&self, change: &EntryChange) -> Result<String> {
        match (&change.commit_text, &change.sidecar) {
            (Some(text), _) => Ok(text.clone()),
            (None, Some(digest)) => {
                let bytes = self.blob(digest).await?;
                String::from_utf8(bytes.to_vec()).map_err(|source| {
                    Error::new(Kind::Corrupt, "a commit text is not UTF-8").with("blob", digest).with_source(source)
                })
            }
            (None, None) => Err(Error::new(Kind::Corrupt, "an entry holds no commit text")),
        }
    }

    /// Returns the commit texts of an entry by table.
    pub(crate) async fn texts(&self, entry: &Entry) -> Result<BTreeMap<String, String>> {
        let texts =
            entry.changes.iter().map(|(name, change)| async move { Ok((name.clone(), self.text(change).await?)) });
        Ok(gather(texts.collect(), CONCURRENT_GETS).await?.into_iter().collect())
    }

    /// Returns the entry that a source's mark names.
    pub(crate) async fn source_entry(&self, digest: &str) -> Result<Option<u64>> {
        let Some(bytes) = self.get(&place::source(digest)).await? else {
            return Ok(None);
        };
        let mark: SourceMark = serde_json::from_slice(&bytes).map_err(|source| {
            Error::new(Kind::Corrupt, "a source mark cannot be read").with("source", digest).with_source(source)
        })?;
        Ok(Some(mark.n))
    }

    /// Marks a source as in; true where the mark is new.
    pub(crate) async fn mark_source(&self, digest: &str, n: u64) -> Result<bool> {
        self.put_if_absent(&place::source(digest), format!("{{\"n\":{n}}}\n")).await
    }

    /// Stores bytes by digest.
    pub(crate) async fn put_blob(&self, bytes: Bytes) -> Result<String> {
        let digest = bytes_digest(&bytes);
        self.put_if_absent(&place::blob(hex_of(&digest)?), bytes).await?;
        Ok(digest)
    }

    /// Reads the bytes of a digest.
    pub(crate) async fn blob(&self, digest: &str) -> Result<Bytes> {
        let bytes = self.get(&place::blob(hex_of(digest)?)).await?;
        let bytes = bytes.ok_or_else(|| Error::new(Kind::NotFound, "there is no such blob").with("blob", digest))?;
        if bytes_digest(&bytes) != digest {
            return Err(Error::new(Kind::Corrupt, "a blob does not have its digest").with("blob", digest));
        }
        Ok(bytes)
    }

    /// Folds entries into a snapshot.
    pub(crate) async fn replay(&self, start: Option<Snapshot>, entries: &[Entry]) -> Result<Option<Snapshot>> {
        let mut snapshot = start;
        for entry in entries {
            let texts = self.texts(entry).await?;
            snapshot = Some(fold(snapshot, entry, &texts)?);
        }
        Ok(snapshot)
    }

    async fn advance_from(&self, start: Option<Snapshot>) -> Result<(Option<Snapshot>, Vec<Entry>)> {
        let numbers = self.list_after(start.as_ref().map(|snapshot| snapshot.n)).await?;
        let first = start.as_ref().map_or(0, |snapshot| snapshot.n + 1);
        for (&number, expected) in numbers.iter().zip(first..) {
            if number != expected {
                return Err(Error::new(Kind::Corrupt, "the snapshot log has a gap")
                    .with("missing", expected)
                    .with_remedy("restore the missing entry; no write is lost while its file exists somewhere"));
            }
        }
        let entries = match (numbers.first(), numbers.last()) {
            (Some(&first), Some(&last)) => self.entries(first..=last).await?,
            _ => Vec::new(),
        };
        Ok((self.replay(start, &entries).await?, entries))
    }

    async fn list_after(&self, known: Option<u64>) -> Result<Vec<u64>> {
        let folder = place::snapshots();
        let listing = match known {
            Some(n) => self.store.list_with_offset(Some(&folder), &place::entry(n)),
            None => self.store.list(Some(&folder)),
        };
        let mut numbers: Vec<u64> = listing
            .try_filter_map(|meta| async move { Ok(place::number(&meta.location, ".json")) })
            .try_collect()
            .await
            .map_err(|error| store_error(error, "list", folder.as_ref()))?;
        numbers.retain(|&n| known.is_none_or(|known| n > known));
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// Where to start replaying: the hinted state, else the newest that can be read, else nothing.
    async fn start(&self) -> Result<Option<Snapshot>> {
        let hint: Option<Hint> =
            self.get(&place::latest()).await?.and_then(|bytes| serde_json::from_slice(&bytes).ok());
        match hint {
            // No state was due yet: the log is short, and a listing of states would find none.
            Some(Hint { state: None, n }) if state::likely_state(n).is_none() => Ok(None),
            Some(Hint { state: Some(n), .. }) => match self.state(n).await? {
                Some(snapshot) => Ok(Some(snapshot)),
                None => self.newest_state(u64::MAX).await,
            },
            _ => self.newest_state(u64::MAX).await,
        }
    }

    async fn newest_state(&self, at_most: u64) -> Result<Option<Snapshot>> {
        let folder = place::states();
        let mut numbers: Vec<u64> = self
            .store
            .list(Some(&folder))
            .try_filter_map(|meta| async move { Ok(place::number(&meta.location, ".arrow.zst")) })
            .try_collect()
            .await
            .map_err(|error| store_error(error, "list", folder.as_ref()))?;
        numbers.sort_unstable();
        for n in numbers.into_iter().rev().filter(|&n| n <= at_most) {
            if let Some(snapshot) = self.state(n).await? {
                return Ok(Some(snapshot));
            }
        }
        Ok(None)
    }

    /// Reads a state; `None` where it is missing or cannot be used.
    async fn state(&self, n: u64) -> Result<Option<Snapshot>> {
        let Some(bytes) = self.get(&place::state(n)).await? else {
            return Ok(None);
        };
        Ok(state::decode(&bytes, n, &self.lake_id).ok())
    }
}

fn no_such_snapshot(n: u64) -> Error {
    Error::new(Kind::Invalid, "there is no such snapshot")
        .with("snapshot", n)
        .with_remedy("`rollbook history` lists them")
}

fn read_entry(bytes: &[u8], n: u64) -> Result<Entry> {
    #[derive(Deserialize)]
    struct Format {
        format: u32,
    }
    let unreadable = |source: serde_json::Error| {
        Error::new(Kind::Corrupt, "an entry of the snapshot log cannot be read").with("entry", n).with_source(source)
    };
    let Format { format } = serde_json::from_slice(bytes).map_err(unreadable)?;
    if format > ENTRY_FORMAT {
        return Err(Error::new(Kind::Unsupported, "the lake was written by a newer Rollbook")
            .with("entry", n)
            .with("format", format)
            .with_remedy("upgrade rollbook"));
    }
    let entry: Entry = serde_json::from_slice(bytes).map_err(unreadable)?;
    if entry.n != n {
        return Err(Error::new(Kind::Corrupt, "an entry lies under another's number").with("entry", n));
    }
    Ok(entry)
}

fn hex_of(digest: &str) -> Result<&str> {
    digest
        .strip_prefix("sha256:")
        .filter(|hex| hex.len() == 64 && hex.bytes().all(|byte| byte.is_ascii_hexdigit()))
        .ok_or_else(|| Error::new(Kind::Invalid, "a digest must be sha256: and 64 hex digits").with("digest", digest))
}
