//! Which files of a folder are tables.

use std::path::PathBuf;

use rollbook_schema::{Table, tables};

use crate::error::{Error, Result};
use crate::source::{self, SourceFile};

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
    found.files.sort_by(|a, b| a.rank.cmp(&b.rank).then_with(|| a.source.name.cmp(&b.source.name)));
    Ok(found)
}

fn from_folder(path: &std::path::Path, found: &mut Found) -> Result<()> {
    let listing = source::list(path)?;
    let before = found.files.len();
    found.notes.extend(listing.folders.iter().map(|name| format!("{name}: a folder, not read")));
    for file in listing.files {
        refuse_compressed(&file)?;
        let name = file.name.clone();
        match classify(file) {
            Some(file) => found.files.push(file),
            None => found.notes.push(format!("{name}: no table has this name, not read")),
        }
    }
    if found.files.len() == before {
        let message = "the folder holds no table";
        return Err(Error::invalid(message).with("folder", path.display()).with("expected", expected()));
    }
    Ok(())
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
