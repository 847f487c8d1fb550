//! Verification of an export: the bytes that lie there against the manifest.

use std::collections::BTreeMap;
use std::fmt;

use futures::TryStreamExt;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use sha2::{Digest, Sha256};

use crate::error::{Error, Result};
use crate::export::manifest::{MANIFEST, MANIFEST_FORMAT, Manifest};
use crate::export::run::stored;
use crate::recipe::hex;

/// A file that is not what the manifest says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Name below the destination.
    pub path: String,
    /// What is wrong with it.
    pub message: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.message)
    }
}

/// Reads the manifest of an export and hashes every file it names; returns what differs.
pub async fn verify(dest: &str, env: &BTreeMap<String, String>) -> Result<(Manifest, Vec<Fault>)> {
    let (url, store) = rollbook_lake::open_destination(dest, env, false)?;
    let manifest = read_manifest(store.as_ref(), &url)
        .await?
        .ok_or_else(|| Error::not_found(format!("{url} holds no {MANIFEST}: it is no export, or an unfinished one")))?;
    let mut faults = Vec::new();
    for file in &manifest.files {
        let fault = |message: String| Fault { path: file.path.clone(), message };
        match hash(store.as_ref(), &file.path).await? {
            None => faults.push(fault("is missing".to_owned())),
            Some((bytes, _)) if bytes != file.bytes => {
                faults.push(fault(format!("has {bytes} bytes, the manifest says {}", file.bytes)));
            }
            Some((_, sha256)) if sha256 != file.sha256 => {
                faults.push(fault(format!("has sha256 {sha256}, the manifest says {}", file.sha256)));
            }
            Some(_) => {}
        }
    }
    Ok((manifest, faults))
}

async fn hash(store: &dyn ObjectStore, path: &str) -> Result<Option<(u64, String)>> {
    let found = match store.get(&Path::from(path)).await {
        Ok(found) => found,
        Err(object_store::Error::NotFound { .. }) => return Ok(None),
        Err(source) => return Err(stored(source, "read", path)),
    };
    let mut hasher = Sha256::new();
    let mut bytes = 0;
    let mut stream = found.into_stream();
    while let Some(chunk) = stream.try_next().await.map_err(|source| stored(source, "read", path))? {
        bytes += chunk.len() as u64;
        hasher.update(&chunk);
    }
    Ok(Some((bytes, hex(hasher.finalize()))))
}

/// Reads the manifest of a destination, if it has one.
pub(super) async fn read_manifest(store: &dyn ObjectStore, url: &str) -> Result<Option<Manifest>> {
    let bytes = match store.get(&Path::from(MANIFEST)).await {
        Ok(found) => found.bytes().await.map_err(|source| stored(source, "read", MANIFEST))?,
        Err(object_store::Error::NotFound { .. }) => return Ok(None),
        Err(source) => return Err(stored(source, "read", MANIFEST)),
    };
    let strange =
        |cause: String| Error::corrupt(format!("{url} holds a {MANIFEST} that is no manifest of an export: {cause}"));
    let json: serde_json::Value = serde_json::from_slice(&bytes).map_err(|error| strange(error.to_string()))?;
    match json.get("manifest_format").and_then(serde_json::Value::as_u64) {
        Some(format) if format > u64::from(MANIFEST_FORMAT) => Err(Error::unsupported(format!(
            "{url} was exported by a newer Rollbook (manifest format {format}, known is {MANIFEST_FORMAT}): upgrade"
        ))),
        Some(_) => serde_json::from_value(json).map(Some).map_err(|error| strange(error.to_string())),
        None => Err(strange("it has no manifest_format".to_owned())),
    }
}
