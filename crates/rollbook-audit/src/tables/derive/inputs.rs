//! What the judgement of derivations reads: the derivations themselves, and columns of the lake as plain values.

use std::collections::{BTreeMap, BTreeSet};

use arrow::array::{Array, AsArray, Float64Array, ListArray, RecordBatch, StringArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float64Type, Int64Type};
use futures::TryStreamExt;
use rollbook_query::{Result, Session};
use serde_json::Value;

use crate::tables::quoted;
use crate::tables::tokens::{column, longs, text};

/// What a derivation makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Reward,
    Credit,
}

impl Kind {
    /// The table that holds its rows.
    pub(super) fn table(self) -> &'static str {
        match self {
            Self::Reward => "rewards",
            Self::Credit => "credits",
        }
    }
}

const DERIVATIONS: &str = "
SELECT made.kind, made.run_id, made.name, made.derivation_id, known.recorded_run, known.recipe, known.parameters,
    known.group_key, known.functions,
    -- A number that came with an import is a snapshot of another lake.
    CASE WHEN known.import_id IS NULL THEN known.snapshot END AS snapshot, known.upstream_derivation_ids
FROM (
    SELECT 'reward' AS kind, run_id, name, derivation_id FROM rewards_history GROUP BY run_id, name, derivation_id
    UNION ALL
    SELECT 'credit', run_id, name, derivation_id FROM credits_history GROUP BY run_id, name, derivation_id
) AS made
-- Trainers number by themselves: of two runs that have the id, each means its own.
LEFT JOIN (
    SELECT *
    FROM (
        SELECT
            used.run_id, derivation.derivation_id, derivation.run_id AS recorded_run, derivation.recipe, derivation.parameters,
            derivation.group_key, derivation.functions, derivation.import_id, derivation.snapshot, derivation.upstream_derivation_ids,
            row_number() OVER (
                PARTITION BY used.run_id, derivation.derivation_id
                ORDER BY coalesce(derivation.run_id = used.run_id, false) DESC, derivation.created_at DESC
            ) AS place
        FROM (
            SELECT run_id, derivation_id FROM rewards_history UNION SELECT run_id, derivation_id FROM credits_history
        ) AS used
        JOIN derivations AS derivation ON derivation.derivation_id = used.derivation_id
    )
    WHERE place = 1
) AS known ON known.run_id = made.run_id AND known.derivation_id = made.derivation_id
LEFT JOIN (
    SELECT DISTINCT 'reward' AS kind, run_id, name, derivation_id FROM rewards
    UNION ALL SELECT DISTINCT 'credit', run_id, name, derivation_id FROM credits
) AS current
    ON current.kind = made.kind AND current.run_id = made.run_id AND current.name IS NOT DISTINCT FROM made.name
    AND current.derivation_id IS NOT DISTINCT FROM made.derivation_id
WHERE made.name IS NOT NULL AND ((known.snapshot IS NOT NULL AND known.import_id IS NULL) OR current.kind IS NOT NULL)
ORDER BY made.kind DESC, made.run_id, made.name, made.derivation_id";

/// A derivation whose rows are in the lake, recorded or not.
#[derive(Debug, Clone)]
pub(super) struct Derivation {
    pub(super) kind: Kind,
    /// Run of its rows; of what we made over several runs at once, the first.
    pub(super) run: String,
    /// Runs of its rows that are to be judged: what we made over several is judged at once.
    pub(super) runs: BTreeSet<String>,
    pub(super) name: String,
    pub(super) id: Option<String>,
    pub(super) recorded_run: Option<String>,
    pub(super) recipe: Option<String>,
    pub(super) parameters: Option<String>,
    pub(super) group_key: Option<String>,
    pub(super) functions: BTreeMap<String, u64>,
    /// The snapshot of this lake that it was computed over; none of what was imported.
    pub(super) snapshot: Option<u64>,
    pub(super) upstream_ids: Vec<String>,
}

