//! The import pipeline: importer -> encoder -> external sort -> files -> one commit.
//!
//! ```text
//! importer (own thread)          rows of one table, in the source's order
//!   -> resolve                   run_id, step, group_id filled; rows without a run rejected
//!   -> encode                    calls only: prompts become prefix deltas (bounded contexts)
//!   -> sort                      by run, step, group, rollout, arrival; spills beyond the memory limit
//!   -> known rows out            equal rows already in the lake are dropped, keyed rows get a revision
//!   -> files                     uploaded, not yet visible
//! commit                         one snapshot entry shows everything or nothing
//! ```
//!
//! What stays in memory whatever the source's size: the sort's pool, the encoder's contexts, one rollout's delta rows, one
//! row group, and a few dozen bytes for each rollout of the source.

pub(crate) mod files;
mod known;
mod record;
pub(crate) mod resolve;
pub(crate) mod rollout_rows;
pub(crate) mod spool;
mod write;

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};

use rollbook_import::{ImportOptions, Importer, Reject};
use rollbook_lake::{Change, Intent, Kind, Lake, Outcome, Prepare, Snapshot};

use crate::error::{Error, Result};
use spool::{Spooled, spool};
use write::Prepared;

/// How an import behaves.
#[derive(Debug, Clone)]
pub struct IngestOptions {
    /// The run for rows that do not name one.
    pub run_id: Option<String>,
    /// Whether the first reject ends the import.
    pub strict: bool,
    /// Whether to read and count only, and write nothing.
    pub dry_run: bool,
    /// Bytes that the sort may hold before it spills.
    pub memory_limit: usize,
    /// Where the sort spills; the system's temporary folder when absent.
    pub spill_dir: Option<PathBuf>,
}

impl Default for IngestOptions {
    fn default() -> Self {
        Self { run_id: None, strict: false, dry_run: false, memory_limit: 512 << 20, spill_dir: None }
    }
}

/// How far an import is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// Bytes of the source read so far, and in all.
    Reading {
        /// Bytes read.
        done: u64,
        /// Bytes in all.
        total: u64,
    },
    /// Sorting and writing files; rows written so far.
    Writing {
        /// Rows written.
        rows: u64,
    },
    /// Publishing the snapshot entry.
    Committing,
}

/// What happened to one table's rows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TableCount {
    /// Rows that the importer gave and that have a run.
    pub read: u64,
    /// Rows written.
    pub added: u64,
    /// Rows left out since the lake holds them already, content and all.
    pub known: u64,
}

/// The most rejects that a report repeats; the `rejects` table has all of them.
pub const REJECTS_SHOWN: usize = 20;

/// What an import did.
#[derive(Debug, Clone)]
pub struct ImportReport {
    /// The import's id, a function of the source's content.
    pub import_id: String,
    /// The digest of the source.
    pub source_digest: String,
    /// The snapshot that shows the import; null in a dry run.
    pub snapshot: Option<u64>,
    /// Whether the same source was in already, so that nothing was added.
    pub already_in: bool,
    /// Counts by table, tables without rows left out.
    pub tables: BTreeMap<String, TableCount>,
    /// How many rows or lines were rejected.
    pub rejected: u64,
    /// The first of them.
    pub rejects: Vec<Reject>,
    /// Remarks of the importer, each once.
    pub notes: Vec<String>,
    /// Things that went wrong after the commit and cost nothing (a checkpoint that was not written).
    pub warnings: Vec<String>,
}

