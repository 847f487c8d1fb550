//! Rollbook's engine: sessions over a lake's snapshot, the tables and views that SQL sees, imports, recipes and builds.
//!
//! ```text
//! Lake + Snapshot -> Session -> provider (Parquet scan, prompt decoding) -> views -> SQL
//!                            -> ingest (rows in) · compact (files joined) · recipe (rewards, credits, plans) · build (samples) · export (files)
//! ```

mod batch_rows;
pub mod build;
mod build_sides;
pub mod compact;
pub mod compare;
mod constant_filters;
mod encodings;
mod error;
pub mod export;
mod external_sort;
mod filters_down;
#[cfg(test)]
mod fixture;
mod grouped;
pub mod ingest;
mod lists;
mod null_safe_joins;
mod orders_as_written;
mod provider;
pub mod quarantine;
pub mod recipe;
mod row_digest;
mod same_rows;
mod session;
mod views;

pub use encodings::{Encoding, LakeEncodings};
pub use error::{Error, ErrorKind, Result};
pub use provider::{DecodeExec, LakeTable, PlanCodec};
pub use row_digest::row_digests;
pub use session::{
    HiddenTables, PlanOptions, RollbookDialect, Session, SessionOptions, WeakSession, parse, parse_expression,
};