impl Derivation {
    /// Whether Rollbook made it.
    pub(super) fn is_own(&self) -> bool {
        self.snapshot.is_some()
    }

    /// The condition that picks its rows.
    pub(super) fn condition(&self) -> String {
        let id = match &self.id {
            Some(id) => format!("derivation_id = {}", quoted(id)),
            None => "derivation_id IS NULL".to_owned(),
        };
        let runs: Vec<String> = self.runs.iter().map(|run| quoted(run)).collect();
        format!("run_id IN ({}) AND name = {} AND {id}", runs.join(", "), quoted(&self.name))
    }

    /// A number among its parameters, by any of some names.
    pub(super) fn parameter(&self, names: &[&str]) -> Option<f64> {
        let values: BTreeMap<String, Value> = serde_json::from_str(self.parameters.as_deref()?).ok()?;
        names.iter().find_map(|name| match values.get(*name)? {
            Value::String(text) => text.parse().ok(),
            value => value.as_f64(),
        })
    }
}

/// The derivations of the session's rewards and credits: all that we made, of imported ones the current.
pub(super) async fn derivations(session: &Session) -> Result<Vec<Derivation>> {
    let mut found: Vec<Derivation> = Vec::new();
    for batch in session.collect(DERIVATIONS).await? {
        let texts = |name: &str| text(&batch, name);
        let (kinds, runs, names, ids) = (texts("kind")?, texts("run_id")?, texts("name")?, texts("derivation_id")?);
        let (recorded, recipes) = (texts("recorded_run")?, texts("recipe")?);
        let (parameters, keys, functions) = (texts("parameters")?, texts("group_key")?, texts("functions")?);
        let (snapshots, upstream) = (longs(&batch, "snapshot")?, lists(&batch, "upstream_derivation_ids")?);
        let own = |values: &StringArray, row: usize| values.is_valid(row).then(|| values.value(row).to_owned());
        for row in 0..batch.num_rows() {
            let id = own(&ids, row);
            if let Some(known) = found.iter_mut().find(|known| snapshots.is_valid(row) && known.id == id) {
                known.runs.insert(runs.value(row).to_owned());
                continue;
            }
            found.push(Derivation {
                runs: BTreeSet::from([runs.value(row).to_owned()]),
                kind: if kinds.value(row) == "reward" { Kind::Reward } else { Kind::Credit },
                run: runs.value(row).to_owned(),
                name: names.value(row).to_owned(),
                id,
                recorded_run: own(&recorded, row),
                recipe: own(&recipes, row),
                parameters: own(&parameters, row),
                group_key: own(&keys, row),
                functions: own(&functions, row).and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default(),
                snapshot: snapshots.is_valid(row).then(|| u64::try_from(snapshots.value(row)).ok()).flatten(),
                upstream_ids: strings(&upstream, row)?,
            });
        }
    }
    Ok(found)
}

/// Rows of a query, each handed over with its batch.
pub(super) async fn each_row(
    session: &Session,
    sql: &str,
    mut row: impl FnMut(&Row<'_>) -> Result<()> + Send,
) -> Result<()> {
    let mut stream = session.stream(sql).await?;
    while let Some(batch) = stream.try_next().await? {
        let batch = plain(&batch)?;
        for at in 0..batch.num_rows() {
            row(&Row { batch: &batch, at })?;
        }
    }
    Ok(())
}

/// A batch with one type each for texts, integers and numbers.
fn plain(batch: &RecordBatch) -> Result<RecordBatch> {
    let schema = batch.schema();
    let columns = schema.fields().iter().zip(batch.columns()).map(|(field, array)| {
        let kind = match array.data_type() {
            DataType::Utf8View | DataType::LargeUtf8 => DataType::Utf8,
            kind if kind.is_integer() => DataType::Int64,
            kind if kind.is_numeric() => DataType::Float64,
            kind => kind.clone(),
        };
        Ok((field.name().clone(), cast(array, &kind)?, true))
    });
    Ok(RecordBatch::try_from_iter_with_nullable(columns.collect::<Result<Vec<_>>>()?)?)
}

/// A row of a batch, read column by column.
pub(super) struct Row<'a> {
    batch: &'a RecordBatch,
    at: usize,
}

