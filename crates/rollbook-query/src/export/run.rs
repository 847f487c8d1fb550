//! Writing an export: the build looked up, its rows in order, parts, then the manifest.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::SchemaRef;
use datafusion::execution::SessionStateBuilder;
use datafusion::prelude::SessionContext;
use futures::TryStreamExt;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};

use crate::error::{Error, ErrorKind, Result};
use crate::export::left_out::LeftOut;
use crate::export::lookup::{Build, find_build};
use crate::export::manifest::{ExportedFile, MANIFEST, MANIFEST_FORMAT, Manifest};
use crate::export::part::{PartEncoder, sha256_hex};
use crate::export::verify::read_manifest;
use crate::recipe::{quoted, table, text_column};
use crate::session::{PlanOptions, Session, parse};

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
    /// A file ends at the first row after this many bytes in memory.
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
    let mut parts = Parts::new(store.as_ref(), &build, options)?;
    let mut rows = rows_of(session, &build).await?;
    while let Some(batch) = rows.try_next().await? {
        parts.write(&left_out.keep(&batch)?).await?;
    }
    parts.close().await?;
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

/// Bytes that a token of a row takes in all columns, about.
const TOKEN_BYTES: usize = 4 + 4 + 1 + 4 + 4 + 8 + 4 + 4;
/// Bytes that a sorted batch may take.
const BATCH_BYTES: usize = 8 << 20;

/// Streams a build's rows in the order of their places, in batches whose size depends on the rows' length.
async fn rows_of(session: &Session, build: &Build) -> Result<datafusion::execution::SendableRecordBatchStream> {
    let columns: Vec<String> = table("samples")?.logical().fields().iter().map(|field| field.name().clone()).collect();
    let sql = format!(
        "SELECT {} FROM samples WHERE run_id = {} AND build_id = {} \
         ORDER BY epoch, coalesce(optimizer_step, step), step, micro_batch, rank, row_index",
        columns.join(", "),
        quoted(&build.run_id),
        quoted(&build.id)
    );
    let plan = session.plan(parse(&sql)?, &PlanOptions::default()).await?;
    let widest = match build.max_tokens.and_then(|tokens| usize::try_from(tokens).ok()) {
        Some(tokens) => tokens,
        None => widest_row(session, build).await?,
    };
    let rows = (BATCH_BYTES / (widest.max(1) * TOKEN_BYTES)).clamp(1, 8192);
    let state = session.context().state();
    let config = state.config().clone().with_batch_size(rows);
    let state = SessionStateBuilder::new_from_existing(state).with_config(config).build();
    let context = SessionContext::new_with_state(state);
    Ok(context.execute_logical_plan(plan).await?.execute_stream().await?)
}

/// The longest row of a build that does not say.
async fn widest_row(session: &Session, build: &Build) -> Result<usize> {
    let found = session
        .collect(&format!(
            "SELECT CAST(coalesce(max(array_length(token_ids)), 0) AS VARCHAR) FROM samples \
             WHERE run_id = {} AND build_id = {}",
            quoted(&build.run_id),
            quoted(&build.id)
        ))
        .await?;
    Ok(text_column(&found, 0)?.first().and_then(|text| text.parse().ok()).unwrap_or(0))
}

/// Part files on their way out.
struct Parts<'a> {
    store: &'a dyn ObjectStore,
    format: Format,
    part_bytes: usize,
    tag: String,
    schema: SchemaRef,
    open: Option<(PartEncoder, u64)>,
    files: Vec<ExportedFile>,
    rows: u64,
    tokens: u64,
    trained_tokens: u64,
}

impl<'a> Parts<'a> {
    fn new(store: &'a dyn ObjectStore, build: &Build, options: &ExportOptions) -> Result<Self> {
        Ok(Self {
            store,
            format: options.format,
            part_bytes: options.part_bytes,
            tag: build.file_tag(),
            schema: table("samples")?.logical(),
            open: None,
            files: Vec::new(),
            rows: 0,
            tokens: 0,
            trained_tokens: 0,
        })
    }

    async fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        if batch.num_rows() == 0 {
            return Ok(());
        }
        let columns = self
            .schema
            .fields()
            .iter()
            .zip(batch.columns())
            .map(|(field, column)| Ok(cast(column, field.data_type())?))
            .collect::<Result<Vec<ArrayRef>>>()?;
        let rows = RecordBatch::try_new(Arc::clone(&self.schema), columns)?;
        self.count(&rows);
        let (mut encoder, before) = match self.open.take() {
            Some(open) => open,
            None => (PartEncoder::new(self.format, &self.schema)?, 0),
        };
        encoder.write(&rows)?;
        let is_full = encoder.size() >= self.part_bytes;
        self.open = Some((encoder, before + rows.num_rows() as u64));
        if is_full { self.close().await } else { Ok(()) }
    }

    fn count(&mut self, rows: &RecordBatch) {
        self.rows += rows.num_rows() as u64;
        if let Some(ids) = rows.column_by_name("token_ids") {
            let ids = ids.as_list::<i32>();
            self.tokens += (0..ids.len()).map(|row| u64::from(ids.value_length(row).unsigned_abs())).sum::<u64>();
        }
        if let Some(masks) = rows.column_by_name("action_mask") {
            let trained = masks.as_list::<i32>().iter().flatten().map(|mask| mask.as_boolean().true_count() as u64);
            self.trained_tokens += trained.sum::<u64>();
        }
    }

    async fn close(&mut self) -> Result<()> {
        let Some((encoder, rows)) = self.open.take() else {
            return Ok(());
        };
        let bytes = encoder.finish()?;
        let path = format!("part-{:05}-{}.{}", self.files.len(), self.tag, self.format);
        let file = ExportedFile { path: path.clone(), rows, bytes: bytes.len() as u64, sha256: sha256_hex(&bytes) };
        let put = self.store.put(&Path::from(path.as_str()), bytes.into()).await;
        put.map_err(|source| stored(source, "write", &path))?;
        self.files.push(file);
        Ok(())
    }
}
