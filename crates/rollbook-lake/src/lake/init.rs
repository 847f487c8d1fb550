//! Makes a lake: proves the store, then writes the identity and snapshot 0. Killed anywhere, it can be run again.

use std::sync::Arc;

use futures::future::join_all;
use object_store::path::Path;
use object_store::{Error as StoreError, ObjectStore, ObjectStoreExt, PutMode, PutOptions};
use rollbook_schema::{FORMAT_VERSION, tables};
use serde_json::json;
use uuid::Uuid;

use crate::commit::compose::{Signature, compose};
use crate::commit::publish::Put;
use crate::commit::{Change, Intent};
use crate::delta::foreign::{ForeignCommit, ForeignReason};
use crate::error::{Error, Kind, Result};
use crate::lake::open::{FORMAT, Identity, check_bucket, new_lake, read_identity};
use crate::lake::{Lake, LakeOptions};
use crate::snapshot::{Log, fold, place};
use crate::store::{Folder, open_store, store_error};

/// Writers that race for one key in the probe: a store may check the condition and still not hold it under a race.
const PROBE_RACERS: usize = 4;

impl Lake {
    /// Makes a lake at a URL and opens it.
    pub async fn init(url: &str, options: LakeOptions) -> Result<Self> {
        let opened = open_store(url, &options.env, Folder::Create)?;
        if opened.has_bucket {
            check_bucket(&opened.store, &opened.url).await?;
        }
        Self::init_with_store(&opened.url, opened.store, options).await
    }

    /// Makes a lake on a store that is already rooted where the lake shall lie; `url` is what errors show.
    pub async fn init_with_store(url: &str, store: Arc<dyn ObjectStore>, options: LakeOptions) -> Result<Self> {
        let identity = match read_identity(&store, url).await {
            Ok(identity) => identity,
            Err(error) if error.kind() == Kind::NotFound => {
                refuse_tables(&store).await?;
                probe(&store).await?;
                write_identity(&store, url, (options.clock)()).await?
            }
            Err(error) => return Err(error),
        };
        let lake = new_lake(url, store, identity.lake_id, options);
        match lake.snapshot().await {
            Ok(head) => lake.resume(head.n, &head).await?,
            Err(error) if error.kind() == Kind::NotFound => lake.publish_first().await?,
            Err(error) => return Err(error),
        }
        Ok(lake)
    }

    /// Publishes snapshot 0 with every table, and applies it.
    async fn publish_first(&self) -> Result<()> {
        let nonce = Uuid::new_v4().to_string();
        let intent = Intent::append("init");
        let author = &self.inner.options.author;
        let sign = Signature { nonce: &nonce, author, now_us: self.now_us(), intent: &intent };
        let changes: Vec<Change> =
            tables().iter().map(|table| Change { table: table.name.clone(), ..Change::default() }).collect();
        let mut composed = compose(None, &sign, &changes)?;
        let bytes = composed.seal(&self.inner.log).await?;
        match self.put_entry(0, bytes, &nonce).await? {
            Put::Mine => {
                let mut snapshot = fold(None, &composed.entry, &composed.texts)?;
                let warnings = self.apply(&composed.entry, &composed.texts, &mut snapshot).await;
                self.remember(&snapshot);
                match warnings.into_iter().next() {
                    None => Ok(()),
                    Some(warning) => Err(Error::new(Kind::Unavailable, "the lake's tables are not all there yet")
                        .with("cause", warning)
                        .with_remedy("run `rollbook init` again")),
                }
            }
            // Another init was faster; together they made one lake.
            Put::Lost => self.apply_pending().await,
        }
    }

    /// Finishes an init that was killed after it published; a lake in use is refused.
    async fn resume(&self, n: u64, head: &crate::snapshot::Snapshot) -> Result<()> {
        let before = self.requests().put;
        if n == 0 {
            self.finish(head, None).await?;
        }
        if n == 0 && self.requests().put > before {
            return Ok(());
        }
        Err(Error::new(Kind::Conflict, "this is already a lake")
            .with("url", self.url())
            .with("lake_id", self.id())
            .with_remedy("use it as it is, or name an empty place"))
    }
}

