//! What holds for every importer, and the ways tests read a source.

mod calculator_run;
mod properties;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use arrow::compute::concat_batches;
use arrow::record_batch::RecordBatch;
use tempfile::TempDir;

use crate::{ImportOptions, Importer, Item, Reject, Result, importer, importers};

/// Everything that one import gave.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Gathered {
    pub(crate) tables: BTreeMap<String, RecordBatch>,
    pub(crate) order: Vec<String>,
    pub(crate) blobs: BTreeMap<String, Vec<u8>>,
    pub(crate) rejects: Vec<Reject>,
    pub(crate) notes: Vec<String>,
}

impl Gathered {
    pub(crate) fn rows(&self, table: &str) -> usize {
        self.tables.get(table).map_or(0, RecordBatch::num_rows)
    }

    /// The rejects as `line field: reason`.
    pub(crate) fn reasons(&self) -> Vec<String> {
        let place = |reject: &Reject| {
            let line = reject.line.map_or_else(|| "-".to_owned(), |line| line.to_string());
            format!("{line} {}: {}", reject.field.as_deref().unwrap_or("-"), reject.reason)
        };
        self.rejects.iter().map(place).collect()
    }
}

/// Reads a source to its end.
pub(crate) fn gather(importer: &dyn Importer, paths: &[PathBuf], options: &ImportOptions) -> Result<Gathered> {
    let mut gathered = Gathered::default();
    let mut batches: BTreeMap<String, Vec<RecordBatch>> = BTreeMap::new();
    let mut last = (0, 0);
    for item in importer.open(paths, options)? {
        match item? {
            Item::Rows { table, batch } => {
                assert!(batch.num_rows() <= 8192 && batch.num_rows() > 0);
                if gathered.order.last() != Some(&table.name) {
                    gathered.order.push(table.name.clone());
                }
                batches.entry(table.name.clone()).or_default().push(batch);
            }
            Item::Blob { file, bytes } => assert!(gathered.blobs.insert(file, bytes).is_none()),
            Item::Reject(reject) => gathered.rejects.push(reject),
            Item::Note(note) => gathered.notes.push(note),
            Item::Progress { bytes_done, bytes_total } => {
                assert!(bytes_done >= last.0 && bytes_done <= bytes_total, "progress goes forward");
                last = (bytes_done, bytes_total);
            }
        }
    }
    assert_eq!(last.0, last.1, "progress ends at the whole");
    for (table, batches) in batches {
        gathered.tables.insert(table, concat_batches(&batches[0].schema(), &batches).unwrap());
    }
    Ok(gathered)
}

/// A folder with these files.
pub(crate) fn folder(files: &[(&str, &[u8])]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, bytes) in files {
        fs::write(folder.path().join(name), bytes).unwrap();
    }
    folder
}

/// Reads lines of one table.
pub(crate) fn lines(table: &str, lines: &str) -> Gathered {
    let folder = folder(&[(&format!("{table}.jsonl"), lines.as_bytes())]);
    gather(importer("tables").unwrap(), &[folder.path().to_owned()], &ImportOptions::default()).unwrap()
}

/// Reads lines of a log.
pub(crate) fn log(lines: &str) -> Gathered {
    let folder = folder(&[("log.jsonl", lines.as_bytes())]);
    gather(importer("openai-log").unwrap(), &[folder.path().join("log.jsonl")], &ImportOptions::default()).unwrap()
}

/// A cell as text, null as `null`.
pub(crate) fn cell(batch: &RecordBatch, column: &str, row: usize) -> String {
    use arrow::util::display::{ArrayFormatter, FormatOptions};
    let options = FormatOptions::default().with_null("null");
    let column = batch.column_by_name(column).unwrap();
    ArrayFormatter::try_new(column, &options).unwrap().value(row).to_string()
}

/// The samples of an importer.
pub(crate) fn samples(folder: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(folder).join("samples")
}

#[test]
fn names_are_unique_and_found() {
    for one in importers() {
        assert_eq!(importer(one.name()).map(Importer::name), Some(one.name()));
        assert!(!one.description().is_empty() && !one.version().is_empty());
    }
    assert!(importer("csv").is_none());
}

#[test]
fn every_folder_with_samples_is_an_importer() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let folders = fs::read_dir(source).unwrap().map(|entry| entry.unwrap());
    let mut folders: Vec<_> = folders
        .filter(|entry| entry.path().join("samples").is_dir())
        .map(|entry| entry.file_name().to_str().unwrap().replace('_', "-"))
        .collect();
    let mut names: Vec<_> = importers().iter().map(|one| one.name().to_owned()).collect();
    folders.sort();
    names.sort();
    assert_eq!(folders, names);
}

#[test]
fn samples_read_without_a_reject() {
    for (name, folder) in [("tables", "tables"), ("openai-log", "openai_log")] {
        let gathered = gather(importer(name).unwrap(), &[samples(folder)], &ImportOptions::default()).unwrap();
        assert_eq!(gathered.reasons(), Vec::<String>::new(), "{name}");
        assert!(gathered.rows("calls") > 1, "{name}");
    }
}

#[test]
fn the_digest_is_of_names_and_bytes_and_not_of_places() {
    let tables = importer("tables").unwrap();
    let one = folder(&[("runs.jsonl", b"{\"run_id\":\"r\"}\n"), ("scores.jsonl", b"")]);
    let same = folder(&[("runs.jsonl", b"{\"run_id\":\"r\"}\n"), ("scores.jsonl", b""), ("notes.txt", b"x")]);
    let other = folder(&[("runs.jsonl", b"{\"run_id\":\"s\"}\n"), ("scores.jsonl", b"")]);
    let renamed = folder(&[("runs-1.jsonl", b"{\"run_id\":\"r\"}\n"), ("scores.jsonl", b"")]);
    let digest = |folder: &TempDir| tables.source_digest(&[folder.path().to_owned()]).unwrap();
    assert_eq!(digest(&one), digest(&same));
    assert_ne!(digest(&one), digest(&other));
    assert_ne!(digest(&one), digest(&renamed));
    assert!(digest(&one).starts_with("sha256:") && digest(&one).len() == 71);
    let by_file = [one.path().join("scores.jsonl"), one.path().join("runs.jsonl")];
    assert_eq!(tables.source_digest(&by_file).unwrap(), digest(&one));
}
