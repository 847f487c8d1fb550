//! The commit itself: one put-if-absent, read back whenever its outcome is not certain.

use std::time::Duration;

use object_store::{Error as StoreError, ObjectStore, PutMode, PutOptions};
use tokio::time::Instant;
use uuid::Uuid;

use crate::commit::compose::{Composed, Signature, compose};
use crate::commit::{Intent, Outcome, Prepare};
use crate::error::{Error, Kind, Result};
use crate::lake::Lake;
use crate::snapshot::{Snapshot, fold, place};
use crate::store::store_error;

/// Races lost before a writer gives up.
const RACES_MAX: u32 = 100;
/// Attempts at one number while its outcome is unknown.
const UNKNOWN_MAX: u32 = 5;
/// Time after which no further attempt at one number begins.
const UNKNOWN_TIME: Duration = Duration::from_secs(30);
const BACKOFF_FIRST: Duration = Duration::from_millis(10);
const BACKOFF_LAST: Duration = Duration::from_millis(1500);

/// Who holds the number we tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Put {
    Mine,
    Lost,
}

impl Lake {
    /// Publishes a write: in all tables, or in none.
    ///
    /// `base` is what the caller read. Where other writers were faster, `prepare` is asked again with the new head. A
    /// source that is already in is not added twice. Once the entry is published, nothing that fails undoes it.
    pub async fn commit(&self, base: Snapshot, intent: Intent, prepare: &mut dyn Prepare) -> Result<Outcome> {
        let nonce = Uuid::new_v4().to_string();
        let mut head = base;
        let mut won = Vec::new();
        self.finish(&head, None).await?;
        if let Some(n) = self.published_source(&intent).await? {
            return Ok(Outcome::AlreadyIn { n });
        }
        for attempt in 0..RACES_MAX {
            let mut changes = prepare.changes(&head, &won).await?;
            changes.retain(|change| !change.add.is_empty() || !change.remove.is_empty());
            if changes.is_empty() {
                return Ok(Outcome::Nothing);
            }
            let author = &self.inner.options.author;
            let sign = Signature { nonce: &nonce, author, now_us: self.now_us(), intent: &intent };
            let mut composed = compose(Some(&head), &sign, &changes)?;
            self.refuse_foreign(&head, &composed.entry).await?;
            let bytes = composed.seal(&self.inner.log).await?;
            if self.put_entry(composed.entry.n, bytes, &nonce).await? == Put::Mine {
                return self.after(head, &composed).await;
            }
            backoff(attempt).await;
            (head, won) = self.inner.log.advance(head).await?;
            self.remember(&head);
            let digest = intent.source_digest.as_ref();
            if let Some(same) = won.iter().find(|entry| digest.is_some() && entry.source_digest.as_ref() == digest) {
                return Ok(Outcome::AlreadyIn { n: same.n });
            }
            // Each winner finished the one before it, so the last alone may still be in the making.
            self.finish(&head, won.last()).await?;
        }
        Err(Error::new(Kind::Conflict, "other writers were faster every time")
            .with("attempts", RACES_MAX)
            .with_remedy("run it again when fewer writers are at work"))
    }

    async fn published_source(&self, intent: &Intent) -> Result<Option<u64>> {
        match &intent.source_digest {
            Some(digest) => self.source_entry(digest).await,
            None => Ok(None),
        }
    }

    async fn after(&self, head: Snapshot, composed: &Composed) -> Result<Outcome> {
        let n = composed.entry.n;
        let mut snapshot = fold(Some(head), &composed.entry, &composed.texts)?;
        let warnings = self.apply(&composed.entry, &composed.texts, &mut snapshot).await;
        self.remember(&snapshot);
        Ok(Outcome::Published { n, warnings })
    }

    /// Creates entry `n`, or learns who holds it.
    pub(crate) async fn put_entry(&self, n: u64, bytes: Vec<u8>, nonce: &str) -> Result<Put> {
        let path = place::entry(n);
        let bytes = bytes::Bytes::from(bytes);
        let mut last = None;
        let started = Instant::now();
        for attempt in 0..UNKNOWN_MAX {
            let options = PutOptions::from(PutMode::Create);
            match self.inner.store.put_opts(&path, bytes.clone().into(), options).await {
                Ok(_) => return Ok(Put::Mine),
                Err(error) if is_certain(&error) => {
                    return Err(store_error(error, "write", path.as_ref()));
                }
                Err(error) => last = Some(error),
            }
            // A retry inside the store may meet its own first success, a time-out may hide one, and a server may
            // answer 409 having written nothing: only the object itself can tell.
            match self.inner.log.entry(n).await {
                Ok(Some(entry)) if entry.nonce == nonce => return Ok(Put::Mine),
                Ok(Some(_)) => return Ok(Put::Lost),
                Ok(None) => {}
                Err(error) if error.kind() == Kind::Unavailable => {}
                Err(error) => return Err(error),
            }
            if started.elapsed() > UNKNOWN_TIME {
                break;
            }
            backoff(attempt + 2).await;
        }
        let unknown = Error::new(Kind::Unavailable, "whether the write was published could not be learned")
            .with("snapshot", n)
            .with_remedy("run it again: a source that is in is not added twice");
        Err(match last {
            Some(source) => unknown.with("cause", &source).with_source(source),
            None => unknown,
        })
    }
}

/// Whether an error says that nothing was written and nothing will be.
fn is_certain(error: &StoreError) -> bool {
    matches!(
        error,
        StoreError::PermissionDenied { .. }
            | StoreError::Unauthenticated { .. }
            | StoreError::NotSupported { .. }
            | StoreError::NotImplemented { .. }
            | StoreError::InvalidPath { .. }
            | StoreError::NotFound { .. }
    )
}

/// Waits twice as long each time, between half and one and a half of it, so that racers spread out.
async fn backoff(attempt: u32) {
    let full = BACKOFF_FIRST.saturating_mul(1 << attempt.min(8)).min(BACKOFF_LAST);
    let jitter = u32::try_from(Uuid::new_v4().as_u128() % 1000).unwrap_or(500);
    tokio::time::sleep(full.mul_f64(0.5 + f64::from(jitter) / 1000.0)).await;
}
