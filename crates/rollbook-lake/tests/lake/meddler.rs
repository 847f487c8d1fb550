//! A store whose PUTs meet a fate: lost answers, false answers, ignored conditions, the death of the process.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use futures::stream::BoxStream;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, PutMode,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};

/// What becomes of one PUT.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It is done.
    Pass,
    /// It is done, but the answer is lost.
    LoseAnswer,
    /// It is not done, and the answer says that the key is taken, as S3 may with 409.
    SayTaken,
    /// The condition is ignored.
    Overwrite,
    /// The condition is kept, but the answer is always success.
    SayCreated,
    /// The process dies before it.
    Die,
}

pub(crate) struct Meddler {
    inner: Arc<dyn ObjectStore>,
    decide: Box<dyn Fn(&Path) -> Fate + Send + Sync>,
}

impl Meddler {
    pub(crate) fn new(inner: Arc<dyn ObjectStore>, decide: impl Fn(&Path) -> Fate + Send + Sync + 'static) -> Self {
        Self { inner, decide: Box::new(decide) }
    }
}

impl fmt::Display for Meddler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Meddler({})", self.inner)
    }
}

impl fmt::Debug for Meddler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

fn taken(path: &Path) -> Error {
    Error::AlreadyExists { path: path.to_string(), source: "409".into() }
}

#[async_trait]
impl ObjectStore for Meddler {
    async fn put_opts(&self, path: &Path, payload: PutPayload, mut options: PutOptions) -> Result<PutResult> {
        let fate = (self.decide)(path);
        match fate {
            Fate::Die => std::process::abort(),
            Fate::SayTaken => return Err(taken(path)),
            Fate::Overwrite => options.mode = PutMode::Overwrite,
            Fate::Pass | Fate::LoseAnswer | Fate::SayCreated => {}
        }
        let answer = self.inner.put_opts(path, payload, options).await;
        match (fate, answer) {
            (Fate::LoseAnswer, _) => Err(Error::Generic { store: "Meddler", source: "the answer was lost".into() }),
            (Fate::SayCreated, Err(Error::AlreadyExists { .. })) => Ok(PutResult { e_tag: None, version: None }),
            (_, answer) => answer,
        }
    }

    async fn put_multipart_opts(&self, path: &Path, options: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(path, options).await
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> Result<GetResult> {
        self.inner.get_opts(path, options).await
    }

    fn delete_stream(&self, paths: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(paths)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}
