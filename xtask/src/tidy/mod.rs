//! `cargo xtask tidy`: house rules that no lint knows.

mod edges;
mod features;
mod files;
mod modules;

use std::{fs, path::PathBuf, process::Command};

use crate::{Outcome, process};

/// One text file of the repository.
struct Source {
    /// Path below the root, with forward slashes.
    path: String,
    text: String,
}

/// What a rule found: place and complaint.
#[derive(Default)]
struct Complaints {
    errors: Vec<String>,
    warnings: Vec<String>,
}

pub(crate) fn run() -> Outcome {
    let sources = sources()?;
    let mut complaints = Complaints::default();
    files::check(&sources, &mut complaints);
    modules::check(&sources, &mut complaints);
    edges::check(&process::metadata()?, &mut complaints);
    features::check(&mut complaints)?;
    for warning in &complaints.warnings {
        println!("warning: {warning}");
    }
    if complaints.errors.is_empty() { Ok(()) } else { Err(complaints.errors.join("\n").into()) }
}

/// Reads every text file that git tracks or would track.
fn sources() -> Outcome<Vec<Source>> {
    let root = process::root();
    let mut git = Command::new("git");
    git.current_dir(&root).args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
    let listed = process::read(&mut git)?;
    let mut sources = Vec::new();
    for path in listed.split('\0').filter(|path| !path.is_empty()) {
        let full: PathBuf = root.join(path);
        // A file deleted but not yet committed is listed and gone; a binary one is no text.
        let Ok(text) = fs::read_to_string(full) else {
            continue;
        };
        sources.push(Source { path: path.to_owned(), text });
    }
    Ok(sources)
}
