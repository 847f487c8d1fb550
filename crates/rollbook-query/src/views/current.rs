//! Views of the rows that count: the highest revision, the newest score, the newest derivation.

use std::sync::Arc;

use datafusion::catalog::TableProvider;
use rollbook_lake::DataFile;
use rollbook_schema::Table;
use serde_json::Value;

use super::{lake_table, put, view};
use crate::error::Result;
use crate::session::Session;

/// The name of a table with the hidden entry column, while its view is planned.
const WITH_ENTRY: &str = "_with_entry";

/// Shows of each key the rows with the highest revision, of equal ones the latest entry's; a key doubled within one
/// import keeps both. A rollout's first non-null step and group stand, whatever a later revision says.
pub(super) async fn newest_revision(session: &Session, table: &'static Table) -> Result<Arc<dyn TableProvider>> {
    if !may_repeat(table, &session.snapshot().table(&table.name).files) {
        return Ok(Arc::new(lake_table(session, table)?));
    }
    let schema = session.schema_provider()?;
    put(&schema, WITH_ENTRY, Arc::new(lake_table(session, table)?.with_entry()))?;
    let planned = view(session, &highest_revision(table)).await;
    schema.deregister_table(WITH_ENTRY)?;
    planned
}

fn highest_revision(table: &Table) -> String {
    let key = table.key.iter().map(|name| quoted(name)).collect::<Vec<_>>().join(", ");
    let stands = |name: &str| table.name == "rollouts" && ["step", "group_id"].contains(&name);
    let fields = table.logical();
    let names = || fields.fields().iter().map(|field| field.name().as_str());
    let firsts: Vec<String> = names()
        .filter(|name| stands(name))
        .map(|name| {
            format!(
                ", first_value({name}) IGNORE NULLS OVER (PARTITION BY {key} ORDER BY _order
                    ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) AS _first_{name}"
            )
        })
        .collect();
    let shown = names()
        .map(|name| if stands(name) { format!("_first_{name} AS {}", quoted(name)) } else { quoted(name) })
        .collect::<Vec<_>>()
        .join(", ");
    format!(
        "SELECT {shown} FROM (
            SELECT *, max(_order) OVER (PARTITION BY {key}) AS _highest{}
            FROM (SELECT *, coalesce(revision, 0) * 1000000000 + _entry AS _order FROM {WITH_ENTRY})
        ) WHERE _order = _highest",
        firsts.concat()
    )
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

/// The rows of the newest derivation of each run and name. The names stand on the left: that side of the join is held, the
/// rows with their token values stream past it.
fn newest_derivation(table: &Table) -> String {
    let columns = table
        .logical()
        .fields()
        .iter()
        .map(|field| format!("r.{}", quoted(field.name())))
        .collect::<Vec<_>>()
        .join(", ");
    format!(
        "SELECT {columns} FROM (
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
        ) AS n JOIN {WITH_ENTRY} AS r
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

/// Whether two files may hold the same key: unless one file is all there is, or the statistics of the last key column
/// that has any keep the files apart.
fn may_repeat(table: &Table, files: &[Arc<DataFile>]) -> bool {
    if files.len() < 2 {
        return files.iter().any(|file| revision_of(file).is_none());
    }
    let Some(column) = table.key.last() else {
        return true;
    };
    let mut ranges = Vec::with_capacity(files.len());
    for file in files {
        match range_of(file, column) {
            Some(range) if revision_of(file).is_some() => ranges.push(range),
            _ => return true,
        }
    }
    ranges.sort();
    ranges.windows(2).any(|pair| pair[1].0 <= pair[0].1)
}

/// The least and greatest text of a column, where the statistics have them and no row is null.
fn range_of(file: &DataFile, column: &str) -> Option<(String, String)> {
    let stats: Value = serde_json::from_str(&file.stats).ok()?;
    let bound = |side: &str| stats[side][column].as_str().map(str::to_owned);
    (stats["nullCount"][column].as_u64()? == 0).then_some((bound("minValues")?, bound("maxValues")?))
}

fn revision_of(file: &DataFile) -> Option<i64> {
    let stats: Value = serde_json::from_str(&file.stats).ok()?;
    let (min, max) = (stats["minValues"]["revision"].as_i64()?, stats["maxValues"]["revision"].as_i64()?);
    let nulls = stats["nullCount"]["revision"].as_u64()?;
    (min == max && nulls == 0).then_some(min)
}
