//! Importers: foreign and native formats become a stream of record batches in the logical schema.
//!
//! ```text
//! paths -> Importer::open -> Item::Rows    rows of one table, bounded in rows and bytes
//!                            Item::Reject  a record that cannot be read: file, line, field, reason, raw text
//!                            Item::Note    what the user should know
//!                            Item::Progress
//! ```
//!
//! An importer never guesses: what it cannot read becomes a reject, and what is readable but wrong goes in untouched,
//! for the audits to name. This crate knows no storage and never asks the time.

mod error;
mod importer;
mod json;
mod openai_log;
mod registry;
mod row;
mod source;
mod stream;
mod tables;

#[cfg(test)]
mod tests;

pub use error::{Error, ErrorKind, Result};
pub use importer::{ImportOptions, Importer, Item, Items, RAW_LIMIT, Reject};
pub use registry::{importer, importers};
