//! Files that tests use and that are not part of the repository: tokenizers, templates, other people's records.

use std::path::{Path, PathBuf};

/// Returns a file or folder of `data/` below the folder that `ROLLBOOK_SHARED` names, else below `../shared` beside the
/// repository; none, and a line that says so, where it is not there.
pub fn shared(path: &str) -> Option<PathBuf> {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared");
    let root = std::env::var_os("ROLLBOOK_SHARED").map_or_else(beside, PathBuf::from);
    let path = root.join("data").join(path);
    if path.exists() {
        return Some(path);
    }
    note(&format!("skipped: {} is not there; ROLLBOOK_SHARED names the folder", path.display()));
    None
}

#[expect(clippy::print_stdout, reason = "a test that is skipped says so")]
fn note(line: &str) {
    println!("{line}");
}
