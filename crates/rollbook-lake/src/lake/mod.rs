//! The lake: a URL opened, its identity checked, and the calls everything else starts from.

mod blob;
mod init;
mod open;

use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex};

use object_store::ObjectStore;
use rollbook_schema::Table;

use crate::error::Result;
use crate::file::{DataFile, TableWriter, WriterLimits};
use crate::snapshot::{Entry, Log, Snapshot, added};
use crate::store::{CountingStore, RequestCounts};

/// What a lake gets from its caller: environment, time and name.
#[derive(Clone)]
pub struct LakeOptions {
    /// Environment variables; `AWS_*` are read.
    pub env: BTreeMap<String, String>,
    /// Clock, UTC microseconds.
    pub clock: Arc<dyn Fn() -> i64 + Send + Sync>,
    /// Who writes, for the history.
    pub author: String,
}

impl fmt::Debug for LakeOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Names only: values of AWS_* are secrets.
        f.debug_struct("LakeOptions")
            .field("env", &self.env.keys())
            .field("author", &self.author)
            .finish_non_exhaustive()
    }
}

/// An open lake; cloning it is cheap.
#[derive(Clone)]
pub struct Lake {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) url: String,
    pub(crate) id: String,
    pub(crate) store: Arc<CountingStore>,
    pub(crate) log: Log,
    pub(crate) options: LakeOptions,
    /// Newest snapshot seen, so that the next read lists only what follows it.
    pub(crate) newest: Mutex<Option<Snapshot>>,
}

impl fmt::Debug for Lake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lake").field("url", &self.inner.url).field("id", &self.inner.id).finish_non_exhaustive()
    }
}

impl Lake {
    /// Returns the URL the lake was opened with, without credentials.
    pub fn url(&self) -> &str {
        &self.inner.url
    }

    /// Returns the lake's id.
    pub fn id(&self) -> &str {
        &self.inner.id
    }

    /// Returns the object store, rooted at the lake.
    pub fn store(&self) -> Arc<dyn ObjectStore> {
        Arc::clone(&self.inner.store) as Arc<dyn ObjectStore>
    }

    /// Returns the caller's time, UTC microseconds.
    pub fn now_us(&self) -> i64 {
        (self.inner.options.clock)()
    }

    /// Returns the requests made through this lake so far.
    pub fn requests(&self) -> RequestCounts {
        self.inner.store.counts()
    }

    /// Returns the bytes of the store that were asked for through this lake so far.
    pub fn bytes_read(&self) -> u64 {
        self.inner.store.bytes_read()
    }

    /// Reads the newest snapshot.
    pub async fn snapshot(&self) -> Result<Snapshot> {
        let known = self.newest();
        let snapshot = match known {
            Some(known) => self.inner.log.advance(known).await?.0,
            None => self.inner.log.newest().await?,
        };
        self.remember(&snapshot);
        Ok(snapshot)
    }

    /// Reads snapshot `n`.
    pub async fn snapshot_at(&self, n: u64) -> Result<Snapshot> {
        self.inner.log.at(n).await
    }

    /// Reads up to `limit` entries, newest first, from `newest` (default: the head) down.
    pub async fn history(&self, newest: Option<u64>, limit: usize) -> Result<Vec<Entry>> {
        let head = self.snapshot().await?.n;
        let top = newest.map_or(head, |n| n.min(head));
        let bottom = (top + 1).saturating_sub(limit as u64);
        if limit == 0 {
            return Ok(Vec::new());
        }
        let mut entries = self.inner.log.entries(bottom..=top).await?;
        entries.reverse();
        Ok(entries)
    }

    /// Reads the entries of a range, oldest first.
    pub async fn entries(&self, range: RangeInclusive<u64>) -> Result<Vec<Entry>> {
        self.inner.log.entries(range).await
    }

    /// Reads the files an entry added, by table.
    pub async fn added_files(&self, entry: &Entry) -> Result<BTreeMap<String, Vec<DataFile>>> {
        let texts = self.inner.log.texts(entry).await?;
        texts.into_iter().map(|(name, text)| Ok((name.clone(), added(entry, &name, &text)?))).collect()
    }

    /// Returns the entry that brought in a source, where its mark is written.
    pub async fn source_entry(&self, digest: &str) -> Result<Option<u64>> {
        self.inner.log.source_entry(digest).await
    }

    /// Creates a writer for a table's stored rows.
    pub fn writer(&self, table: &'static Table) -> TableWriter {
        self.writer_with(table, WriterLimits::default())
    }

    /// Creates a writer with other sizes.
    pub fn writer_with(&self, table: &'static Table, limits: WriterLimits) -> TableWriter {
        TableWriter::new(self.store(), table, limits)
    }

    pub(crate) fn newest(&self) -> Option<Snapshot> {
        self.inner.newest.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }

    pub(crate) fn remember(&self, snapshot: &Snapshot) {
        let mut newest = self.inner.newest.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if newest.as_ref().is_none_or(|known| known.n < snapshot.n) {
            *newest = Some(snapshot.clone());
        }
    }
}