/// Imports a source into a lake as one snapshot, or says that it is in already.
///
/// # Errors
///
/// A source that cannot be opened, a reject under `strict`, a store that does not answer. Nothing is visible then.
pub async fn import(
    lake: &Lake,
    importer: &'static dyn Importer,
    paths: &[PathBuf],
    options: &IngestOptions,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<ImportReport> {
    let source_digest = digest_with_run(&importer.source_digest(paths)?, options.run_id.as_deref());
    let import_id = import_id(&source_digest);
    let head = lake.snapshot().await?;
    if let Some(n) = lake.source_entry(&source_digest).await? {
        return Ok(already_in(import_id, source_digest, n));
    }
    let import_options = ImportOptions { run_id: options.run_id.clone(), strict: options.strict };
    let spooled = spool(lake, &head, importer, paths, &import_options, options, &import_id, progress).await?;
    let mut report = ImportReport {
        import_id: import_id.clone(),
        source_digest: source_digest.clone(),
        snapshot: None,
        already_in: false,
        tables: spooled.counts.clone(),
        rejected: spooled.rejected,
        rejects: spooled.rejects.clone(),
        notes: spooled.notes.clone(),
        warnings: Vec::new(),
    };
    if options.dry_run {
        return Ok(report);
    }
    let source = record::Source {
        import_id: import_id.clone(),
        format: importer.name().to_owned(),
        version: importer.version().to_owned(),
        digest: source_digest.clone(),
        paths: names(paths),
    };
    let mut publish = Publish { lake, spooled: Some(spooled), prepared: None, source, progress, seen: HashSet::new() };
    let intent = Intent {
        kind: Kind::Append,
        reason: format!("import {}", importer.name()),
        // A source of which no row went in may be tried again, once what it lacks is there.
        source_digest: (report.rejected == 0 || report.tables.values().any(|count| count.read > 0))
            .then(|| source_digest.clone()),
        import_id: Some(import_id.clone()),
        derivation_id: None,
    };
    let outcome = lake.commit(head, intent, &mut publish).await?;
    if let Some(prepared) = &publish.prepared {
        for (table, count) in &prepared.counts {
            let total = report.tables.entry(table.clone()).or_default();
            total.added = count.added;
            total.known = count.known;
        }
    }
    match outcome {
        Outcome::Published { n, warnings } => {
            report.snapshot = Some(n);
            report.warnings = warnings;
        }
        Outcome::AlreadyIn { n } => return Ok(already_in(import_id, source_digest, n)),
        Outcome::Nothing => return Err(Error::corrupt("an import prepared no entry")),
    }
    Ok(report)
}

/// The same rows under another run are another import.
fn digest_with_run(digest: &str, run_id: Option<&str>) -> String {
    match run_id {
        Some(run_id) => rollbook_schema::digest::bytes_digest(format!("{digest}\n{run_id}").as_bytes()),
        None => digest.to_owned(),
    }
}

fn import_id(source_digest: &str) -> String {
    let hex = source_digest.rsplit(':').next().unwrap_or(source_digest);
    format!("import-{}", hex.get(..16).unwrap_or(hex))
}

fn already_in(import_id: String, source_digest: String, n: u64) -> ImportReport {
    ImportReport {
        import_id,
        source_digest,
        snapshot: Some(n),
        already_in: true,
        tables: BTreeMap::new(),
        rejected: 0,
        rejects: Vec::new(),
        notes: Vec::new(),
        warnings: Vec::new(),
    }
}

/// The sources' own names: where they lie on the machine is nobody's business.
fn names(paths: &[PathBuf]) -> Vec<String> {
    let name = |path: &PathBuf| {
        path.file_name().map_or_else(|| path.display().to_string(), |n| n.to_string_lossy().into_owned())
    };
    paths.iter().map(|path| name(&path.canonicalize().unwrap_or_else(|_| Path::new(path).to_path_buf()))).collect()
}

/// Writes the files once, and after a lost race only what the winners changed.
struct Publish<'a> {
    lake: &'a Lake,
    spooled: Option<Spooled>,
    prepared: Option<Prepared>,
    source: record::Source,
    progress: &'a (dyn Fn(Progress) + Sync),
    seen: HashSet<String>,
}

#[async_trait::async_trait]
impl Prepare for Publish<'_> {
    async fn changes(&mut self, head: &Snapshot, won: &[rollbook_lake::Entry]) -> rollbook_lake::Result<Vec<Change>> {
        // What the winners brought is found in the head itself: files that were not there before.
        let _ = won;
        self.prepare(head).await.map_err(rollbook_lake::Error::from)
    }
}
