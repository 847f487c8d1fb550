//! `blobs/`: files kept whole, such as tokenizers and chat templates. Their names say nothing, unless one is a digest.

use std::fs::File;
use std::io::Read;

use rollbook_schema::digest::bytes_digest;

use crate::error::{Error, ErrorKind, Result};
use crate::importer::Item;
use crate::source::SourceFile;

/// The largest file that is taken.
const LIMIT: u64 = 256 << 20;

/// Reads one file. Where its name is a digest, its bytes must have it.
pub(super) fn read(file: &SourceFile) -> Result<Item> {
    if file.bytes > LIMIT {
        let message = format!("a file of {} bytes, larger than the limit of {LIMIT}", file.bytes);
        return Err(Error::new(ErrorKind::Unsupported, message).with("file", &file.name));
    }
    let failed = |source| Error::io(&file.name, source);
    let mut bytes = Vec::new();
    File::open(&file.path).map_err(failed)?.take(LIMIT + 1).read_to_end(&mut bytes).map_err(failed)?;
    if let Some(named) = named_digest(&file.name) {
        let found = bytes_digest(&bytes);
        if found != format!("sha256:{named}") {
            let message = format!(
                "the file's name says sha256:{named}, its bytes have {found}; copy it again, or name it otherwise"
            );
            return Err(Error::invalid(message).with("file", &file.name));
        }
    }
    Ok(Item::Blob { file: file.name.clone(), bytes })
}

/// The digest that a name consists of, endings and a leading `sha256` aside.
fn named_digest(name: &str) -> Option<String> {
    let name = name.rsplit('/').next().unwrap_or(name);
    let stem = name.split('.').next().unwrap_or(name);
    let hex = stem.strip_prefix("sha256").map_or(stem, |rest| rest.trim_start_matches([':', '-', '_']));
    (hex.len() == 64 && hex.bytes().all(|byte| byte.is_ascii_hexdigit())).then(|| hex.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use rollbook_schema::digest::bytes_digest;

    use crate::tests::{Gathered, gather};
    use crate::{ImportOptions, Result, importer};

    fn read(folder: &Path) -> Result<Gathered> {
        gather(importer("tables").unwrap(), &[folder.to_owned()], &ImportOptions::default())
    }

    #[test]
    fn blobs_come_with_tables_or_alone() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("blobs/inner")).unwrap();
        fs::write(folder.path().join("blobs/tokenizer.json"), "{}").unwrap();
        let alone = read(folder.path()).unwrap();
        assert_eq!(alone.blobs["blobs/tokenizer.json"], b"{}");
        assert_eq!(alone.notes, ["blobs/inner: a folder, not read"]);
        fs::write(folder.path().join("runs.jsonl"), "{\"run_id\":\"r\"}\n").unwrap();
        let both = read(folder.path()).unwrap();
        assert_eq!((both.rows("runs"), both.blobs.len()), (1, 1));
    }

    #[test]
    fn a_name_that_is_a_digest_must_be_that_of_the_bytes() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("blobs")).unwrap();
        let digest = bytes_digest(b"right");
        let file = folder.path().join("blobs").join(format!("{}.json", digest.trim_start_matches("sha256:")));
        fs::write(&file, "right").unwrap();
        assert_eq!(read(folder.path()).unwrap().blobs.len(), 1);
        fs::write(&file, "wrong").unwrap();
        let error = read(folder.path()).unwrap_err().to_string();
        assert!(error.contains(&digest) && error.contains(&bytes_digest(b"wrong")), "{error}");
    }

    #[test]
    fn an_empty_folder_of_blobs_is_no_source_and_another_content_another() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("blobs")).unwrap();
        assert!(read(folder.path()).is_err());
        let digest = |content: &str| {
            fs::write(folder.path().join("blobs/a"), content).unwrap();
            importer("tables").unwrap().source_digest(&[folder.path().to_owned()]).unwrap()
        };
        assert_ne!(digest("x"), digest("y"));
    }

    #[cfg(unix)]
    #[test]
    fn a_link_that_leads_out_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("blobs")).unwrap();
        std::os::unix::fs::symlink("/etc/hostname", folder.path().join("blobs/a")).unwrap();
        assert!(read(folder.path()).unwrap_err().to_string().contains("leads out"));
    }
}
