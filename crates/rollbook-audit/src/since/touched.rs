//! The rollouts, builds and runs that new files touch.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use arrow::array::{Array, AsArray, StringArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type};
use futures::TryStreamExt;
use rollbook_lake::Snapshot;
use rollbook_query::{Result, Session};

use crate::register::session_for_checks;
use crate::tables::quoted;

/// Tables whose rows touch their rollout.
const OF_ROLLOUTS: [&str; 5] = ["rollouts_history", "calls", "call_payloads", "token_signals", "environment_records"];
/// Tables whose rows touch their build.
const OF_BUILDS: [&str; 3] = ["samples", "builds", "exclusions"];
/// Tables whose rows are no part of what is judged.
const OF_ROLLBOOK: [&str; 5] = ["audits", "findings", "quarantine", "imports", "rejects"];

/// A rollout and where its rows can lie.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) run: String,
    pub(crate) rollout: String,
    /// None: anywhere in the run.
    pub(crate) step: Option<i64>,
}

/// What new files touch.
#[derive(Debug, Default)]
pub(crate) struct Touched {
    pub(crate) runs: BTreeSet<String>,
    /// Runs of which every rollout and build is touched.
    pub(crate) whole_runs: BTreeSet<String>,
    pub(crate) rollouts: BTreeSet<Place>,
    /// Run and build.
    pub(crate) builds: BTreeSet<(String, String)>,
}

impl Touched {
    /// Whether nothing is touched.
    pub(crate) fn is_empty(&self) -> bool {
        self.runs.is_empty() && self.rollouts.is_empty() && self.builds.is_empty()
    }

    /// Reads what the files after snapshot `since` touch.
    pub(crate) async fn find(session: &Session, since: u64) -> Result<Self> {
        let head = session.snapshot();
        let is_new = |name: &str| head.table(name).files.iter().any(|file| file.snapshot > since);
        let mut touched = Self::default();
        if !head.tables().any(|(name, _)| !OF_ROLLBOOK.contains(&name) && is_new(name)) {
            return Ok(touched);
        }
        let new = session_for_checks(session, head.only(|_, file| file.snapshot > since)).await?;
        touched.read_runs(&new).await?;
        touched.read_rollouts(&new).await?;
        for table in OF_BUILDS.iter().filter(|table| is_new(table)) {
            let sql = format!("SELECT DISTINCT run_id, build_id FROM {table} WHERE build_id IS NOT NULL");
            touched.builds.extend(pairs(&new, &sql).await?);
        }
        touched.read_encodings(session, &new, since).await?;
        touched.read_builds_of(session, &new, since).await?;
        Ok(touched)
    }

    async fn read_runs(&mut self, new: &Session) -> Result<()> {
        for (name, state) in new.snapshot().tables() {
            if OF_ROLLBOOK.contains(&name) {
                continue;
            }
            // A file holds one run, and its range names it.
            self.runs.extend(state.files.iter().filter_map(|file| file.run_id.as_ref()).map(|(run, _)| run.clone()));
        }
        self.whole_runs = new
            .snapshot()
            .table("runs")
            .files
            .iter()
            .filter_map(|file| file.run_id.clone())
            .map(|(run, _)| run)
            .collect();
        Ok(())
    }

    async fn read_rollouts(&mut self, new: &Session) -> Result<()> {
        for table in OF_ROLLOUTS {
            let name = table.trim_end_matches("_history");
            if new.snapshot().table(name).files.is_empty() {
                continue;
            }
            let sql = format!("SELECT DISTINCT run_id, rollout_id, step FROM {table} WHERE rollout_id IS NOT NULL");
            self.add_places(new, &sql).await?;
        }
        Ok(())
    }

    async fn add_places(&mut self, session: &Session, sql: &str) -> Result<()> {
        let mut rows = session.stream(sql).await?;
        while let Some(batch) = rows.try_next().await? {
            let (runs, rollouts) = (text(batch.column(0))?, text(batch.column(1))?);
            let steps = cast(batch.column(2), &DataType::Int64)?.as_primitive::<Int64Type>().clone();
            self.rollouts.extend((0..batch.num_rows()).map(|row| Place {
                run: runs.value(row).to_owned(),
                rollout: rollouts.value(row).to_owned(),
                step: steps.is_valid(row).then(|| steps.value(row)),
            }));
        }
        Ok(())
    }

    /// Encodings that came after calls which name them: rare, and they change what can be judged of those calls.
    async fn read_encodings(&mut self, session: &Session, new: &Session, since: u64) -> Result<()> {
        let names = column(new, "encodings", "SELECT DISTINCT encoding_id FROM encodings_history").await?;
        if names.is_empty() {
            return Ok(());
        }
        let old = only(session, |snapshot| snapshot.only(|_, file| file.snapshot <= since)).await?;
        let names = names.iter().map(|name| quoted(name)).collect::<Vec<_>>().join(", ");
        let sql = format!(
            "SELECT DISTINCT run_id, rollout_id, step FROM calls WHERE encoding_id IN ({names}) AND rollout_id IS NOT NULL"
        );
        let before = self.rollouts.len();
        self.add_places(&old, &sql).await?;
        if self.rollouts.len() > before {
            self.runs.extend(self.rollouts.iter().map(|place| place.run.clone()));
        }
        Ok(())
    }

