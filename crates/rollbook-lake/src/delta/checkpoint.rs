//! Delta checkpoints, so that other readers open a long log quickly. Rollbook itself never reads them.

use std::sync::Arc;

use deltalake_core::logstore::{StorageConfig, default_logstore};
use deltalake_core::protocol::checkpoints::create_checkpoint;
use deltalake_core::{DeltaTable, DeltaTableError};
use object_store::ObjectStore;
use object_store::path::Path;
use object_store::prefix::PrefixStore;
use url::Url;

use crate::error::{Error, Kind, Result};

/// A checkpoint is written at every multiple of this many versions.
pub(crate) const CHECKPOINT_EVERY: u64 = 100;

/// Writes the checkpoint of a table's version through deltalake's own function.
pub(crate) async fn checkpoint(store: &Arc<dyn ObjectStore>, table: &str, version: u64) -> Result<()> {
    // Our store is rooted at the lake, so the URL only has to name the table below that root. The kernel takes listings
    // as sorted, which a local folder's are not; it sorts them itself for directory buckets, which this name looks like.
    let url = Url::parse(&format!("s3://lake--x-s3/{table}/"))
        .map_err(|source| Error::new(Kind::Invalid, "the table's name cannot be in a URL").with_source(source))?;
    let below: Arc<dyn ObjectStore> = Arc::new(PrefixStore::new(Arc::clone(store), Path::from(table)));
    let log = default_logstore(below, Arc::clone(store), &url, &StorageConfig::default());
    let mut delta = DeltaTable::new(log);
    let failed = |source: DeltaTableError| {
        Error::new(Kind::Unavailable, "a Delta checkpoint could not be written")
            .with("table", table)
            .with("version", version)
            .with("cause", &source)
            .with_source(source)
    };
    delta.load_version(version).await.map_err(failed)?;
    create_checkpoint(&delta, None).await.map_err(failed)
}
