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
    let Some(Message::Chunk(first)) = chunks.recv().await else {
        return Err(broken_off());
    };
    let second = match chunks.recv().await {
        Some(Message::Chunk(second)) => second,
        Some(Message::End) => {
            let hasher = hash(Sha256::new(), first.clone()).await?;
            let bytes = first.len() as u64;
            store.put(&place, first.into()).await.map_err(|source| stored(source, "write", &path))?;
            return Ok(Written { bytes, sha256: hex(hasher.finalize()) });
        }
        None => return Err(broken_off()),
    };
    let upload = store.put_multipart(&place).await.map_err(|source| stored(source, "write", &path))?;
    let mut parts = Parts { upload, puts: JoinSet::new(), hasher: Sha256::new(), bytes: 0, path };
    match parts.take([first, second], chunks).await {
        Ok(written) => Ok(written),
        Err(error) => {
            // The first error is the one to tell; an unfinished upload is no object either way.
            drop(parts.upload.abort().await);
            Err(error)
        }
    }
}

/// An object on its way in parts.
struct Parts {
    upload: Box<dyn MultipartUpload>,
    puts: JoinSet<object_store::Result<()>>,
    hasher: Sha256,
    bytes: u64,
    path: String,
}

impl Parts {
    async fn take(&mut self, begun: [Bytes; 2], mut chunks: Receiver<Message>) -> Result<Written> {
        for chunk in begun {
            self.put(chunk).await?;
        }
        loop {
            match chunks.recv().await {
                Some(Message::Chunk(chunk)) => self.put(chunk).await?,
                Some(Message::End) => break,
                None => return Err(broken_off()),
            }
        }
        while !self.puts.is_empty() {
            self.arrived().await?;
        }
        self.upload.complete().await.map_err(|source| stored(source, "write", &self.path))?;
        Ok(Written { bytes: self.bytes, sha256: hex(std::mem::take(&mut self.hasher).finalize()) })
    }

    async fn put(&mut self, chunk: Bytes) -> Result<()> {
        while self.puts.len() >= IN_FLIGHT {
            self.arrived().await?;
        }
        self.bytes += chunk.len() as u64;
        self.puts.spawn(self.upload.put_part(chunk.clone().into()));
        self.hasher = hash(std::mem::take(&mut self.hasher), chunk).await?;
        Ok(())
    }

    /// Waits for one part.
    async fn arrived(&mut self) -> Result<()> {
        match self.puts.join_next().await {
            None | Some(Ok(Ok(()))) => Ok(()),
            Some(Ok(Err(source))) => Err(stored(source, "write", &self.path)),
            Some(Err(source)) => Err(broken_off().caused_by(source)),
        }
    }
}

async fn hash(mut hasher: Sha256, chunk: Bytes) -> Result<Sha256> {
    let hashed = spawn_blocking(move || {
        hasher.update(&chunk);
        hasher
    });
    hashed.await.map_err(|source| broken_off().caused_by(source))
}

#[cfg(test)]
mod tests {
    use object_store::local::LocalFileSystem;

    use super::*;
    use crate::export::part::sha256_hex;

    fn chunks(count: u8) -> Vec<Bytes> {
        (0..count).map(|n| Bytes::from(vec![n; 1000 + usize::from(n)])).collect()
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn one_chunk_or_many_become_one_object() {
        let folder = tempfile::tempdir().unwrap();
        let store: Arc<dyn ObjectStore> = Arc::new(LocalFileSystem::new_with_prefix(folder.path()).unwrap());
        for count in [1, 2, 9] {
            let mut upload = Upload::start(&store, "part");
            for chunk in chunks(count) {
                upload.send(chunk).await.unwrap();
            }
            let written = upload.end().await.unwrap().await.unwrap().unwrap();
            let bytes = std::fs::read(folder.path().join("part")).unwrap();
            assert_eq!(bytes, chunks(count).concat());
            assert_eq!((written.bytes, written.sha256), (bytes.len() as u64, sha256_hex(&bytes)));
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn an_upload_that_is_given_up_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let store: Arc<dyn ObjectStore> = Arc::new(LocalFileSystem::new_with_prefix(folder.path()).unwrap());
        for count in [0, 1, 2, 9] {
            let mut upload = Upload::start(&store, "part");
            for chunk in chunks(count) {
                upload.send(chunk).await.unwrap();
            }
            upload.abort().await;
            assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn what_the_store_refuses_is_told() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("part/below")).unwrap();
        let store: Arc<dyn ObjectStore> = Arc::new(LocalFileSystem::new_with_prefix(folder.path()).unwrap());
        let mut upload = Upload::start(&store, "part");
        upload.send(chunks(1).remove(0)).await.unwrap();
        let told = match upload.end().await {
            Ok(task) => task.await.unwrap().unwrap_err(),
            Err(error) => error,
        };
        assert!(told.to_string().contains("cannot write part"), "{told}");
    }
}