    /// Builds that are old themselves, and rest on something new.
    async fn read_builds_of(&mut self, session: &Session, new: &Session, since: u64) -> Result<()> {
        let old = only(session, |snapshot| snapshot.only(|_, file| file.snapshot <= since)).await?;
        if old.snapshot().table("samples").files.is_empty() && old.snapshot().table("builds").files.is_empty() {
            return Ok(());
        }
        for run in self.whole_runs.clone() {
            self.add_builds(&old, &format!("run_id = {}", quoted(&run))).await?;
        }
        let credits = column(new, "credits", "SELECT DISTINCT derivation_id FROM credits_history").await?;
        if !credits.is_empty() {
            let runs: Vec<String> = column(new, "credits", "SELECT DISTINCT run_id FROM credits_history").await?;
            let runs = runs.iter().map(|run| quoted(run)).collect::<Vec<_>>().join(", ");
            // Builds of ours name the credits they rest on, and those were there before: what others made may rest on any.
            let ours = "SELECT derivation_id FROM derivations WHERE snapshot IS NOT NULL AND derivation_id IS NOT NULL";
            self.add_builds(
                &old,
                &format!("run_id IN ({runs}) AND (derivation_id IS NULL OR derivation_id NOT IN ({ours}))"),
            )
            .await?;
        }
        let published =
            pairs(new, "SELECT DISTINCT run_id, CAST(step AS VARCHAR) FROM policies_history WHERE step IS NOT NULL")
                .await?;
        let mut steps: BTreeMap<String, Vec<String>> = BTreeMap::new();
        published.into_iter().for_each(|(run, step)| steps.entry(run).or_default().push(step));
        for (run, steps) in steps {
            self.add_builds(&old, &format!("run_id = {} AND step IN ({})", quoted(&run), steps.join(", "))).await?;
        }
        self.read_builds_of_old_rollouts(&old).await
    }

    async fn add_builds(&mut self, old: &Session, condition: &str) -> Result<()> {
        let sql = format!("SELECT DISTINCT run_id, build_id FROM samples WHERE build_id IS NOT NULL AND {condition}");
        self.builds.extend(pairs(old, &sql).await?);
        Ok(())
    }

    /// A rollout that was there before may stand in builds that were.
    async fn read_builds_of_old_rollouts(&mut self, old: &Session) -> Result<()> {
        let touched: HashSet<(&str, &str)> =
            self.rollouts.iter().map(|place| (place.run.as_str(), place.rollout.as_str())).collect();
        let runs: BTreeSet<&str> = self.rollouts.iter().map(|place| place.run.as_str()).collect();
        let mut builds = BTreeSet::new();
        for run in runs {
            let run = quoted(run);
            let is_old = format!(
                "SELECT DISTINCT run_id, rollout_id FROM rollouts_history WHERE run_id = {run} UNION SELECT DISTINCT run_id, rollout_id FROM calls WHERE run_id = {run} AND rollout_id IS NOT NULL"
            );
            let known = pairs(old, &is_old).await?;
            let again: BTreeSet<&(String, String)> =
                known.iter().filter(|(run, rollout)| touched.contains(&(run.as_str(), rollout.as_str()))).collect();
            if again.is_empty() {
                continue;
            }
            let sql = format!(
                "SELECT DISTINCT run_id, rollout_id, build_id FROM (
                    SELECT run_id, rollout_id, build_id FROM row_segment
                    UNION ALL SELECT run_id, rollout_id, build_id FROM exclusions
                 ) WHERE run_id = {run} AND rollout_id IS NOT NULL AND build_id IS NOT NULL"
            );
            let mut rows = old.stream(&sql).await?;
            while let Some(batch) = rows.try_next().await? {
                let (runs, rollouts, names) = (text(batch.column(0))?, text(batch.column(1))?, text(batch.column(2))?);
                for row in 0..batch.num_rows() {
                    if again.contains(&(runs.value(row).to_owned(), rollouts.value(row).to_owned())) {
                        builds.insert((runs.value(row).to_owned(), names.value(row).to_owned()));
                    }
                }
            }
        }
        self.builds.extend(builds);
        Ok(())
    }
}

async fn only(session: &Session, part: impl Fn(&Snapshot) -> Snapshot) -> Result<Session> {
    let part = Session::at(session.lake(), part(session.snapshot()), session.options().clone()).await?;
    crate::register::register(&part)?;
    Ok(part)
}

async fn pairs(session: &Session, sql: &str) -> Result<BTreeSet<(String, String)>> {
    let mut rows = session.stream(sql).await?;
    let mut pairs = BTreeSet::new();
    while let Some(batch) = rows.try_next().await? {
        let (first, second) = (text(batch.column(0))?, text(batch.column(1))?);
        let valid = |row: &usize| first.is_valid(*row) && second.is_valid(*row);
        pairs.extend(
            (0..batch.num_rows()).filter(valid).map(|row| (first.value(row).to_owned(), second.value(row).to_owned())),
        );
    }
    Ok(pairs)
}

/// The texts that a query over a table gives; none, unread, where the table has no file.
async fn column(session: &Session, table: &str, sql: &str) -> Result<Vec<String>> {
    if session.snapshot().table(table).files.is_empty() {
        return Ok(Vec::new());
    }
    let mut rows = session.stream(sql).await?;
    let mut texts = Vec::new();
    while let Some(batch) = rows.try_next().await? {
        let values = text(batch.column(0))?;
        texts.extend((0..batch.num_rows()).filter(|row| values.is_valid(*row)).map(|row| values.value(row).to_owned()));
    }
    Ok(texts)
}

fn text(column: &arrow::array::ArrayRef) -> Result<StringArray> {
    Ok(cast(column, &DataType::Utf8)?.as_string::<i32>().clone())
}
