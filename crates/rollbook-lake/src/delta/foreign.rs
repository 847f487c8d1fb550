//! Commits in a Delta log that Rollbook did not write.
//!
//! They change no result, since all tables are read from the snapshot log; but the next write to that table cannot
//! follow, so they are found and named.

use std::fmt;

use futures::TryStreamExt;
use object_store::ObjectStore;
use rollbook_schema::digest::bytes_digest;

use crate::error::{Error, Kind, Result};
use crate::gather::gather;
use crate::lake::Lake;
use crate::snapshot::{Snapshot, TableState, place};
use crate::store::store_error;

const CONCURRENT_TABLES: usize = 8;

/// A Delta commit that is not the lake's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForeignCommit {
    /// Table's name.
    pub table: String,
    /// Delta version.
    pub version: u64,
    /// How it differs.
    pub reason: ForeignReason,
}

/// How a foreign commit differs from the lake's log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForeignReason {
    /// No entry knows this version.
    Beyond,
    /// The entry that made this version wrote other bytes.
    OtherBytes,
}

impl fmt::Display for ForeignCommit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let how = match self.reason {
            ForeignReason::Beyond => "was not written by Rollbook; its rows are in no result",
            ForeignReason::OtherBytes => "holds other bytes than Rollbook wrote; results do not follow it",
        };
        write!(f, "table {}, Delta version {}: the commit {how}", self.table, self.version)
    }
}

impl ForeignCommit {
    /// Returns the error that stops a write to this table.
    pub(crate) fn into_error(self) -> Error {
        Error::new(Kind::Conflict, "a Delta commit was not written by Rollbook")
            .with("table", &self.table)
            .with("version", self.version)
            .with("file", place::delta_commit(&self.table, self.version))
            .with_remedy(
                "only Rollbook may write these tables; its rows are in no result. Move that file away to go on",
            )
    }
}

impl Lake {
    /// Finds Delta commits beyond what the lake's log knows, and newest ones with other bytes than the log's.
    ///
    /// `seen` is where the caller stands; entries published after it are read, so that they are not accused.
    pub async fn foreign_commits(&self, seen: &Snapshot) -> Result<Vec<ForeignCommit>> {
        let (head, _) = self.inner.log.advance(seen.clone()).await?;
        let looks = head.tables().map(|(name, table)| self.foreign_of(name, table)).collect();
        let mut found: Vec<ForeignCommit> = gather(looks, CONCURRENT_TABLES).await?.into_iter().flatten().collect();
        if found.iter().any(|commit| commit.reason == ForeignReason::Beyond) {
            // A writer may have published and applied between the two looks.
            let (head, _) = self.inner.log.advance(head).await?;
            found.retain(|commit| {
                commit.reason == ForeignReason::OtherBytes || commit.version > head.table(&commit.table).version
            });
        }
        Ok(found)
    }

    async fn foreign_of(&self, name: &str, table: &TableState) -> Result<Vec<ForeignCommit>> {
        let mut found = Vec::new();
        let newest = place::delta_commit(name, table.version);
        let is_other =
            self.inner.log.get(&newest).await?.is_some_and(|bytes| bytes_digest(&bytes) != table.commit_digest);
        if is_other {
            let table_name = name.to_owned();
            found.push(ForeignCommit { table: table_name, version: table.version, reason: ForeignReason::OtherBytes });
        }
        let folder = place::delta_log(name);
        let mut beyond: Vec<u64> = self
            .inner
            .store
            .list_with_offset(Some(&folder), &newest)
            .try_filter_map(|meta| async move { Ok(place::number(&meta.location, ".json")) })
            .try_collect()
            .await
            .map_err(|error| store_error(error, "list", folder.as_ref()))?;
        beyond.retain(|&version| version > table.version);
        beyond.sort_unstable();
        found.extend(beyond.into_iter().map(|version| ForeignCommit {
            table: name.to_owned(),
            version,
            reason: ForeignReason::Beyond,
        }));
        Ok(found)
    }
}