/// A Delta table that lies here already is somebody's: its log could not be ours.
async fn refuse_tables(store: &Arc<dyn ObjectStore>) -> Result<()> {
    let looks = tables().iter().map(|table| async move {
        let path = place::delta_commit(&table.name, 0);
        match store.head(&path).await {
            Ok(_) => {
                Err(ForeignCommit { table: table.name.clone(), version: 0, reason: ForeignReason::Beyond }.into_error())
            }
            Err(StoreError::NotFound { .. }) => Ok(()),
            Err(error) => Err(store_error(error, "look at", path.as_ref())),
        }
    });
    join_all(looks).await.into_iter().collect()
}

async fn write_identity(store: &Arc<dyn ObjectStore>, url: &str, now_us: i64) -> Result<Identity> {
    let text = json!({
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "lake_id": Uuid::new_v4().to_string(),
        "created_at": now_us,
    });
    let log = Log { store: Arc::clone(store), lake_id: String::new() };
    // Where another init was faster, its identity stands.
    log.put_if_absent(&place::lake(), format!("{text}\n")).await?;
    read_identity(store, url).await
}

/// Proves that the store honours create-if-absent: the second writer of a key must be told, and must change nothing.
async fn probe(store: &Arc<dyn ObjectStore>) -> Result<()> {
    let key = Path::from(format!("_rollbook/probe/{}", Uuid::new_v4()));
    let result = probe_key(store, &key).await;
    // Best effort: a probe left behind is an object nothing names.
    drop(store.delete(&key).await);
    result?;
    let key = Path::from(format!("_rollbook/probe/{}", Uuid::new_v4()));
    let result = probe_race(store, &key).await;
    drop(store.delete(&key).await);
    result
}

async fn probe_key(store: &Arc<dyn ObjectStore>, key: &Path) -> Result<()> {
    if !create(store, key, "first").await? {
        return Err(ignored("a key that did not exist was reported as taken"));
    }
    if create(store, key, "second").await? {
        return Err(ignored("a second writer was told that it created a key which already existed"));
    }
    let read = async { store.get(key).await?.bytes().await };
    let kept = read.await.map_err(|error| store_error(error, "read", key.as_ref()))?;
    if kept != "first".as_bytes() {
        return Err(ignored("a second writer replaced a key which already existed"));
    }
    Ok(())
}

async fn probe_race(store: &Arc<dyn ObjectStore>, key: &Path) -> Result<()> {
    let racers = (0..PROBE_RACERS).map(|racer| {
        let body = format!("racer {racer}");
        async move { create(store, key, &body).await }
    });
    let created: Vec<bool> = join_all(racers).await.into_iter().collect::<Result<_>>()?;
    match created.into_iter().filter(|&is_created| is_created).count() {
        1 => Ok(()),
        _ => Err(ignored("several writers at once were told that they created the same key")),
    }
}

async fn create(store: &Arc<dyn ObjectStore>, key: &Path, body: &str) -> Result<bool> {
    let options = PutOptions::from(PutMode::Create);
    match store.put_opts(key, body.to_owned().into(), options).await {
        Ok(_) => Ok(true),
        Err(StoreError::AlreadyExists { .. }) => Ok(false),
        Err(StoreError::NotImplemented { .. } | StoreError::NotSupported { .. }) => {
            Err(ignored("the store says that it cannot create a key only if it is absent"))
        }
        Err(error) => Err(store_error(error, "write", key.as_ref())),
    }
}

fn ignored(what: &str) -> Error {
    Error::new(Kind::Unsupported, "the store does not honour create-if-absent (PUT with If-None-Match: *)")
        .with("probe", what)
        .with_remedy(
            "a lake here would lose writes, so none was made. AWS S3, Cloudflare R2, Ceph and SeaweedFS honour it; \
             Garage and the JuiceFS gateway ignore it silently. Use a store that does, or a local folder",
        )
}
