//! The program and the tests share one build of every dependency: cargo resolves features per selection of packages,
//! so a test tool that switches on a feature of a common crate would have everything above it built twice.

use std::collections::BTreeSet;

use super::Complaints;
use crate::{Outcome, process};

const FOR_PROGRAM: [&str; 4] = ["-p", "rollbook-cli", "-e", "normal,build"];
const FOR_TESTS: [&str; 3] = ["--workspace", "-e", "normal,build,dev"];

pub(super) fn check(complaints: &mut Complaints) -> Outcome {
    let program = tree(&FOR_PROGRAM)?;
    let tests = tree(&FOR_TESTS)?;
    for package in built_twice(&program, &tests) {
        complaints
            .warnings
            .push(format!("{package}: the tests build it with other features; give rollbook-cli the same ones"));
    }
    Ok(())
}

fn tree(selection: &[&str]) -> Outcome<String> {
    let mut command = process::cargo();
    command.arg("tree").args(selection).args(["--prefix", "none", "-f", "{p} {f}"]);
    process::read(&mut command)
}

/// Returns the packages of the program that the tests resolve otherwise.
fn built_twice<'a>(program: &'a str, tests: &'a str) -> BTreeSet<&'a str> {
    let tests = resolved(tests);
    let twice = resolved(program).into_iter().filter(|entry| !tests.contains(entry));
    twice.map(|entry| entry.split(' ').next().unwrap_or(entry)).collect()
}

/// Returns each package with its features; those of the workspace, which are shown with their folder, are left out.
fn resolved(tree: &str) -> BTreeSet<&str> {
    let lines = tree.lines().map(|line| line.trim_end_matches(" (*)").trim());
    lines.filter(|line| !line.is_empty() && !line.contains("(/") && !line.contains(":\\")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn package_with_other_features_is_named_and_a_test_tool_is_not() {
        let program = "rollbook-cli v0.1.0 (/a)\nregex v1.0.0 std\nmd-5 v0.10.6\n";
        let tests = "regex v1.0.0 std (*)\nmd-5 v0.10.6 default,std\ninsta v1.0.0\n";
        assert_eq!(built_twice(program, tests), BTreeSet::from(["md-5"]));
    }
}
