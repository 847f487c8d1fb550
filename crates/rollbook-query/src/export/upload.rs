//! A part on its way to the store: hashed by one thread while others write.

use std::sync::Arc;

use bytes::Bytes;
use object_store::path::Path;
use object_store::{MultipartUpload, ObjectStore, ObjectStoreExt};
use sha2::{Digest, Sha256};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::task::{JoinHandle, JoinSet, spawn_blocking};

use crate::error::{Error, Result};
use crate::export::run::stored;
use crate::recipe::hex;

/// Chunks that wait for the upload.
const WAITING: usize = 2;
/// Chunks that are written at once.
const IN_FLIGHT: usize = 4;

/// Size and hex digest of a part that is written.
#[derive(Debug)]
pub(super) struct Written {
    pub(super) bytes: u64,
    pub(super) sha256: String,
}

enum Message {
    Chunk(Bytes),
    End,
}

/// An upload that takes chunks. Dropped before its end it leaves no object.
pub(super) struct Upload {
    chunks: Sender<Message>,
    task: JoinHandle<Result<Written>>,
}

impl Upload {
    pub(super) fn start(store: &Arc<dyn ObjectStore>, path: &str) -> Self {
        let (chunks, receiver) = channel(WAITING);
        Self { chunks, task: tokio::spawn(run(Arc::clone(store), path.to_owned(), receiver)) }
    }

    /// Sends a chunk; fails with what stopped the upload.
    pub(super) async fn send(&mut self, chunk: Bytes) -> Result<()> {
        if self.chunks.send(Message::Chunk(chunk)).await.is_ok() { Ok(()) } else { Err(self.fault().await) }
    }

    /// Says that all is sent; the task gives what was written.
    pub(super) async fn end(mut self) -> Result<JoinHandle<Result<Written>>> {
        if self.chunks.send(Message::End).await.is_ok() { Ok(self.task) } else { Err(self.fault().await) }
    }

    /// Gives up, and waits until what was sent is gone.
    pub(super) async fn abort(self) {
        drop(self.chunks);
        // It says that it was broken off.
        drop(self.task.await);
    }

    async fn fault(&mut self) -> Error {
        match (&mut self.task).await {
            Ok(Err(error)) => error,
            Ok(Ok(_)) => Error::corrupt("an upload ended before its part"),
            Err(source) => broken_off().caused_by(source),
        }
    }
}

fn broken_off() -> Error {
    Error::corrupt("writing a part broke off")
}

async fn run(store: Arc<dyn ObjectStore>, path: String, mut chunks: Receiver<Message>) -> Result<Written> {
    let place = Path::from(path.as_str());
    let fault = |source: object_store::Error| stored(source, "write", &path);
    let Some(Message::Chunk(first)) = chunks.recv().await else {
        return Err(broken_off());
    };
    let mut hasher = Sha256::new();
    let mut bytes = first.len() as u64;
    let second = match chunks.recv().await {
        Some(Message::End) => {
            hasher = hash(hasher, first.clone()).await?;
            store.put(&place, first.into()).await.map_err(fault)?;
            return Ok(Written { bytes, sha256: hex(hasher.finalize()) });
        }
        Some(Message::Chunk(second)) => {
            bytes += second.len() as u64;
            second
        }
        None => return Err(broken_off()),
    };
    let mut upload = store.put_multipart(&place).await.map_err(fault)?;
    let sent = async {
        let mut puts = JoinSet::new();
        let mut ready = vec![second, first];
        loop {
            let chunk = match ready.pop() {
                Some(chunk) => chunk,
                None => match chunks.recv().await {
                    Some(Message::Chunk(chunk)) => {
                        bytes += chunk.len() as u64;
                        chunk
                    }
                    Some(Message::End) => break,
                    None => return Err(broken_off()),
                },
            };
            while puts.len() >= IN_FLIGHT {
                arrived(puts.join_next().await, &path)?;
            }
            puts.spawn(upload.put_part(chunk.clone().into()));
            hasher = hash(std::mem::take(&mut hasher), chunk).await?;
        }
        while let Some(put) = puts.join_next().await {
            arrived(Some(put), &path)?;
        }
        upload.complete().await.map_err(fault)?;
        Ok(())
    };
    let sent = sent.await;
    if let Err(error) = sent {
        // The first error is the one to tell; an unfinished upload is no object either way.
        drop(upload.abort().await);
        return Err(error);
    }
    Ok(Written { bytes, sha256: hex(hasher.finalize()) })
}

async fn hash(mut hasher: Sha256, chunk: Bytes) -> Result<Sha256> {
    let hashed = spawn_blocking(move || {
        hasher.update(&chunk);
        hasher
    });
    hashed.await.map_err(|source| broken_off().caused_by(source))
}

type Put = std::result::Result<std::result::Result<(), object_store::Error>, tokio::task::JoinError>;

fn arrived(put: Option<Put>, path: &str) -> Result<()> {
    match put {
        None | Some(Ok(Ok(()))) => Ok(()),
        Some(Ok(Err(source))) => Err(stored(source, "write", path)),
        Some(Err(source)) => Err(broken_off().caused_by(source)),
    }
}
