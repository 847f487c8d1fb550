//! Writing an export: the build looked up, its rows in order, parts, then the manifest.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use datafusion::execution::SendableRecordBatchStream;
use futures::TryStreamExt;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};

use crate::error::{Error, ErrorKind, Result};
use crate::export::left_out::LeftOut;
use crate::export::lookup::{Build, find_build};
use crate::export::manifest::{MANIFEST, MANIFEST_FORMAT, Manifest};
use crate::export::parts::Parts;
use crate::export::rows::rows_of;
use crate::export::verify::read_manifest;
use crate::session::Session;

/// Format of an export's files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Parquet, zstd.
    Parquet,
    /// Arrow IPC file, uncompressed.
    Arrow,
}

impl Format {
    /// Returns the word for it, which is also the file extension.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Parquet => "parquet",
            Self::Arrow => "arrow",
        }
    }
}

impl FromStr for Format {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        [Self::Parquet, Self::Arrow]
            .into_iter()
            .find(|format| format.as_str() == text)
            .ok_or_else(|| Error::invalid(format!("there is no export format {text}; parquet and arrow are")))
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// How a build is exported.
#[derive(Debug, Clone)]
pub struct ExportOptions {
    /// Format of the files.
    pub format: Format,
    /// Whether a build with tokens of unstated origin may leave the lake.
    pub accept_assumed: bool,
    /// Whether rows go out although they are quarantined.
    pub include_quarantined: bool,
    /// Environment variables; `AWS_*` are read.
    pub env: BTreeMap<String, String>,
    /// A file ends at the first row after this many bytes.
    pub part_bytes: usize,
}

impl ExportOptions {
    /// Makes options for a format, with parts of 64 MB.
    pub fn new(format: Format) -> Self {
        Self { format, accept_assumed: false, include_quarantined: false, env: BTreeMap::new(), part_bytes: 64 << 20 }
    }
}

/// Turns an error of the destination's store into ours.
pub(super) fn stored(source: object_store::Error, what: &str, path: &str) -> Error {
    Error::new(ErrorKind::Unavailable, format!("cannot {what} {path}: {source}")).caused_by(source)
}

/// Exports a build, by its name or id, to a folder or an `s3://` URL.
pub async fn export(session: &Session, build: &str, dest: &str, options: &ExportOptions) -> Result<Manifest> {
    let build = find_build(session, build).await?;
    if build.accept_assumed && !options.accept_assumed {
        return Err(Error::invalid(format!(
            "build {} holds assumed tokens, whose source did not say where they come from: give --accept-assumed to export it",
            build.id
        )));
    }
    let (url, store) = rollbook_lake::open_destination(dest, &options.env, true)?;
    let stale = check_destination(store.as_ref(), &url, &build).await?;
    let mut left_out =
        if options.include_quarantined { LeftOut::default() } else { LeftOut::of(session, &build).await? };
    let mut parts = Parts::new(&store, &build, options)?;
    if let Err(error) = fill(&mut parts, rows_of(session, &build).await?, &mut left_out).await {
        parts.abort().await;
        return Err(error);
    }
    if parts.rows == 0 {
        let why = if left_out.count > 0 { format!(": {} are quarantined", left_out.count) } else { String::new() };
        let n = session.snapshot().n;
        return Err(Error::invalid(format!("build {} has no rows to export at snapshot {n}{why}", build.id)));
    }
    let manifest = Manifest {
        manifest_format: MANIFEST_FORMAT,
        build_id: build.id.clone(),
        build: build.name.clone(),
        run_id: build.run_id.clone(),
        lake_id: session.lake().id().to_owned(),
        snapshot: session.snapshot().n,
        derivation_id: build.derivation_id.clone(),
        upstream: build.upstream.clone(),
        objective: build.objective.clone(),
        accept_assumed: build.accept_assumed,
        format: options.format.to_string(),
        rows: parts.rows,
        rows_quarantined: left_out.count,
        tokens: parts.tokens,
        trained_tokens: parts.trained_tokens,
        files: parts.files,
    };
    let written: BTreeSet<_> = manifest.files.iter().map(|file| file.path.as_str()).collect();
    for path in stale.iter().filter(|path| !written.contains(path.as_str())) {
        let deleted = store.delete(&Path::from(path.as_str())).await;
        deleted.map_err(|source| stored(source, "delete", path))?;
    }
    let mut text = serde_json::to_vec_pretty(&manifest)
        .map_err(|source| Error::corrupt("the manifest cannot be written as JSON").caused_by(source))?;
    text.push(b'\n');
    let put = store.put(&Path::from(MANIFEST), text.into()).await;
    put.map_err(|source| stored(source, "write", MANIFEST))?;
    Ok(manifest)
}

/// Writes every row that goes out.
async fn fill(parts: &mut Parts<'_>, mut rows: SendableRecordBatchStream, left_out: &mut LeftOut) -> Result<()> {
    while let Some(batch) = rows.try_next().await? {
        parts.write(&left_out.keep(&batch)?).await?;
    }
    parts.finish().await
}

/// Makes sure that nothing else lies in the destination; returns the files of this build that do.
async fn check_destination(store: &dyn ObjectStore, url: &str, build: &Build) -> Result<Vec<String>> {
    if let Some(manifest) = read_manifest(store, url).await?
        && manifest.build_id != build.id
    {
        return Err(Error::new(
            ErrorKind::Conflict,
            format!("{url} holds the export of build {}: choose another destination", manifest.build_id),
        ));
    }
    let listed: Vec<_> = store.list(None).try_collect().await.map_err(|source| stored(source, "list", url))?;
    let mut own = Vec::new();
    for object in listed {
        let path = object.location.to_string();
        if path == MANIFEST {
            continue;
        }
        if !(path.starts_with("part-") && path.contains(&build.file_tag())) {
            return Err(Error::new(
                ErrorKind::Conflict,
                format!("{url} is not empty, it holds {path}: choose another destination"),
            ));
        }
        own.push(path);
    }
    Ok(own)
}
