//! Which files of a folder are tables.

use std::path::PathBuf;

use rollbook_schema::{Table, tables};

use crate::error::{Error, Result};
use crate::source::{self, SourceFile};

/// The folder beside the tables whose files are kept whole.
const BLOBS: &str = "blobs";

/// The three ways a table is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Jsonl,
    Parquet,
    Arrow,
}

/// A file that holds rows of one table.
#[derive(Clone, Debug)]
pub(crate) struct TableFile {
    pub(crate) source: SourceFile,
    pub(crate) table: &'static Table,
    pub(crate) form: Form,
    rank: usize,
}

/// The table files among the paths, in the order of the schema, and what is to be said of the rest.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) files: Vec<TableFile>,
    /// Files of `blobs/`.
    pub(crate) blobs: Vec<SourceFile>,
    pub(crate) notes: Vec<String>,
}

/// Finds the table files.
pub(crate) fn discover(paths: &[PathBuf]) -> Result<Found> {
    let mut found = Found::default();
    if paths.is_empty() {
        return Err(Error::invalid("no path; name a folder of tables").with("expected", expected()));
    }
    for path in paths {
        if path.is_dir() {
            from_folder(path, &mut found)?;
            continue;
        }
        let file = SourceFile::at(path)?;
        refuse_compressed(&file)?;
        let name = file.name.clone();
        let Some(file) = classify(file) else {
            return Err(Error::invalid("the name is no table's").with("file", name).with("expected", expected()));
        };
        found.files.push(file);
    }
    found.files = source::once_each(found.files, |file| &file.source);
    found.blobs = source::once_each(found.blobs, |file| file);
    found.files.sort_by(|a, b| a.rank.cmp(&b.rank).then_with(|| a.source.name.cmp(&b.source.name)));
    Ok(found)
}

fn from_folder(path: &std::path::Path, found: &mut Found) -> Result<()> {
    let listing = source::list(path)?;
    let before = found.files.len();
    let mut has_blobs = false;
    for name in &listing.folders {
        if name == BLOBS {
            has_blobs = from_blobs(&path.join(BLOBS), found)?;
        } else {
            found.notes.push(format!("{name}: a folder, not read"));
        }
    }
    for file in listing.files {
        refuse_compressed(&file)?;
        let name = file.name.clone();
        match classify(file) {
            Some(file) => found.files.push(file),
            None => found.notes.push(format!("{name}: no table has this name, not read")),
        }
    }
    if found.files.len() == before && !has_blobs {
        let message = "the folder holds no table";
        return Err(Error::invalid(message).with("folder", path.display()).with("expected", expected()));
    }
    Ok(())
}

/// Lists `blobs/`, and says whether it holds a file.
fn from_blobs(path: &std::path::Path, found: &mut Found) -> Result<bool> {
    let listing = source::list(path)?;
    found.notes.extend(listing.folders.iter().map(|name| format!("{BLOBS}/{name}: a folder, not read")));
    let has_any = !listing.files.is_empty();
    found
        .blobs
        .extend(listing.files.into_iter().map(|file| SourceFile { name: format!("{BLOBS}/{}", file.name), ..file }));
    Ok(has_any)
}

fn refuse_compressed(file: &SourceFile) -> Result<()> {
    match file.compressed_stem() {
        Some(stem) if parse_name(stem).is_some() => Err(source::compressed(&file.name)),
        _ => Ok(()),
    }
}

fn classify(source: SourceFile) -> Option<TableFile> {
    let (rank, form) = parse_name(&source.name)?;
    Some(TableFile { source, table: &tables()[rank], form, rank })
}

/// Reads the table's place in the schema and the form out of a file name.
fn parse_name(name: &str) -> Option<(usize, Form)> {
    let (stem, ending) = name.rsplit_once('.')?;
    let form = match ending {
        "jsonl" => Form::Jsonl,
        "parquet" => Form::Parquet,
        "arrow" => Form::Arrow,
        _ => return None,
    };
    let table = stem.split('-').next().unwrap_or(stem);
    let rank = tables().iter().position(|known| known.name == table)?;
    Some((rank, form))
}

fn expected() -> String {
    let names: Vec<_> = tables().iter().map(|table| table.name.as_str()).collect();
    format!("<table>.jsonl, <table>.parquet or <table>.arrow, where <table> is one of {}", names.join(", "))
}
