//! Writing to the lake: what a caller hands in, and what it gets back.
//!
//! ```text
//! finish(head)     the newest Delta commit of every table exists, the head's source is marked     (else: write them)
//! prepare(head)    the caller says which files come and go
//! PUT entry n+1    put-if-absent; this is the commit
//!   taken          mine by nonce -> go on · my source by digest -> AlreadyIn · else read, finish, prepare again
//! apply            Delta commits, source mark, `latest`, state, checkpoint: all repeatable, all finished by the next writer
//! ```

mod apply;
pub(crate) mod compose;
pub(crate) mod publish;

use std::sync::Arc;

use async_trait::async_trait;

use crate::error::Result;
use crate::file::DataFile;
use crate::snapshot::{Entry, Kind, Snapshot};

/// Why a write is made, as its entry records it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Intent {
    /// Append or rewrite.
    pub kind: Kind,
    /// One line for the history: `import tables`, `reward verifier_value`.
    pub reason: String,
    /// Digest of the imported source; the same source is published once.
    pub source_digest: Option<String>,
    /// Import that makes the rows.
    pub import_id: Option<String>,
    /// Derivation that makes the rows.
    pub derivation_id: Option<String>,
}

impl Intent {
    /// Creates an append without source, import or derivation.
    pub fn append(reason: impl Into<String>) -> Self {
        Self { kind: Kind::Append, reason: reason.into(), source_digest: None, import_id: None, derivation_id: None }
    }

    /// Creates a rewrite.
    pub fn rewrite(reason: impl Into<String>) -> Self {
        Self { kind: Kind::Rewrite, ..Self::append(reason) }
    }
}

/// Files that come and go in one table.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Change {
    /// Table's name.
    pub table: String,
    /// Files to add, already uploaded.
    pub add: Vec<DataFile>,
    /// Files to remove; rewrites only.
    pub remove: Vec<Arc<DataFile>>,
}

/// Decides what to publish on top of a head.
#[async_trait]
pub trait Prepare: Send {
    /// Returns the changes to publish upon `head`; none = nothing to add.
    ///
    /// Called once with the base, and again after each lost race with the new head and the entries that won.
    async fn changes(&mut self, head: &Snapshot, won: &[Entry]) -> Result<Vec<Change>>;
}

/// What became of a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It is in.
    Published {
        /// Its entry.
        n: u64,
        /// What could not be finished after the entry was published; the next writer does it.
        warnings: Vec<String>,
    },
    /// The same source was already published.
    AlreadyIn {
        /// By this entry.
        n: u64,
    },
    /// There was nothing to add.
    Nothing,
}
