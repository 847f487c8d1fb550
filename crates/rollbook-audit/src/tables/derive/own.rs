//! Derivations whose recipe is on record: it runs again, and every row is compared.

use std::collections::{BTreeMap, BTreeSet};

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, new_null_array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Float64Type};
use futures::TryStreamExt;
use rollbook_query::recipe::{Recorded, rerun};
use rollbook_query::{ErrorKind, Result, Session, row_digests};

use super::inputs::{Derivation, Kind, doubles};
use super::{Found, shown};
use crate::tables::quoted;
use crate::tables::tokens::text;

/// What the same recipe may differ by when another version of the engine runs it.
const SAME: f64 = 1e-9;
/// What a trainer that computes in float may differ by.
const IMPORTED: f64 = 1e-5;

/// Runs one of our own derivations again over its snapshot.
pub(super) async fn judge(session: &Session, derivation: &Derivation, found: &mut Vec<Found>) -> Result<()> {
    let (Some(snapshot), Some(recipe)) = (derivation.snapshot, &derivation.recipe) else {
        found.push(missing(
            derivation,
            "derivations.recipe",
            "keep the recipe: its rows cannot be made again".to_owned(),
        ));
        return Ok(());
    };
    let at = match Session::open(session.lake(), Some(snapshot), session.options().clone()).await {
        Ok(at) => at,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Invalid) => {
            let remedy = format!("snapshot {snapshot}, which it was computed over, cannot be read ({error})");
            found.push(missing(derivation, "derivations.snapshot", remedy));
            return Ok(());
        }
        Err(error) => return Err(error),
    };
    match compare(session, &at, derivation, recipe, &derivation.upstream_ids, SAME).await {
        Ok(Compared::Rows(rows)) => found.extend(rows),
        Ok(Compared::Functions(changed)) => {
            let remedy = format!("it was computed by {changed}: run the recipe again, and compare the two");
            found.push(missing(derivation, "derivations.functions", remedy));
        }
        Err(error) if matches!(error.kind(), ErrorKind::Invalid | ErrorKind::NotFound | ErrorKind::Unsupported) => {
            found.push(missing(derivation, "derivations.recipe", format!("its recipe cannot be run: {error}")));
        }
        Err(error) => return Err(error),
    }
    Ok(())
}

