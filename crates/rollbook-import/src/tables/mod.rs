//! The native exchange format: `rollbook import tables DIR`.
//!
//! ```text
//! DIR/calls.jsonl  calls-0002.jsonl  scores.parquet  rollouts.arrow   any subset of the tables
//!     <table>.<ending> or <table>-<anything>.<ending>, endings jsonl, parquet, arrow (IPC file or stream)
//! DIR/blobs/tokenizer.json  …                                files kept whole, found by the sha256 of their bytes
//! ```
//!
//! Columns are the logical ones of `schema/v1`; only the id in a table's key is required and what is missing is
//! null. In calls, an exactness or `logprobs_source` that is not given is `assumed` where there are ids or logprobs,
//! else `absent`. Unknown columns are named once and kept in `extra` where the table has one. Rows whose types are
//! right go in, however wrong their content; the others become rejects.
//!
//! Limits: a line of 64 MiB, 128 levels of nesting, 16,777,216 items in a list, 2 GiB in a compressed Arrow buffer.
//! A file may be of any size. Non-finite floats inside an Arrow struct that becomes JSON are null there.

mod blobs;
mod columnar;
mod conform;
mod convert;
mod files;
mod ipc;
mod jsonl;
mod nested;
mod rules;

#[cfg(test)]
mod tests;

use std::path::PathBuf;

use crate::error::Result;
use crate::importer::{ImportOptions, Importer, Item, Items};
use crate::stream::{Extent, LineItems, guarded};

use files::{Form, TableFile};

/// The importer of the exchange format.
#[derive(Debug)]
pub(crate) struct Tables;

impl Importer for Tables {
    fn name(&self) -> &'static str {
        "tables"
    }

    fn description(&self) -> &'static str {
        "Rollbook's exchange format: a folder of <table>.jsonl, <table>.parquet or <table>.arrow"
    }

    fn version(&self) -> &'static str {
        "1"
    }

    fn open(&self, paths: &[PathBuf], options: &ImportOptions) -> Result<Items> {
        let found = files::discover(paths)?;
        let total =
            found.files.iter().map(|file| file.source.bytes).chain(found.blobs.iter().map(|file| file.bytes)).sum();
        let run_id = options.run_id.clone();
        let mut before = found.blobs.iter().map(|file| file.bytes).sum();
        let blobs = found.blobs.into_iter().map(|file| blobs::read(&file));
        let files = found.files.into_iter().flat_map(move |file| {
            let extent = Extent { before, total };
            before += file.source.bytes;
            open_file(file, run_id.as_deref(), extent)
        });
        let notes = found.notes.into_iter().map(|note| Ok(Item::Note(note)));
        Ok(guarded(notes.chain(blobs).chain(files), options.strict))
    }

    fn source_digest(&self, paths: &[PathBuf]) -> Result<String> {
        let found = files::discover(paths)?;
        let sources: Vec<_> = found.files.into_iter().map(|file| file.source).chain(found.blobs).collect();
        crate::source::digest(self.name(), &sources)
    }
}

fn open_file(file: TableFile, run_id: Option<&str>, extent: Extent) -> Items {
    match file.form {
        Form::Jsonl => Box::new(LineItems::new(jsonl::TableLines::new(file.table, run_id), vec![file.source], extent)),
        Form::Parquet | Form::Arrow => match columnar::open(&file, run_id, extent) {
            Ok(items) => items,
            Err(error) => Box::new(std::iter::once(Err(error))),
        },
    }
}
