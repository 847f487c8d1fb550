//! An object store that counts its requests, so that the cost of a write can be said in requests.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, OBJECT_STORE_COALESCE_DEFAULT, ObjectMeta,
    ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, RenameOptions, Result,
};

/// Requests made, by verb. A listing counts once however many pages it has; a multipart upload counts once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RequestCounts {
    /// GET, ranges included.
    pub get: u64,
    /// PUT.
    pub put: u64,
    /// LIST.
    pub list: u64,
    /// HEAD.
    pub head: u64,
    /// DELETE.
    pub delete: u64,
}

impl RequestCounts {
    /// Returns what was added since `earlier`.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self {
            get: self.get - earlier.get,
            put: self.put - earlier.put,
            list: self.list - earlier.list,
            head: self.head - earlier.head,
            delete: self.delete - earlier.delete,
        }
    }

    /// Returns all requests together.
    pub fn total(self) -> u64 {
        self.get + self.put + self.list + self.head + self.delete
    }
}

#[derive(Default)]
struct Counters {
    get: AtomicU64,
    put: AtomicU64,
    list: AtomicU64,
    head: AtomicU64,
    delete: AtomicU64,
    read: AtomicU64,
}

/// Wraps a store rooted at the lake and counts.
pub(crate) struct CountingStore {
    inner: Arc<dyn ObjectStore>,
    counters: Arc<Counters>,
}

impl CountingStore {
    pub(crate) fn new(inner: Arc<dyn ObjectStore>) -> Self {
        Self { inner, counters: Arc::default() }
    }

    pub(crate) fn counts(&self) -> RequestCounts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        RequestCounts {
            get: read(&self.counters.get),
            put: read(&self.counters.put),
            list: read(&self.counters.list),
            head: read(&self.counters.head),
            delete: read(&self.counters.delete),
        }
    }

    /// Returns the bytes that were asked for, of objects as they lie in the store.
    pub(crate) fn bytes_read(&self) -> u64 {
        self.counters.read.load(Ordering::Relaxed)
    }
}

/// How many requests a store over HTTP makes of ranges: it reads small gaps along.
fn requests_of(ranges: &[Range<u64>]) -> u64 {
    let mut sorted: Vec<&Range<u64>> = ranges.iter().collect();
    sorted.sort_by_key(|range| range.start);
    let mut requests = 0;
    let mut end = None;
    for range in sorted {
        match end {
            Some(last) if range.start.saturating_sub(last) <= OBJECT_STORE_COALESCE_DEFAULT => {}
            _ => requests += 1,
        }
        end = Some(end.unwrap_or_default().max(range.end));
    }
    requests
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl fmt::Display for CountingStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl fmt::Debug for CountingStore {
    // Display, not Debug, of what is below: its settings hold secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CountingStore({})", self.inner)
    }
}

#[async_trait]
impl ObjectStore for CountingStore {
    async fn put_opts(&self, location: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        count(&self.counters.put);
        self.inner.put_opts(location, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        count(&self.counters.put);
        self.inner.put_multipart_opts(location, options).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let head = options.head;
        count(if head { &self.counters.head } else { &self.counters.get });
        let result = self.inner.get_opts(location, options).await?;
        if !head {
            self.counters.read.fetch_add(result.range.end - result.range.start, Ordering::Relaxed);
        }
        Ok(result)
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.counters.get.fetch_add(requests_of(ranges), Ordering::Relaxed);
        let bytes: u64 = ranges.iter().map(|range| range.end.saturating_sub(range.start)).sum();
        self.counters.read.fetch_add(bytes, Ordering::Relaxed);
        self.inner.get_ranges(location, ranges).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let counters = Arc::clone(&self.counters);
        self.inner.delete_stream(locations.inspect_ok(move |_| count(&counters.delete)).boxed())
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        count(&self.counters.list);
        self.inner.list(prefix)
    }

    fn list_with_offset(&self, prefix: Option<&Path>, offset: &Path) -> BoxStream<'static, Result<ObjectMeta>> {
        count(&self.counters.list);
        self.inner.list_with_offset(prefix, offset)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        count(&self.counters.list);
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        count(&self.counters.put);
        self.inner.copy_opts(from, to, options).await
    }

    async fn rename_opts(&self, from: &Path, to: &Path, options: RenameOptions) -> Result<()> {
        count(&self.counters.put);
        self.inner.rename_opts(from, to, options).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_with_small_gaps_are_one_request() {
        let mib = 1 << 20;
        assert_eq!(requests_of(&[]), 0);
        // The gap between the first two is 1 MiB, which is read along; the one before the last is a byte more.
        assert_eq!(requests_of(&[mib + 10..mib + 20, 0..10]), 1);
        assert_eq!(requests_of(&[0..10, mib + 10..mib + 20, 2 * mib + 21..2 * mib + 30]), 2);
        // A range that holds the next one ends after it.
        assert_eq!(requests_of(&[0..3 * mib, 5..10, 3 * mib + 1..3 * mib + 2]), 1);
    }
}
