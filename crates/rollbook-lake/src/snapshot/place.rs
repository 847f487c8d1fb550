//! Where things lie below the lake's root.

use object_store::path::Path;

/// `_rollbook/lake.json`.
pub(crate) fn lake() -> Path {
    Path::from("_rollbook/lake.json")
}

/// The folder of the snapshot log.
pub(crate) fn snapshots() -> Path {
    Path::from("_rollbook/snapshots")
}

/// Entry `n` of the snapshot log.
pub(crate) fn entry(n: u64) -> Path {
    Path::from(format!("_rollbook/snapshots/{n:020}.json"))
}

/// The hint at the newest entry; letters sort after digits, so listings from an entry on pass it last.
pub(crate) fn latest() -> Path {
    Path::from("_rollbook/snapshots/latest")
}

/// The folder of cached states.
pub(crate) fn states() -> Path {
    Path::from("_rollbook/states")
}

/// The cached state after entry `n`.
pub(crate) fn state(n: u64) -> Path {
    Path::from(format!("_rollbook/states/{n:020}.arrow.zst"))
}

/// The mark that a source is in.
pub(crate) fn source(digest: &str) -> Path {
    Path::from_iter(["_rollbook", "sources", digest])
}

/// The blob of a digest's 64 hex digits.
pub(crate) fn blob(hex: &str) -> Path {
    let (folder, name) = hex.split_at(hex.len().min(2));
    Path::from_iter(["_rollbook", "blobs", "sha256", folder, name])
}

/// Commit `version` of a table's Delta log.
pub(crate) fn delta_commit(table: &str, version: u64) -> Path {
    Path::from(format!("{table}/_delta_log/{version:020}.json"))
}

/// A table's Delta log.
pub(crate) fn delta_log(table: &str) -> Path {
    Path::from(format!("{table}/_delta_log"))
}

/// Reads the number off a name like `{n:020}` plus `suffix`; anything else is not ours.
pub(crate) fn number(path: &Path, suffix: &str) -> Option<u64> {
    let digits = path.filename()?.strip_suffix(suffix)?;
    (digits.len() == 20 && digits.bytes().all(|byte| byte.is_ascii_digit())).then(|| digits.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_reads_back_what_entry_wrote_and_ignores_other_names() {
        assert_eq!(number(&entry(41), ".json"), Some(41));
        assert_eq!(number(&state(32), ".arrow.zst"), Some(32));
        assert_eq!(number(&latest(), ".json"), None);
        assert_eq!(number(&Path::from("_rollbook/snapshots/7.json"), ".json"), None);
        assert_eq!(number(&Path::from("x/_delta_log/00000000000000000100.checkpoint.parquet"), ".json"), None);
    }

    #[test]
    fn blob_splits_after_two_digits() {
        assert_eq!(blob("abcdef").as_ref(), "_rollbook/blobs/sha256/ab/cdef");
    }
}
