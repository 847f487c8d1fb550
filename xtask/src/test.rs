//! `cargo xtask test`: the one command that runs all tests, and installs what they need.

use std::process::Command;

use crate::{Outcome, process, python};

pub(crate) fn run(runner: &[String]) -> Outcome {
    let python = python::install()?;
    let weed = python.program("weed")?;
    // Bins and tests in one go share their features, so dependencies are built once.
    process::run(process::cargo().args(["build", "--workspace", "--bins", "--tests"]))?;
    let binary = process::rollbook_binary()?;
    let python_path = python.path()?;
    let prepare = |command: &mut Command| {
        command.env("ROLLBOOK_BIN", &binary).env("ROLLBOOK_PYTHON", &python.interpreter).env("ROLLBOOK_WEED", &weed);
        if let Some(path) = &python_path {
            command.env("PYTHONPATH", path);
        }
    };

    let has_nextest = process::succeeds(process::cargo().args(["nextest", "--version"]));
    let mut tests = process::cargo();
    if has_nextest {
        tests.args(["nextest", "run", "--workspace", "--no-fail-fast"]);
    } else {
        tests.args(["test", "--workspace", "--bins", "--lib", "--tests", "--no-fail-fast"]);
    }
    prepare(tests.args(runner));
    process::run(&mut tests)?;
    if runner.is_empty() {
        let mut doctests = process::cargo();
        prepare(doctests.args(["test", "--workspace", "--doc", "--quiet"]));
        process::run(&mut doctests)?;
    }
    Ok(())
}