/// Runs the recipe of an imported derivation over the rows that lie in the lake; false where it is none of ours.
pub(super) async fn judge_imported(session: &Session, derivation: &Derivation, found: &mut Vec<Found>) -> Result<bool> {
    let Some(recipe) = &derivation.recipe else {
        return Ok(false);
    };
    let mut upstream = derivation.upstream_ids.clone();
    if upstream.is_empty() && derivation.kind == Kind::Credit {
        let sql = format!(
            "SELECT DISTINCT derivation_id FROM rewards WHERE run_id = {} AND derivation_id IS NOT NULL",
            quoted(&derivation.run)
        );
        for batch in session.collect(&sql).await? {
            upstream.extend(text(&batch, "derivation_id")?.iter().flatten().map(str::to_owned));
        }
        if upstream.len() != 1 {
            return Ok(false);
        }
    }
    match compare(session, session, derivation, recipe, &upstream, IMPORTED).await {
        Ok(Compared::Rows(rows)) => {
            found.extend(rows);
            Ok(true)
        }
        Ok(Compared::Functions(_)) => Ok(false),
        Err(error) if matches!(error.kind(), ErrorKind::Invalid | ErrorKind::NotFound | ErrorKind::Unsupported) => {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

fn missing(derivation: &Derivation, field: &str, remedy: String) -> Found {
    Found::missing(&derivation.run, derivation.id.as_deref(), field, remedy)
}

enum Compared {
    Rows(Vec<Found>),
    /// Functions whose definition is no longer the one that was used.
    Functions(String),
}

async fn compare(
    session: &Session,
    at: &Session,
    derivation: &Derivation,
    recipe: &str,
    upstream: &[String],
    tolerance: f64,
) -> Result<Compared> {
    let recorded = Recorded {
        name: derivation.name.clone(),
        recipe: recipe.to_owned(),
        parameters: derivation.parameters.clone(),
        group_key: derivation.group_key.clone(),
        run: derivation.recorded_run.clone(),
        upstream_ids: upstream.to_vec(),
    };
    let run = &derivation.runs;
    let mut sum = Sum::default();
    let functions = rerun(at, &recorded, &mut |batch| sum.add(&canonical(batch)?, run)).await?;
    let changed = derivation.functions.iter().filter_map(|(name, version)| {
        let now = functions.get(name.as_str()).copied().map(u64::from);
        (now.is_some() && now != Some(*version)).then(|| format!("{name} version {version}"))
    });
    let changed: Vec<String> = changed.collect();
    if !changed.is_empty() {
        return Ok(Compared::Functions(changed.join(", ")));
    }
    let mut stored = Sum::default();
    let mut stream = session.stream(&stored_rows(derivation)).await?;
    while let Some(batch) = stream.try_next().await? {
        stored.add(&canonical(&batch)?, run)?;
    }
    if stored.sum == sum.sum {
        return Ok(Compared::Rows(Vec::new()));
    }
    // Only where they differ are rows held.
    let mut made = BTreeMap::new();
    rerun(at, &recorded, &mut |batch| cells(&canonical(batch)?, run, |key, cell| drop(made.insert(key, cell)))).await?;
    let (mut rows, mut seen) = (Vec::new(), BTreeSet::new());
    let mut stream = session.stream(&stored_rows(derivation)).await?;
    while let Some(batch) = stream.try_next().await? {
        cells(&canonical(&batch)?, run, |key, cell| {
            let own = made.get(&key);
            if !own.is_some_and(|own| own.is_near(&cell, tolerance)) {
                rows.push(difference(derivation, &key, own, Some(&cell), tolerance));
            }
            seen.insert(key);
        })?;
    }
    let unseen = made.iter().filter(|(key, _)| !seen.contains(*key));
    rows.extend(unseen.map(|(key, own)| difference(derivation, key, Some(own), None, tolerance)));
    Ok(Compared::Rows(rows))
}

fn stored_rows(derivation: &Derivation) -> String {
    let columns = match derivation.kind {
        Kind::Reward => "run_id, rollout_id, call_id, value",
        Kind::Credit => "run_id, rollout_id, call_id, value, token_values",
    };
    format!("SELECT {columns} FROM {}_history WHERE {}", derivation.kind.table(), derivation.condition())
}

const COLUMNS: [&str; 5] = ["run_id", "rollout_id", "call_id", "value", "token_values"];

/// The columns that are compared, in one type each.
fn canonical(batch: &RecordBatch) -> Result<RecordBatch> {
    let floats = DataType::List(Field::new("element", DataType::Float32, true).into());
    let kinds = [DataType::Utf8, DataType::Utf8, DataType::Utf8, DataType::Float64, floats];
    let columns = COLUMNS.iter().zip(&kinds).map(|(name, kind)| {
        let array: ArrayRef = match batch.column_by_name(name) {
            Some(array) => cast(array, kind)?,
            None => new_null_array(kind, batch.num_rows()),
        };
        Ok((*name, array, true))
    });
    Ok(RecordBatch::try_from_iter_with_nullable(columns.collect::<Result<Vec<_>>>()?)?)
}

/// The sum of row digests: equal for equal rows in whatever order.
#[derive(Default)]
struct Sum {
    sum: [u64; 4],
}

impl Sum {
    fn add(&mut self, batch: &RecordBatch, run: &BTreeSet<String>) -> Result<()> {
        let runs = text(batch, "run_id")?;
        for (row, digest) in row_digests(batch, &COLUMNS)?.into_iter().enumerate() {
            if runs.is_valid(row) && run.contains(runs.value(row)) {
                for (word, bytes) in self.sum.iter_mut().zip(digest.as_chunks::<8>().0) {
                    *word = word.wrapping_add(u64::from_le_bytes(*bytes));
                }
            }
        }
        Ok(())
    }
}

/// Run, rollout and call.
type Key = (String, String, Option<String>);

/// What a row gives.
#[derive(Debug, Clone, PartialEq)]
struct Cell {
    value: Option<f64>,
    tokens: Option<Vec<Option<f64>>>,
}

impl Cell {
    fn is_near(&self, other: &Self, tolerance: f64) -> bool {
        near(self.value, other.value, tolerance) && self.first_difference(other, tolerance).is_none()
    }

    fn first_difference(&self, other: &Self, tolerance: f64) -> Option<usize> {
        match (&self.tokens, &other.tokens) {
            (None, None) => None,
            (Some(own), Some(other)) => {
                let longest = own.len().max(other.len());
                (0..longest).find(|at| match (own.get(*at), other.get(*at)) {
                    (Some(own), Some(other)) => !near(*own, *other, tolerance),
                    _ => true,
                })
            }
            _ => Some(0),
        }
    }
}

fn near(a: Option<f64>, b: Option<f64>, tolerance: f64) -> bool {
    match (a, b) {
        (None, None) => true,
        (Some(a), Some(b)) => {
            (a.is_nan() && b.is_nan())
                || a.total_cmp(&b).is_eq()
                || (a - b).abs() <= tolerance * a.abs().max(b.abs()).max(1.0)
        }
        _ => false,
    }
}

fn cells(batch: &RecordBatch, run: &BTreeSet<String>, mut each: impl FnMut(Key, Cell)) -> Result<()> {
    let (runs, rollouts, calls) = (text(batch, "run_id")?, text(batch, "rollout_id")?, text(batch, "call_id")?);
    let (values, tokens) = (doubles(batch, "value")?, crate::tables::tokens::list(batch, "token_values")?);
    for row in (0..batch.num_rows()).filter(|row| runs.is_valid(*row) && run.contains(runs.value(*row))) {
        let call = calls.is_valid(row).then(|| calls.value(row).to_owned());
        let tokens = if tokens.is_valid(row) {
            let items = cast(&tokens.value(row), &DataType::Float64)?;
            Some(items.as_primitive::<Float64Type>().iter().collect())
        } else {
            None
        };
        let value = values.is_valid(row).then(|| values.value(row));
        each((runs.value(row).to_owned(), rollouts.value(row).to_owned(), call), Cell { value, tokens });
    }
    Ok(())
}

fn difference(derivation: &Derivation, key: &Key, own: Option<&Cell>, stored: Option<&Cell>, tolerance: f64) -> Found {
    let position = match (own, stored) {
        (Some(own), Some(stored)) => own.first_difference(stored, tolerance),
        _ => None,
    };
    let value = |cell: Option<&Cell>| match (cell, position) {
        (None, _) => "no row".to_owned(),
        (Some(cell), Some(at)) => {
            let token = cell.tokens.as_ref().and_then(|tokens| tokens.get(at).copied());
            token.map_or_else(|| "no value".to_owned(), shown)
        }
        (Some(cell), None) => shown(cell.value),
    };
    let (expected, observed) = (value(own), value(stored));
    let (run, rollout, call) = key;
    let place = call.as_ref().map_or_else(String::new, |call| format!(", call {call}"));
    let token = position.map_or_else(String::new, |at| format!(" at token {at}"));
    Found {
        run: run.clone(),
        rollout: Some(rollout.clone()),
        call: call.clone(),
        derivation: derivation.id.clone(),
        position: position.and_then(|at| i32::try_from(at).ok()),
        message: format!(
            "{} of {} gives rollout {rollout}{place} {observed}{token}; its recipe gives {expected}",
            derivation.kind.table(),
            derivation.name
        ),
        expected: Some(expected),
        observed: Some(observed),
        ..Found::default()
    }
}
