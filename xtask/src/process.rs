//! Running other programs, and where the repository and its target directory lie.

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;

use crate::Outcome;

/// Returns the root of the clone stood in, or else of the clone this was built in.
///
/// Clones that share a target directory share this program, and the one that built it last is not the one meant.
pub(crate) fn root() -> PathBuf {
    let here = env::current_dir().ok();
    let stood_in =
        here.iter().flat_map(|here| here.ancestors()).find(|folder| folder.join("xtask/Cargo.toml").is_file());
    let built_in = || Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."));
    stood_in.unwrap_or_else(built_in).to_path_buf()
}

/// Returns the cargo that runs us.
///
/// What `cargo run` tells us about ourselves is taken out of its environment: build scripts look at it (ring's does), and
/// would have everything above them built again whenever cargo is called from here instead of from a shell.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    for (name, _) in env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") || text == "OUT_DIR" {
            command.env_remove(&name);
        }
    }
    command.current_dir(root());
    command
}

/// Runs a program to its end; fails unless it succeeds.
pub(crate) fn run(command: &mut Command) -> Outcome {
    let shown = describe(command);
    let status = command.status().map_err(|error| format!("{shown}: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("{shown}: {status}").into()) }
}

/// Runs a program and returns what it prints.
pub(crate) fn read(command: &mut Command) -> Outcome<String> {
    let shown = describe(command);
    let output = command.output().map_err(|error| format!("{shown}: {error}"))?;
    if !output.status.success() {
        let complaint = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{shown}: {}\n{complaint}", output.status).into());
    }
    Ok(String::from_utf8(output.stdout)?)
}

/// Tells whether a program is there and succeeds.
pub(crate) fn succeeds(command: &mut Command) -> bool {
    command.output().is_ok_and(|output| output.status.success())
}

/// Returns `cargo metadata` of the workspace's own packages.
pub(crate) fn metadata() -> Outcome<Value> {
    Ok(serde_json::from_str(&read(cargo().args(["metadata", "--format-version", "1", "--no-deps"]))?)?)
}

/// Returns the directory cargo builds into.
pub(crate) fn target_dir() -> Outcome<PathBuf> {
    let metadata = metadata()?;
    let path = metadata["target_directory"].as_str().ok_or("cargo metadata names no target directory")?;
    Ok(PathBuf::from(path))
}

/// Returns the CLI binary that `cargo build` makes.
pub(crate) fn rollbook_binary() -> Outcome<PathBuf> {
    Ok(target_dir()?.join("debug").join(format!("rollbook{}", env::consts::EXE_SUFFIX)))
}

fn describe(command: &Command) -> String {
    let mut shown = command.get_program().to_string_lossy().into_owned();
    for argument in command.get_args() {
        shown.push(' ');
        shown.push_str(&argument.to_string_lossy());
    }
    shown
}
