//! The main job's phases over one lake: import, reward and credit, build, audit, export.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::path::{Path, PathBuf};

use futures::TryStreamExt;
use rollbook_audit::{AuditOptions, Report};
use rollbook_lake::Lake;
use rollbook_query::build::{BuildOptions, run_build};
use rollbook_query::export::{ExportOptions, Format, export};
use rollbook_query::ingest::{ImportReport, IngestOptions, import};
use rollbook_query::recipe::{DeriveOptions, find_recipe, run_credit, run_reward};
use rollbook_query::{Session, SessionOptions};

use crate::append::options;

type Done<T> = Result<T, Box<dyn Error>>;

/// Tokens of a row in the build: more than any generated context has.
const ROW_TOKENS: u32 = 160_000;

/// Opens a lake in a folder.
pub(super) async fn lake_at(folder: &Path) -> Done<Lake> {
    Ok(Lake::open(&folder.display().to_string(), options()).await?)
}

/// Opens a session with two threads.
pub(super) async fn open(folder: &Path) -> Done<Session> {
    open_at(folder, None).await
}

/// The same at a snapshot.
pub(super) async fn open_at(folder: &Path, at: Option<u64>) -> Done<Session> {
    session(&lake_at(folder).await?, at).await
}

/// The same over a lake that is open.
pub(super) async fn session(lake: &Lake, at: Option<u64>) -> Done<Session> {
    let session = Session::open(lake, at, SessionOptions { threads: 2, ..SessionOptions::default() }).await?;
    rollbook_audit::register(&session)?;
    Ok(session)
}

/// Imports a folder or files in the exchange format; makes the lake where there is none.
pub(super) async fn import_files(folder: &Path, sources: &[PathBuf]) -> Done<(Lake, ImportReport)> {
    let lake = if folder.join("_rollbook").exists() {
        lake_at(folder).await?
    } else {
        Lake::init(&folder.display().to_string(), options()).await?
    };
    let importer = rollbook_import::importer("tables").ok_or("no importer is called tables")?;
    let report = import(&lake, importer, sources, &IngestOptions::default(), &|_| ()).await?;
    Ok((lake, report))
}

/// The same for one source.
pub(super) async fn import_into(folder: &Path, source: &Path) -> Done<()> {
    import_files(folder, &[source.to_owned()]).await?;
    Ok(())
}

/// A reward from the tests' score, and its GRPO credit.
pub(super) async fn derive(folder: &Path) -> Done<()> {
    let parameters = BTreeMap::from([("verifier".to_owned(), "tests".to_owned())]);
    let reward = DeriveOptions { parameters, ..DeriveOptions::default() };
    run_reward(&open(folder).await?, &find_recipe("verifier_value")?, &reward).await?;
    run_credit(&open(folder).await?, &find_recipe("grpo")?, "verifier_value", &DeriveOptions::default()).await?;
    Ok(())
}

/// A build of merged rows over that credit.
pub(super) async fn build(folder: &Path) -> Done<()> {
    let options = BuildOptions { accept_assumed: true, ..BuildOptions::new(ROW_TOKENS) };
    run_build(&open(folder).await?, &find_recipe("merged")?, "grpo", &options).await?;
    Ok(())
}

/// Every check of the catalogue, or some.
pub(super) async fn audit(session: &Session, checks: &[&str]) -> Done<Report> {
    let checks = checks.iter().map(|&check| check.to_owned()).collect();
    Ok(rollbook_audit::audit(session, &AuditOptions { checks, ..AuditOptions::default() }).await?)
}

/// Reads every column that any check names, table by table, and looks at none: what an audit cannot go below. Returns
/// the rows.
pub(super) async fn read_needs(session: &Session) -> Done<u64> {
    let mut needs: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for need in rollbook_audit::checks().iter().flat_map(|check| &check.needs) {
        if let Some((table, column)) = need.split_once('.') {
            needs.entry(table).or_default().insert(column);
        }
    }
    let mut rows = 0;
    for (table, columns) in needs {
        let Some(table) = rollbook_schema::table(table) else { continue };
        let known = columns.into_iter().filter(|name| table.column(name).is_some());
        let columns: Vec<String> = known.map(|name| format!("\"{name}\"")).collect();
        let mut batches = session.stream(&format!("SELECT {} FROM {}", columns.join(", "), table.name)).await?;
        while let Some(batch) = batches.try_next().await? {
            rows += batch.num_rows() as u64;
        }
    }
    Ok(rows)
}

/// Exports the build as Arrow files. Returns tokens and bytes.
pub(super) async fn export_build(session: &Session, out: &Path) -> Done<(u64, u64)> {
    if out.exists() {
        std::fs::remove_dir_all(out)?;
    }
    let options = ExportOptions { accept_assumed: true, ..ExportOptions::new(Format::Arrow) };
    let manifest = export(session, "merged", &out.display().to_string(), &options).await?;
    let mut bytes = 0;
    for entry in std::fs::read_dir(out)? {
        bytes += entry?.metadata()?.len();
    }
    Ok((manifest.tokens, bytes))
}

/// Bytes of a table's files that the lake shows.
pub(super) async fn table_bytes(lake: &Lake, table: &str) -> Done<u64> {
    Ok(lake.snapshot().await?.table(table).files.iter().map(|file| file.size).sum())
}
