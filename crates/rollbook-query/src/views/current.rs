//! Views of the rows that count: the highest revision, the newest score, the newest derivation.

use std::sync::Arc;

use datafusion::catalog::TableProvider;
use rollbook_lake::DataFile;
use rollbook_schema::Table;
use serde_json::Value;

use super::{history_name, lake_table, put, view};
use crate::error::Result;
use crate::session::Session;

/// The name of a table with the hidden entry column, while its view is planned.
const WITH_ENTRY: &str = "_with_entry";

/// Shows of each key the rows with the highest revision; a key doubled within one import keeps both.
pub(super) async fn newest_revision(session: &Session, table: &'static Table) -> Result<Arc<dyn TableProvider>> {
    if has_one_revision(&session.snapshot().table(&table.name).files) {
        // Equal revisions everywhere: no key has two, and the plain scan is the view.
        return Ok(Arc::new(lake_table(session, table)?));
    }
    let sql = format!(
        "SELECT {columns} FROM (
            SELECT *, max(coalesce(revision, 0)) OVER (PARTITION BY {key}) AS _highest FROM {history}
        ) WHERE coalesce(revision, 0) = _highest",
        columns = columns(table),
        key = table.key.iter().map(|name| quoted(name)).collect::<Vec<_>>().join(", "),
        history = history_name(table),
    );
    view(session, &sql).await
}

/// Shows the current rows of scores, rewards or credits.
pub(super) async fn newest(session: &Session, table: &'static Table) -> Result<Arc<dyn TableProvider>> {
    let schema = session.schema_provider()?;
    put(&schema, WITH_ENTRY, Arc::new(lake_table(session, table)?.with_entry()))?;
    let sql = if table.name == "scores" { newest_score(table) } else { newest_derivation(table) };
    let planned = view(session, &sql).await;
    schema.deregister_table(WITH_ENTRY)?;
    planned
}

/// The newest score of a rollout or call by a verifier: by `scored_at`, then `created_at`, then the later entry.
fn newest_score(table: &Table) -> String {
    format!(
        "SELECT {columns} FROM (
            SELECT *, row_number() OVER (
                PARTITION BY run_id, rollout_id, call_id, verifier
                ORDER BY scored_at DESC NULLS LAST, created_at DESC NULLS LAST, _entry DESC, score_id DESC
            ) AS _place FROM {WITH_ENTRY}
        ) WHERE _place = 1",
        columns = columns(table)
    )
}

/// The rows of the newest derivation of each run and name.
fn newest_derivation(table: &Table) -> String {
    let columns = table
        .logical()
        .fields()
        .iter()
        .map(|field| format!("r.{}", quoted(field.name())))
        .collect::<Vec<_>>()
        .join(", ");
    format!(
        "SELECT {columns} FROM {WITH_ENTRY} AS r JOIN (
            SELECT run_id, name, derivation_id FROM (
                SELECT run_id, name, derivation_id, row_number() OVER (
                    PARTITION BY run_id, name
                    ORDER BY created_at DESC NULLS LAST, entry DESC, derivation_id DESC NULLS LAST
                ) AS place
                FROM (
                    SELECT run_id, name, derivation_id, max(created_at) AS created_at, max(_entry) AS entry
                    FROM {WITH_ENTRY} GROUP BY run_id, name, derivation_id
                )
            ) WHERE place = 1
        ) AS n
        ON (r.run_id IS NOT DISTINCT FROM n.run_id)
            AND (r.name IS NOT DISTINCT FROM n.name)
            AND (r.derivation_id IS NOT DISTINCT FROM n.derivation_id)"
    )
}

fn columns(table: &Table) -> String {
    table.logical().fields().iter().map(|field| quoted(field.name())).collect::<Vec<_>>().join(", ")
}

fn quoted(name: &str) -> String {
    format!("\"{name}\"")
}

/// Whether the files' statistics prove that every row has the same revision.
fn has_one_revision(files: &[Arc<DataFile>]) -> bool {
    let mut revisions = files.iter().map(|file| revision_of(file));
    match revisions.next() {
        None => true,
        Some(first) => first.is_some() && revisions.all(|revision| revision == first),
    }
}

fn revision_of(file: &DataFile) -> Option<i64> {
    let stats: Value = serde_json::from_str(&file.stats).ok()?;
    let (min, max) = (stats["minValues"]["revision"].as_i64()?, stats["maxValues"]["revision"].as_i64()?);
    let nulls = stats["nullCount"]["revision"].as_u64()?;
    (min == max && nulls == 0).then_some(min)
}
