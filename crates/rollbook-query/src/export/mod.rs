//! Exports: a build's rows as files that a trainer reads, with a manifest written last.
//!
//! ```text
//! DEST/part-00000-<build>.parquet …    rows in the order of optimizer_step, micro_batch, rank, row_index
//! DEST/manifest.json                   what it is, and the sha256 of every part: without it the export is unfinished
//! ```
//!
//! Rows have the logical columns of `samples`. The same build gives the same bytes, so an export can be repeated over itself.

mod chunks;
mod in_order;
mod left_out;
mod lookup;
mod manifest;
mod part;
mod parts;
mod rows;
mod run;
#[cfg(test)]
mod tests;
mod upload;
mod verify;

pub use manifest::{ExportedFile, Manifest, Objective, Upstream};
pub use run::{ExportOptions, Format, export};
pub use verify::{Fault, verify};
