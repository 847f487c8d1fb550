//! What follows a published entry, each step repeatable: the Delta logs, the source's mark, the hint, the caches.

use std::collections::BTreeMap;

use object_store::{Error as StoreError, ObjectStoreExt};

use crate::delta::foreign::{ForeignCommit, ForeignReason};
use crate::delta::{CHECKPOINT_EVERY, checkpoint};
use crate::error::Result;
use crate::gather::gather;
use crate::lake::Lake;
use crate::snapshot::{Entry, Snapshot, place, state_is_due};
use crate::store::store_error;

const CONCURRENT_REQUESTS: usize = 24;

impl Lake {
    /// Finishes what the writer of the newest snapshot may have left: missing Delta commits and the source's mark.
    ///
    /// Every commit begins with this; `vacuum` and repair may call it on its own.
    pub async fn apply_pending(&self) -> Result<()> {
        let head = self.snapshot().await?;
        self.finish(&head, None).await
    }

    /// Makes sure that the newest Delta commit of every table exists (or of the tables of `last` alone) and that the
    /// head's source is marked. Entries before the head were finished by the writer of the one that followed.
    pub(crate) async fn finish(&self, head: &Snapshot, last: Option<&Entry>) -> Result<()> {
        let tables = head.tables().filter(|(name, _)| last.is_none_or(|entry| entry.changes.contains_key(*name)));
        let looks = tables.map(|(name, table)| async move {
            let is_there = self.has_delta_commit(name, table.version, table.commit_size).await?;
            Ok((!is_there).then(|| (name.to_owned(), table.entry)))
        });
        let missing = gather(looks.collect(), CONCURRENT_REQUESTS).await?;
        let mut by_entry: BTreeMap<u64, Vec<String>> = BTreeMap::new();
        for (name, n) in missing.into_iter().flatten() {
            by_entry.entry(n).or_default().push(name);
        }
        for (n, names) in by_entry {
            self.restore(n, &names).await?;
        }
        if let Some(digest) = &head.source_digest
            && !self.exists(&place::source(digest)).await?
        {
            self.inner.log.mark_source(digest, head.n).await?;
        }
        Ok(())
    }

    /// Refuses a write that could not be applied, because a Delta log already holds a commit at its version.
    pub(crate) async fn refuse_foreign(&self, head: &Snapshot, entry: &Entry) -> Result<()> {
        let looks = entry.changes.iter().map(|(name, change)| async move {
            let is_taken = self.exists(&place::delta_commit(name, change.version)).await?;
            Ok(is_taken.then(|| (name.clone(), change.version)))
        });
        let taken = gather(looks.collect(), CONCURRENT_REQUESTS).await?;
        let Some((table, version)) = taken.into_iter().flatten().next() else {
            return Ok(());
        };
        // A faster writer publishes before it applies, so its entry must be there; then the race is simply lost.
        if self.exists(&place::entry(head.n + 1)).await? {
            return Ok(());
        }
        Err(ForeignCommit { table, version, reason: ForeignReason::Beyond }.into_error())
    }

    /// Applies an entry just published. Whatever fails here is left to the next writer and returned as a warning.
    pub(crate) async fn apply(
        &self,
        entry: &Entry,
        texts: &BTreeMap<String, String>,
        snapshot: &mut Snapshot,
    ) -> Vec<String> {
        let mut warnings = Vec::new();
        let mut note = |what: &str, result: Result<()>| {
            if let Err(error) = result {
                warnings.push(format!("{what}: {error}"));
            }
        };
        let versions = entry.changes.iter().filter_map(|(name, change)| Some((name, change.version, texts.get(name)?)));
        let puts = versions.map(|(name, version, text)| self.put_delta_commit(name, version, text)).collect();
        let applied = gather(puts, CONCURRENT_REQUESTS).await.map(drop);
        let is_applied = applied.is_ok();
        note("the Delta log waits for the next write", applied);
        // The mark comes after the Delta commits: it says that nothing of this source is missing.
        if let (Some(digest), true) = (&entry.source_digest, is_applied) {
            note(
                "the source's mark waits for the next write",
                self.inner.log.mark_source(digest, entry.n).await.map(drop),
            );
        }
        if state_is_due(snapshot) {
            let written = self.write_state(snapshot).await;
            if written.is_ok() {
                snapshot.state_n = Some(snapshot.n);
            }
            note("no state was cached", written);
        }
        note("the hint at the newest snapshot is old", self.write_hint(snapshot).await);
        if is_applied {
            for (name, change) in &entry.changes {
                if change.version > 0 && change.version.is_multiple_of(CHECKPOINT_EVERY) {
                    note("no Delta checkpoint", checkpoint(&self.store(), name, change.version).await);
                }
            }
        }
        warnings
    }

    async fn restore(&self, n: u64, names: &[String]) -> Result<()> {
        let entry = self.entries(n..=n).await?;
        let changes: BTreeMap<_, _> = entry.into_iter().flat_map(|entry| entry.changes).collect();
        let puts = names.iter().filter_map(|name| {
            let change = changes.get(name)?;
            Some(async move {
                let text = self.inner.log.text(change).await?;
                self.put_delta_commit(name, change.version, &text).await
            })
        });
        gather(puts.collect(), CONCURRENT_REQUESTS).await.map(drop)
    }

    /// Creates a Delta commit; the same bytes already there are what somebody else copied from the same entry.
    async fn put_delta_commit(&self, table: &str, version: u64, text: &str) -> Result<()> {
        let path = place::delta_commit(table, version);
        if self.inner.log.put_if_absent(&path, text.to_owned()).await? {
            return Ok(());
        }
        match self.inner.log.get(&path).await? {
            Some(bytes) if bytes == text.as_bytes() => Ok(()),
            _ => {
                Err(ForeignCommit { table: table.to_owned(), version, reason: ForeignReason::OtherBytes }.into_error())
            }
        }
    }

    /// Whether a Delta commit is there; one of another size is not ours.
    async fn has_delta_commit(&self, table: &str, version: u64, size: u64) -> Result<bool> {
        let path = place::delta_commit(table, version);
        match self.inner.store.head(&path).await {
            Ok(meta) if meta.size == size => Ok(true),
            Ok(_) => {
                Err(ForeignCommit { table: table.to_owned(), version, reason: ForeignReason::OtherBytes }.into_error())
            }
            Err(StoreError::NotFound { .. }) => Ok(false),
            Err(error) => Err(store_error(error, "look at", path.as_ref())),
        }
    }

    async fn exists(&self, path: &object_store::path::Path) -> Result<bool> {
        match self.inner.store.head(path).await {
            Ok(_) => Ok(true),
            Err(StoreError::NotFound { .. }) => Ok(false),
            Err(error) => Err(store_error(error, "look at", path.as_ref())),
        }
    }

    async fn write_state(&self, snapshot: &Snapshot) -> Result<()> {
        let bytes = crate::snapshot::encode_state(snapshot, &self.inner.id)?;
        self.put(&place::state(snapshot.n), bytes).await
    }

    async fn write_hint(&self, snapshot: &Snapshot) -> Result<()> {
        let state = snapshot.state_n.map_or_else(|| "null".to_owned(), |n| n.to_string());
        self.put(&place::latest(), format!("{{\"n\":{},\"state\":{state}}}\n", snapshot.n).into_bytes()).await
    }

    async fn put(&self, path: &object_store::path::Path, bytes: Vec<u8>) -> Result<()> {
        let written = self.inner.store.put(path, bytes.into()).await;
        written.map(drop).map_err(|error| store_error(error, "write", path.as_ref()))
    }
}