impl Row<'_> {
    pub(super) fn text(&self, name: &str) -> Result<Option<String>> {
        let column = column(self.batch, name)?;
        let values = column.as_string_opt::<i32>().filter(|values| values.is_valid(self.at));
        Ok(values.map(|values| values.value(self.at).to_owned()))
    }

    pub(super) fn long(&self, name: &str) -> Result<Option<i64>> {
        let column = column(self.batch, name)?;
        let values = column.as_primitive_opt::<Int64Type>().filter(|values| values.is_valid(self.at));
        Ok(values.map(|values| values.value(self.at)))
    }

    pub(super) fn double(&self, name: &str) -> Result<Option<f64>> {
        let column = column(self.batch, name)?;
        if let Some(values) = column.as_primitive_opt::<Float64Type>() {
            return Ok(values.is_valid(self.at).then(|| values.value(self.at)));
        }
        // Counts are far below 2^53.
        #[expect(clippy::cast_precision_loss, reason = "counts of rows and tokens")]
        Ok(self.long(name)?.map(|value| value as f64))
    }

    pub(super) fn is_true(&self, name: &str) -> Result<bool> {
        let values = column(self.batch, name)?.as_boolean_opt();
        Ok(values.is_some_and(|values| values.is_valid(self.at) && values.value(self.at)))
    }

    /// A list of numbers, none where it is null.
    pub(super) fn numbers(&self, name: &str) -> Result<Option<Vec<Option<f64>>>> {
        let lists = lists(self.batch, name)?;
        if lists.is_null(self.at) {
            return Ok(None);
        }
        let items = cast(&lists.value(self.at), &DataType::Float64)?;
        Ok(Some(items.as_primitive::<Float64Type>().iter().collect()))
    }

    /// A list of flags, none where it is null; a null item is false.
    pub(super) fn flags(&self, name: &str) -> Result<Option<Vec<bool>>> {
        let lists = lists(self.batch, name)?;
        if lists.is_null(self.at) {
            return Ok(None);
        }
        let items = cast(&lists.value(self.at), &DataType::Boolean)?;
        Ok(Some(items.as_boolean().iter().map(|flag| flag.unwrap_or(false)).collect()))
    }

    /// A map of numbers by name, none where it is null.
    pub(super) fn named_numbers(&self, name: &str) -> Result<Option<Vec<(String, Option<f64>)>>> {
        let column = column(self.batch, name)?;
        let Some(map) = column.as_map_opt().filter(|map| map.is_valid(self.at)) else {
            return Ok(None);
        };
        let entries = map.value(self.at);
        let (names, values) = (cast(entries.column(0), &DataType::Utf8)?, cast(entries.column(1), &DataType::Float64)?);
        let names = names.as_string::<i32>().iter().map(|name| name.unwrap_or_default().to_owned());
        Ok(Some(names.zip(values.as_primitive::<Float64Type>().iter()).collect()))
    }

    /// A list of texts; null items are left out.
    pub(super) fn texts(&self, name: &str) -> Result<Vec<String>> {
        strings(&lists(self.batch, name)?, self.at)
    }
}

/// A batch's numbers as doubles.
pub(super) fn doubles(batch: &RecordBatch, name: &str) -> Result<Float64Array> {
    Ok(cast(column(batch, name)?, &DataType::Float64)?.as_primitive::<Float64Type>().clone())
}

fn lists(batch: &RecordBatch, name: &str) -> Result<ListArray> {
    crate::tables::tokens::list(batch, name)
}

fn strings(lists: &ListArray, row: usize) -> Result<Vec<String>> {
    if lists.is_null(row) {
        return Ok(Vec::new());
    }
    let items = cast(&lists.value(row), &DataType::Utf8)?;
    Ok(items.as_string::<i32>().iter().flatten().map(str::to_owned).collect())
}
