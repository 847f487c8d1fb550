//! `cargo xtask docs`: every page of docs/ that comes from source.

use std::process::Command;

use crate::{
    Outcome,
    generated::{Generated, settle},
    process, schema,
};

const COMMAND: &str = "cargo xtask docs";

/// Pages the built binary prints about itself: path, arguments.
const FROM_BINARY: &[(&str, &[&str])] = &[];

pub(crate) fn run(check: bool) -> Outcome {
    let mut files = schema::files();
    files.extend(from_binary()?);
    settle(&files, check)
}

fn from_binary() -> Outcome<Vec<Generated>> {
    if FROM_BINARY.is_empty() {
        return Ok(Vec::new());
    }
    // With the tests' features, so that nothing is built twice.
    process::run(process::cargo().args(["build", "--quiet", "--workspace", "--bins", "--tests"]))?;
    let binary = process::rollbook_binary()?;
    FROM_BINARY
        .iter()
        .map(|(path, arguments)| {
            let text = process::read(Command::new(&binary).args(*arguments))?;
            Ok(Generated {
                path,
                text,
                command: COMMAND,
            })
        })
        .collect()
}
