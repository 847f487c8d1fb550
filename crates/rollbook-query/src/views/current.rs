//! Views of the rows that count: the highest revision, the newest score, the newest derivation.

use std::collections::BTreeMap;
use std::sync::Arc;

use datafusion::catalog::TableProvider;
use rollbook_lake::DataFile;
use rollbook_schema::Table;
use serde_json::Value;

use super::{lake_table, lake_table_of, put, view};
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
    if table.name != "scores"
        && let Some(files) = files_of_newest_derivations(&session.snapshot().table(&table.name).files)
    {
        return Ok(Arc::new(lake_table_of(session, table, &files)?));
    }
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

/// Which rows a file holds: those of one derivation of one run and name.
type Derived = ((String, String), Option<String>);

/// The files of the newest derivation of each run and name, where the statistics decide it: then nothing need be read to
/// know which rows count.
fn files_of_newest_derivations(files: &[Arc<DataFile>]) -> Option<Vec<Arc<DataFile>>> {
    let mut ages: BTreeMap<Derived, (Option<String>, u64)> = BTreeMap::new();
    let mut held = Vec::with_capacity(files.len());
    for file in files {
        let (derived, created_at) = derived(file)?;
        let age = ages.entry(derived.clone()).or_default();
        *age = (created_at.max(age.0.take()), file.snapshot.max(age.1));
        held.push(derived);
    }
    let mut newest: BTreeMap<&(String, String), (&(Option<String>, u64), &Option<String>)> = BTreeMap::new();
    for ((key, derivation_id), age) in &ages {
        let known = newest.entry(key).or_insert((age, derivation_id));
        // Statistics know the millisecond, rows the microsecond; one entry may hold two derivations.
        if known.1 != derivation_id && age.0 == known.0.0 && (age.0.is_some() || age.1 == known.0.1) {
            return None;
        }
        *known = (*known).max((age, derivation_id));
    }
    let counts = |(key, derivation_id): &Derived| newest.get(key).is_some_and(|known| known.1 == derivation_id);
    Some(files.iter().zip(&held).filter(|(_, derived)| counts(derived)).map(|(file, _)| Arc::clone(file)).collect())
}

/// What a file holds and when it was made; none where its statistics leave that open.
fn derived(file: &DataFile) -> Option<(Derived, Option<String>)> {
    let (run_id, last_run_id) = file.run_id.as_ref()?;
    let stats: Value = serde_json::from_str(&file.stats).ok()?;
    let nulls = |column: &str| stats["nullCount"][column].as_u64();
    let text = |side: &str, column: &str| stats[side][column].as_str().map(str::to_owned);
    let (name, last_name) = (text("minValues", "name")?, text("maxValues", "name")?);
    if run_id != last_run_id || name != last_name || nulls("run_id")? > 0 || nulls("name")? > 0 {
        return None;
    }
    // A column that is null throughout is not in the statistics.
    let derivation_id = match (&file.derivation_id, nulls("derivation_id")) {
        (_, None) => None,
        (Some(derivation_id), Some(0)) => Some(derivation_id.clone()),
        _ => return None,
    };
    Some((((run_id.clone(), name), derivation_id), text("maxValues", "created_at")))
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A file as a derivation of one run and name leaves it; `created_at` in milliseconds of one second.
    fn file(path: &str, name: &str, derivation: Option<&str>, created_at: Option<u32>, entry: u64) -> Arc<DataFile> {
        let mut stats = json!({
            "minValues": {"name": name}, "maxValues": {"name": name}, "nullCount": {"run_id": 0, "name": 0},
        });
        if let Some(derivation) = derivation {
            stats["nullCount"]["derivation_id"] = json!(0);
            stats["minValues"]["derivation_id"] = json!(derivation);
        }
        if let Some(created_at) = created_at {
            stats["maxValues"]["created_at"] = json!(format!("2026-01-01T00:00:00.{created_at:03}Z"));
        }
        let mut file = DataFile::default();
        file.path = path.to_owned();
        file.run_id = Some(("run".to_owned(), "run".to_owned()));
        file.stats = stats.to_string();
        file.derivation_id = derivation.map(str::to_owned);
        file.snapshot = entry;
        Arc::new(file)
    }

    fn newest(files: &[Arc<DataFile>]) -> Option<Vec<&str>> {
        let paths: Vec<String> = files_of_newest_derivations(files)?.iter().map(|file| file.path.clone()).collect();
        Some(files.iter().map(|file| file.path.as_str()).filter(|path| paths.iter().any(|kept| kept == path)).collect())
    }

    #[test]
    fn the_newest_derivation_of_each_name_counts_with_all_its_files() {
        let files = [
            file("old", "a", Some("d1"), Some(1), 4),
            file("new-1", "a", Some("d2"), Some(7), 5),
            file("imported", "a", None, None, 9),
            file("new-2", "a", Some("d2"), Some(2), 5),
            file("other name", "b", Some("d1"), Some(1), 4),
        ];
        assert_eq!(newest(&files), Some(vec!["new-1", "new-2", "other name"]));
        assert_eq!(newest(&[]), Some(vec![]));
    }

    #[test]
    fn without_times_the_later_entry_counts() {
        let files = [file("late", "a", None, None, 9), file("early", "a", Some("d1"), None, 3)];
        assert_eq!(newest(&files), Some(vec!["late"]));
    }

    #[test]
    fn what_statistics_cannot_tell_is_left_to_the_rows() {
        let one = || file("one", "a", Some("d1"), Some(5), 3);
        assert_eq!(newest(&[one(), file("same time", "a", Some("d2"), Some(5), 4)]), None);
        let timeless = |path: &str, derivation: &str| file(path, "a", Some(derivation), None, 3);
        assert_eq!(newest(&[timeless("one", "d1"), timeless("same entry", "d2")]), None);
        let mut mixed = file("two names", "a", Some("d1"), Some(5), 3);
        Arc::make_mut(&mut mixed).stats =
            mixed.stats.replace("\"maxValues\":{\"created_at\":", "\"maxValues\":{\"x\":");
        Arc::make_mut(&mut mixed).stats = mixed.stats.replacen("\"name\":\"a\"", "\"name\":\"b\"", 1);
        assert_eq!(newest(&[mixed]), None);
    }
}
