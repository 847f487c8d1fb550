//! What an importer is: it turns files of one format into a stream of items, and knows no storage.

use std::path::PathBuf;

use arrow::record_batch::RecordBatch;
use rollbook_schema::Table;

use crate::error::Result;

/// Choices of the caller that hold for a whole import.
#[derive(Clone, Debug, Default)]
pub struct ImportOptions {
    /// The run of every row that names none.
    pub run_id: Option<String>,
    /// Ends the import with an error at the first reject.
    pub strict: bool,
}

/// A record that was left out, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reject {
    /// File, relative to the path that was given.
    pub file: String,
    /// Line in a text file, row in a columnar one, both from 1.
    pub line: Option<u64>,
    /// Place inside the record, such as `calls.output_token_ids[3]`.
    pub field: Option<String>,
    /// What is wrong with it.
    pub reason: String,
    /// The start of the offending text, at most [`RAW_LIMIT`] bytes.
    pub raw: Option<String>,
}

/// The most bytes of a bad record that a [`Reject`] repeats.
pub const RAW_LIMIT: usize = 4096;

/// One piece of what an importer reads.
#[derive(Clone, Debug)]
pub enum Item {
    /// Rows of one table: its logical columns, every one nullable; `created_at`, `revision` and (but for the tables
    /// of imports themselves) `import_id` are null, since the caller fills them.
    Rows {
        /// The table that the rows belong to.
        table: &'static Table,
        /// At most 8,192 rows and about 16 MB.
        batch: RecordBatch,
    },
    /// A file to be kept whole, under the digest of its bytes: a tokenizer, a chat template, an artifact.
    Blob {
        /// The file, relative to the path that was given.
        file: String,
        /// Its bytes.
        bytes: Vec<u8>,
    },
    /// A record that was left out.
    Reject(Reject),
    /// Something the user should know that costs no record, such as an unknown column.
    Note(String),
    /// How far the import has come.
    Progress {
        /// Bytes of the source read so far.
        bytes_done: u64,
        /// Bytes of the source in all.
        bytes_total: u64,
    },
}

/// The items of one import, in order. It ends after the first error.
pub type Items = Box<dyn Iterator<Item = Result<Item>> + Send>;

/// A reader of one foreign or native format.
pub trait Importer: Sync {
    /// Returns the name that `rollbook import NAME` takes.
    fn name(&self) -> &'static str;

    /// Returns one sentence on what it reads.
    fn description(&self) -> &'static str;

    /// Returns the version of its rules, which every import records.
    fn version(&self) -> &'static str;

    /// Opens the source and returns its items as they are read; memory does not grow with the source.
    fn open(&self, paths: &[PathBuf], options: &ImportOptions) -> Result<Items>;

    /// Returns `sha256:…` over the names and bytes of the files that `open` would read, wherever they lie.
    fn source_digest(&self, paths: &[PathBuf]) -> Result<String>;
}
