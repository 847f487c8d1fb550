//! The files of a source: which they are, how large, and the digest over them.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::error::{Error, ErrorKind, Result};

/// Endings of compressed files, none of which is read.
const COMPRESSED: [&str; 6] = ["gz", "zst", "bz2", "xz", "lz4", "zip"];

/// Compressed files begin with these bytes, whatever their name.
const MAGIC: [&[u8]; 4] = [&[0x1f, 0x8b], &[0x28, 0xb5, 0x2f, 0xfd], b"PK\x03\x04", b"BZh"];

/// One file of a source.
#[derive(Clone, Debug)]
pub(crate) struct SourceFile {
    /// Where it lies.
    pub(crate) path: PathBuf,
    /// Its name relative to the path that was given, the same wherever the source lies.
    pub(crate) name: String,
    /// Its size.
    pub(crate) bytes: u64,
}

/// The entries of a folder by name.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    pub(crate) files: Vec<SourceFile>,
    pub(crate) folders: Vec<String>,
}

impl SourceFile {
    /// Looks a single file up.
    pub(crate) fn at(path: &Path) -> Result<Self> {
        let metadata = fs::metadata(path).map_err(|source| Error::io(path.display(), source))?;
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        Ok(Self { path: path.to_owned(), name, bytes: metadata.len() })
    }

    /// Opens it and refuses what is compressed.
    pub(crate) fn open(&self) -> Result<File> {
        let mut start = Vec::new();
        let file = File::open(&self.path).map_err(|source| Error::io(&self.name, source))?;
        (&file).take(4).read_to_end(&mut start).map_err(|source| Error::io(&self.name, source))?;
        if MAGIC.iter().any(|magic| start.starts_with(magic)) {
            return Err(compressed(&self.name));
        }
        File::open(&self.path).map_err(|source| Error::io(&self.name, source))
    }

    /// Returns the part of the name before a compressed file's ending.
    pub(crate) fn compressed_stem(&self) -> Option<&str> {
        let (stem, ending) = self.name.rsplit_once('.')?;
        COMPRESSED.contains(&ending).then_some(stem)
    }
}

/// The error of a compressed file.
pub(crate) fn compressed(name: &str) -> Error {
    Error::new(ErrorKind::Unsupported, "compressed files are not read; decompress it first").with("file", name)
}

/// Lists a folder by name, and refuses entries that lead out of it.
pub(crate) fn list(folder: &Path) -> Result<Listing> {
    let failed = |source| Error::io(folder.display(), source);
    let home = fs::canonicalize(folder).map_err(failed)?;
    let mut listing = Listing::default();
    for entry in fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = entry.path();
        if name.starts_with('.') {
            continue;
        }
        let real = fs::canonicalize(&path).map_err(|source| Error::io(path.display(), source))?;
        if !real.starts_with(&home) {
            let message = "the entry leads out of its folder; name the file itself if it is meant";
            return Err(Error::invalid(message).with("file", name));
        }
        let metadata = fs::metadata(&real).map_err(|source| Error::io(path.display(), source))?;
        if metadata.is_dir() {
            listing.folders.push(name);
        } else {
            listing.files.push(SourceFile { path, name, bytes: metadata.len() });
        }
    }
    listing.files.sort_by(|a, b| a.name.cmp(&b.name));
    listing.folders.sort();
    Ok(listing)
}

/// Leaves each file in once, however often the paths name it.
pub(crate) fn once_each<T>(files: Vec<T>, file: impl Fn(&T) -> &SourceFile) -> Vec<T> {
    let mut seen = BTreeSet::new();
    files
        .into_iter()
        .filter(|entry| {
            let path = &file(entry).path;
            seen.insert(fs::canonicalize(path).unwrap_or_else(|_unreadable| path.clone()))
        })
        .collect()
}

/// Digests the names and bytes of the files of one importer, in the order of their names.
pub(crate) fn digest(importer: &str, files: &[SourceFile]) -> Result<String> {
    let mut files: Vec<_> = files.iter().collect();
    files.sort_by(|a, b| a.name.cmp(&b.name));
    let mut whole = Sha256::new();
    framed(&mut whole, importer.as_bytes());
    for file in files {
        framed(&mut whole, file.name.as_bytes());
        framed(&mut whole, &content_digest(file)?);
    }
    Ok(format!("sha256:{}", hex(&whole.finalize())))
}

fn framed(digest: &mut Sha256, bytes: &[u8]) {
    digest.update((bytes.len() as u64).to_le_bytes());
    digest.update(bytes);
}

fn content_digest(file: &SourceFile) -> Result<[u8; 32]> {
    let failed = |source| Error::io(&file.name, source);
    let mut reader = BufReader::new(File::open(&file.path).map_err(failed)?);
    let mut digest = Sha256::new();
    let mut block = vec![0; 1 << 16];
    loop {
        let read = reader.read(&mut block).map_err(failed)?;
        if read == 0 {
            return Ok(digest.finalize().into());
        }
        digest.update(&block[..read]);
    }
}

/// Returns bytes in hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    let digit = |half: u8| char::from_digit(u32::from(half), 16).unwrap_or('0');
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 0xf)]).collect()
}
