//! Rollbook's storage: a versioned lake of Delta tables on a directory or an S3-compatible store.
//!
//! The snapshot log is the truth: entry `n` below `_rollbook/snapshots/` is created put-if-absent and holds, for each
//! table it touches, the text of that table's next Delta commit. The Delta logs follow it, so that any Delta reader opens
//! the tables, but no count depends on them.
//!
//! ```text
//! TableWriter -> DataFile* -> Change* -> commit() -> _rollbook/snapshots/{n}.json      (one PUT: all tables or none)
//!                                                 -> {table}/_delta_log/{v}.json        (copied from the entry)
//!                                                 -> _rollbook/sources/{digest}, snapshots/latest, states/
//! open() -> states/{m} + entries m+1..n -> Snapshot { table -> files }                  (a reader never writes)
//! ```
//!
//! This crate knows no SQL, prints nothing, and gets its time and its environment from the caller.

pub mod codec;
mod commit;
mod delta;
mod error;
mod file;
mod gather;
mod lake;
pub mod lists;
mod snapshot;
mod store;

pub use commit::{Change, Intent, Outcome, Prepare};
pub use delta::foreign::{ForeignCommit, ForeignReason};
pub use error::{Error, Kind as ErrorKind, Result};
pub use file::{DataFile, TableWriter, WriterLimits, holds_whole_rollouts, sort_columns};
pub use lake::{Lake, LakeOptions};
pub use snapshot::{Entry, EntryChange, Kind, Snapshot, TableState};
pub use store::{RequestCounts, open_destination};
