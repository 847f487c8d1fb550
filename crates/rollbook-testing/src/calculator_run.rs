//! The real run that ships with the quickstart, in both of the forms it came in.

use std::fs;
use std::path::{Path, PathBuf};

use crate::{Error, ErrorKind, Result};

/// The tables of the exchange format, by file name, compressed.
const TABLES: &[(&str, &[u8])] = &[
    ("calls.jsonl", include_bytes!("../../rollbook-cli/quickstart/calculator-run/calls.jsonl.zst")),
    ("encodings.jsonl", include_bytes!("../../rollbook-cli/quickstart/calculator-run/encodings.jsonl.zst")),
    (
        "environment_records.jsonl",
        include_bytes!("../../rollbook-cli/quickstart/calculator-run/environment_records.jsonl.zst"),
    ),
    ("policies.jsonl", include_bytes!("../../rollbook-cli/quickstart/calculator-run/policies.jsonl.zst")),
    ("rollouts.jsonl", include_bytes!("../../rollbook-cli/quickstart/calculator-run/rollouts.jsonl.zst")),
    ("runs.jsonl", include_bytes!("../../rollbook-cli/quickstart/calculator-run/runs.jsonl.zst")),
    ("scores.jsonl", include_bytes!("../../rollbook-cli/quickstart/calculator-run/scores.jsonl.zst")),
];

const OPENAI_LOG: &[u8] = include_bytes!("../fixtures/calculator-run/requests.jsonl.zst");

/// Writes the run as tables into `dir`, for `rollbook import tables`.
///
/// # Errors
/// `Unavailable` if the folder cannot be written.
pub fn write_tables(dir: &Path) -> Result<()> {
    fs::create_dir_all(dir)?;
    TABLES.iter().try_for_each(|(name, bytes)| unpack(bytes, &dir.join(name)))
}

/// Writes the same calls as request and response lines into `dir`, for `rollbook import openai-log`, and returns the
/// file.
///
/// # Errors
/// `Unavailable` if the folder cannot be written.
pub fn write_openai_log(dir: &Path) -> Result<PathBuf> {
    fs::create_dir_all(dir)?;
    let path = dir.join("requests.jsonl");
    unpack(OPENAI_LOG, &path)?;
    Ok(path)
}

fn unpack(bytes: &[u8], path: &Path) -> Result<()> {
    let invalid = |error: std::io::Error| {
        Error::new(ErrorKind::Invalid, format!("cannot unpack {}", path.display())).because(error)
    };
    fs::write(path, zstd::decode_all(bytes).map_err(invalid)?)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_hold_every_call() {
        let dir = tempfile::tempdir().unwrap();
        write_tables(dir.path()).unwrap();
        let log = write_openai_log(dir.path()).unwrap();
        let lines = |path: &Path| fs::read_to_string(path).unwrap().lines().count();
        assert_eq!(lines(&log), 1335);
        assert_eq!(lines(&dir.path().join("calls.jsonl")), 1335);
        assert_eq!(lines(&dir.path().join("rollouts.jsonl")), 384);
        assert_eq!(lines(&dir.path().join("scores.jsonl")), 384);
    }
}
