//! Opens a lake's URL as an object store rooted at the lake.
//!
//! | URL | store | notes |
//! |---|---|---|
//! | `path`, `file:///path` | local folder | made by `init` only |
//! | `s3://bucket/prefix` | S3 over HTTP | `AWS_*`, path style unless asked otherwise |

mod counter;
mod failure;
mod s3;

pub use counter::RequestCounts;

pub(crate) use counter::CountingStore;
pub(crate) use failure::store_error;

use std::collections::BTreeMap;
use std::path::{Path as FsPath, PathBuf};
use std::sync::Arc;

use object_store::ObjectStore;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::prefix::PrefixStore;
use url::Url;

use crate::error::{Error, Kind, Result};

/// Whether a missing local folder is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Folder {
    Create,
    MustExist,
}

/// A store and the URL to show for it.
pub(crate) struct Opened {
    pub(crate) url: String,
    pub(crate) store: Arc<dyn ObjectStore>,
    /// Whether a missing key may as well mean a missing bucket.
    pub(crate) has_bucket: bool,
}

/// Opens a folder or bucket that is no lake, such as the destination of an export, and returns the URL to show for it.
///
/// A missing local folder is made if `create` says so.
pub fn open_destination(
    url: &str,
    env: &BTreeMap<String, String>,
    create: bool,
) -> Result<(String, Arc<dyn ObjectStore>)> {
    let folder = if create { Folder::Create } else { Folder::MustExist };
    let opened = open_store(url, env, folder)?;
    Ok((opened.url, opened.store))
}

/// Opens the store of a URL.
pub(crate) fn open_store(url: &str, env: &BTreeMap<String, String>, folder: Folder) -> Result<Opened> {
    if url.trim().is_empty() {
        return Err(Error::new(Kind::Invalid, "the lake's URL is empty"));
    }
    let Some((scheme, _)) = url.split_once("://") else {
        return open_folder(FsPath::new(url), folder);
    };
    // The text itself may hold a password, so no message repeats it before this check.
    let parsed = Url::parse(url)
        .map_err(|source| Error::new(Kind::Invalid, "the lake's URL cannot be read").with_source(source))?;
    if !parsed.username().is_empty() || parsed.password().is_some() {
        return Err(Error::new(Kind::Invalid, "the lake's URL holds credentials")
            .with_remedy("give them as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"));
    }
    if parsed.query().is_some() || parsed.fragment().is_some() {
        return Err(Error::new(Kind::Invalid, "the lake's URL has a query or fragment; it may have neither"));
    }
    match scheme.to_ascii_lowercase().as_str() {
        "file" => {
            let path = parsed
                .to_file_path()
                .map_err(|()| Error::new(Kind::Invalid, "the file URL names no local path").with("url", url))?;
            open_folder(&path, folder)
        }
        "s3" | "s3a" => open_bucket(&parsed, env),
        other => Err(Error::new(Kind::Unsupported, format!("lakes on `{other}` are not supported"))
            .with_remedy("use a folder, file:// or s3://")),
    }
}

fn open_folder(path: &FsPath, folder: Folder) -> Result<Opened> {
    let absolute: PathBuf = std::path::absolute(path).map_err(|source| {
        Error::new(Kind::Invalid, "the lake's path cannot be made absolute")
            .with("path", path.display())
            .with_source(source)
    })?;
    if folder == Folder::Create {
        std::fs::create_dir_all(&absolute).map_err(|source| folder_error(source, &absolute))?;
    }
    match std::fs::metadata(&absolute) {
        Ok(found) if found.is_dir() => {}
        Ok(_) => {
            return Err(Error::new(Kind::Invalid, "the lake's path is a file").with("path", absolute.display()));
        }
        Err(source) if source.kind() == std::io::ErrorKind::NotFound => {
            return Err(Error::new(Kind::NotFound, "there is no such folder")
                .with("path", absolute.display())
                .with_remedy("check the path, or make a lake with `rollbook init`"));
        }
        Err(source) => return Err(folder_error(source, &absolute)),
    }
    let store = LocalFileSystem::new_with_prefix(&absolute)
        .map_err(|source| store_error(source, "open", &absolute.display().to_string()))?;
    Ok(Opened { url: absolute.display().to_string(), store: Arc::new(store), has_bucket: false })
}

fn folder_error(source: std::io::Error, path: &FsPath) -> Error {
    let error = match source.kind() {
        std::io::ErrorKind::PermissionDenied => Error::new(Kind::Denied, "access to the folder is denied"),
        std::io::ErrorKind::AlreadyExists | std::io::ErrorKind::NotADirectory => {
            Error::new(Kind::Invalid, "the lake's path is a file, or below one")
        }
        _ => Error::new(Kind::Unavailable, "the folder cannot be used"),
    };
    error.with("path", path.display()).with("cause", &source).with_source(source)
}

fn open_bucket(url: &Url, env: &BTreeMap<String, String>) -> Result<Opened> {
    let bucket = url
        .host_str()
        .filter(|host| !host.is_empty())
        .ok_or_else(|| Error::new(Kind::Invalid, "the URL names no bucket").with_remedy("write s3://bucket/prefix"))?;
    let prefix = Path::from_url_path(url.path()).map_err(|source| {
        Error::new(Kind::Invalid, "the prefix cannot be a key").with("url", url.as_str()).with_source(source)
    })?;
    let store = s3::build(bucket, env)?;
    let shown = format!("s3://{bucket}/{prefix}").trim_end_matches('/').to_owned();
    Ok(Opened { url: shown, store: Arc::new(PrefixStore::new(store, prefix)), has_bucket: true })
}
