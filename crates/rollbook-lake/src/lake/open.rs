//! Opens a lake and says precisely why it cannot.

use std::sync::{Arc, Mutex};

use futures::StreamExt;
use object_store::ObjectStore;
use rollbook_schema::FORMAT_VERSION;
use serde::Deserialize;

use crate::error::{Error, Kind, Result};
use crate::lake::{Inner, Lake, LakeOptions};
use crate::snapshot::{Log, place};
use crate::store::{CountingStore, Folder, open_store, store_error};

/// Name of the format in `lake.json`.
pub(super) const FORMAT: &str = "rollbook";

/// What `lake.json` says.
#[derive(Deserialize)]
pub(super) struct Identity {
    format: String,
    format_version: u32,
    #[serde(default)]
    pub(super) lake_id: String,
}

impl Lake {
    /// Opens the lake at a URL.
    pub async fn open(url: &str, options: LakeOptions) -> Result<Self> {
        let opened = open_store(url, &options.env, Folder::MustExist)?;
        let found = read_identity(&opened.store, &opened.url).await;
        if opened.has_bucket && matches!(&found, Err(error) if error.kind() == Kind::NotFound) {
            // Stores answer alike for a missing key and a missing bucket; a listing tells them apart.
            check_bucket(&opened.store, &opened.url).await?;
        }
        Ok(new_lake(&opened.url, opened.store, found?.lake_id, options))
    }

    /// Opens a lake on a store that is already rooted at it; `url` is what errors show.
    pub async fn open_with_store(url: &str, store: Arc<dyn ObjectStore>, options: LakeOptions) -> Result<Self> {
        let identity = read_identity(&store, url).await?;
        Ok(new_lake(url, store, identity.lake_id, options))
    }
}

pub(super) fn new_lake(url: &str, store: Arc<dyn ObjectStore>, lake_id: String, options: LakeOptions) -> Lake {
    let store = Arc::new(CountingStore::new(store));
    let log = Log { store: Arc::clone(&store) as Arc<dyn ObjectStore>, lake_id: lake_id.clone() };
    let inner = Inner { url: url.to_owned(), id: lake_id, store, log, options, newest: Mutex::new(None) };
    Lake { inner: Arc::new(inner) }
}

/// Reads and checks `lake.json`.
pub(super) async fn read_identity(store: &Arc<dyn ObjectStore>, url: &str) -> Result<Identity> {
    let log = Log { store: Arc::clone(store), lake_id: String::new() };
    let bytes = log.get(&place::lake()).await.map_err(|error| error.with("url", url))?.ok_or_else(|| {
        Error::new(Kind::NotFound, "this is not a Rollbook lake: there is no _rollbook/lake.json")
            .with("url", url)
            .with_remedy("check the URL, or make a lake with `rollbook init`")
    })?;
    let damaged = || Error::new(Kind::Corrupt, "_rollbook/lake.json is not Rollbook's").with("url", url);
    let identity: Identity = serde_json::from_slice(&bytes).map_err(|source| damaged().with_source(source))?;
    if identity.format != FORMAT {
        return Err(damaged().with("format", identity.format));
    }
    if identity.format_version > FORMAT_VERSION {
        return Err(Error::new(Kind::Unsupported, "the lake's format is newer than this Rollbook reads")
            .with("url", url)
            .with("format_version", identity.format_version)
            .with("reads", FORMAT_VERSION)
            .with_remedy("upgrade rollbook"));
    }
    if identity.lake_id.is_empty() {
        return Err(damaged().with("missing", "lake_id"));
    }
    Ok(identity)
}

/// Lists one key, which fails with its own error where the bucket is missing or closed.
pub(super) async fn check_bucket(store: &Arc<dyn ObjectStore>, url: &str) -> Result<()> {
    match store.list(None).next().await {
        Some(Err(error)) => Err(store_error(error, "list", "").with("url", url)),
        Some(Ok(_)) | None => Ok(()),
    }
}
