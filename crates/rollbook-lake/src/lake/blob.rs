//! Content-addressed objects: `_rollbook/blobs/sha256/ab/cdef…`.

use bytes::Bytes;

use crate::error::Result;
use crate::lake::Lake;

impl Lake {
    /// Stores bytes under their digest and returns it; storing them again changes nothing.
    pub async fn put_blob(&self, bytes: impl Into<Bytes> + Send) -> Result<String> {
        self.inner.log.put_blob(bytes.into()).await
    }

    /// Reads the bytes of a digest (`sha256:…`) and checks them against it.
    pub async fn blob(&self, digest: &str) -> Result<Bytes> {
        self.inner.log.blob(digest).await
    }
}
