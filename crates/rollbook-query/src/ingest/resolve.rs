//! Fills `run_id`, `step` and `group_id` below rollouts, from what the source and the lake know.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Int64Array, RecordBatch, StringArray};
use arrow::compute::filter_record_batch;
use arrow::datatypes::Int64Type;
use rollbook_lake::{Lake, Snapshot};
use rollbook_schema::Table;

use super::files;
use crate::error::Result;

/// Tables whose `step` and `group_id` are those of their rollout.
const FILLED: [&str; 7] =
    ["calls", "call_payloads", "token_signals", "environment_records", "scores", "credits", "exclusions"];

/// Whether a table's `step` and `group_id` are filled from its rollout.
pub(super) fn is_filled(table: &str) -> bool {
    FILLED.contains(&table)
}

/// Where a rollout stands: its step and sampling group.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Place {
    step: Option<i64>,
    group_id: Option<String>,
}

/// What the source has told so far about runs, rollouts and builds.
pub(crate) struct Resolver<'a> {
    lake: &'a Lake,
    head: &'a Snapshot,
    option_run: Option<String>,
    places: HashMap<String, HashMap<String, Place>>,
    runs_of_rollout: HashMap<String, Option<String>>,
    runs_of_build: HashMap<String, String>,
    runs: BTreeSet<String>,
    lake_places: HashMap<String, HashMap<String, Place>>,
}

/// A batch with its run known, and the rows whose run is not known yet.
pub(super) struct Split {
    /// Rows with a run.
    pub(super) ready: Option<RecordBatch>,
    /// Rows without one, to be tried again at the source's end.
    pub(super) waiting: Option<RecordBatch>,
}

impl<'a> Resolver<'a> {
    /// Starts with nothing known but the caller's own choice.
    pub(crate) fn new(lake: &'a Lake, head: &'a Snapshot, option_run: Option<String>) -> Self {
        Self {
            lake,
            head,
            option_run,
            places: HashMap::new(),
            runs_of_rollout: HashMap::new(),
            runs_of_build: HashMap::new(),
            runs: BTreeSet::new(),
            lake_places: HashMap::new(),
        }
    }

    /// Fills the run of each row by: its own, the caller's, its rollout's, its build's, and `last`, the only run there is.
    pub(super) fn runs(&self, batch: &RecordBatch, last: Option<&str>) -> Result<Split> {
        let Some(own) = batch.column_by_name("run_id").map(|column| column.as_string::<i32>().clone()) else {
            return Ok(Split { ready: Some(batch.clone()), waiting: None });
        };
        if own.null_count() == 0 {
            return Ok(Split { ready: Some(batch.clone()), waiting: None });
        }
        let rollouts = text(batch, "rollout_id");
        let builds = text(batch, "build_id");
        let filled: StringArray = (0..batch.num_rows())
            .map(|row| {
                value(Some(&own), row)
                    .or(self.option_run.as_deref())
                    .or_else(|| self.runs_of_rollout.get(value(rollouts, row)?)?.as_deref())
                    .or_else(|| self.runs_of_build.get(value(builds, row)?).map(String::as_str))
                    .or(last)
            })
            .collect();
        let known: BooleanArray = (0..filled.len()).map(|row| Some(filled.is_valid(row))).collect();
        let batch = replace(batch, "run_id", Arc::new(filled))?;
        let unknown = arrow::compute::not(&known)?;
        let part = |mask: &BooleanArray| -> Result<Option<RecordBatch>> {
            let rows = filter_record_batch(&batch, mask)?;
            Ok((rows.num_rows() > 0).then_some(rows))
        };
        Ok(Split { ready: part(&known)?, waiting: part(&unknown)? })
    }

    /// Learns from rows whose run is known.
    pub(super) fn observe(&mut self, table: &Table, batch: &RecordBatch) {
        let Some(runs) = text(batch, "run_id") else {
            return;
        };
        for row in 0..batch.num_rows() {
            if let Some(run) = value(Some(runs), row)
                && !self.runs.contains(run)
            {
                self.runs.insert(run.to_owned());
            }
        }
        match table.name.as_str() {
            "rollouts" => self.observe_rollouts(runs, batch),
            "builds" => {
                let builds = text(batch, "build_id");
                for row in 0..batch.num_rows() {
                    if let (Some(run), Some(build)) = (value(Some(runs), row), value(builds, row)) {
                        self.runs_of_build.entry(build.to_owned()).or_insert_with(|| run.to_owned());
                    }
                }
            }
            _ => {}
        }
    }

    fn observe_rollouts(&mut self, runs: &StringArray, batch: &RecordBatch) {
        let (rollouts, groups, steps) = (text(batch, "rollout_id"), text(batch, "group_id"), long(batch, "step"));
        for row in 0..batch.num_rows() {
            let (Some(run), Some(rollout)) = (value(Some(runs), row), value(rollouts, row)) else {
                continue;
            };
            note_run(&mut self.runs_of_rollout, rollout, run);
            if !self.places.contains_key(run) {
                self.places.insert(run.to_owned(), HashMap::new());
            }
            let Some(places) = self.places.get_mut(run) else {
                continue;
            };
            let place = places.entry(rollout.to_owned()).or_default();
            // The first non-null step and group of a rollout stand.
            place.step = place.step.or_else(|| number(steps, row));
            if place.group_id.is_none() {
                place.group_id = value(groups, row).map(str::to_owned);
            }
        }
    }

    /// The run for rows that nothing else places: the only run of the source, else the only run of the lake.
    pub(super) fn only_run(&self) -> Option<String> {
        let mut runs = self.runs.iter();
        match (runs.next(), runs.next()) {
            (Some(run), None) => return Some(run.clone()),
            (Some(_), Some(_)) => return None,
            (None, _) => {}
        }
        // Files of the tables below runs hold one run each, so that their ranges name it without a read.
        let mut runs = BTreeSet::new();
        for file in self.head.tables().flat_map(|(_, state)| &state.files) {
            match &file.run_id {
                Some((least, greatest)) if least == greatest => {
                    runs.insert(least.clone());
                }
                Some(_) => return None,
                None => {}
            }
        }
        if runs.len() == 1 { runs.pop_first() } else { None }
    }

    /// Fills `step` and `group_id` from the rollout; returns also whether a row's rollout is unknown to source and lake.
    pub(crate) async fn places(&mut self, table: &Table, batch: RecordBatch) -> Result<(RecordBatch, bool)> {
        if !is_filled(&table.name) {
            return Ok((batch, false));
        }
        let (steps, groups) = (long(&batch, "step"), text(&batch, "group_id"));
        let whole = steps.is_some_and(|column| column.null_count() == 0)
            && groups.is_some_and(|column| column.null_count() == 0);
        if whole {
            return Ok((batch, false));
        }
        self.look_up(&batch).await?;
        let (steps, groups) = (long(&batch, "step"), text(&batch, "group_id"));
        let (runs, rollouts) = (text(&batch, "run_id"), text(&batch, "rollout_id"));
        let mut unresolved = false;
        let mut filled_steps = Vec::with_capacity(batch.num_rows());
        let mut filled_groups = Vec::with_capacity(batch.num_rows());
        for row in 0..batch.num_rows() {
            let (step, group) = (number(steps, row), value(groups, row));
            let place = match (value(runs, row), value(rollouts, row)) {
                (Some(run), Some(rollout)) => {
                    let place = self.place(run, rollout);
                    unresolved |= place.is_none() && (step.is_none() || group.is_none());
                    place
                }
                _ => None,
            };
            filled_steps.push(step.or_else(|| place.and_then(|place| place.step)));
            filled_groups.push(group.or_else(|| place.and_then(|place| place.group_id.as_deref())));
        }
        let filled_steps: ArrayRef = Arc::new(Int64Array::from(filled_steps));
        let filled_groups: ArrayRef = Arc::new(StringArray::from(filled_groups));
        let batch = replace(&batch, "step", filled_steps)?;
        Ok((replace(&batch, "group_id", filled_groups)?, unresolved))
    }

    fn place(&self, run: &str, rollout: &str) -> Option<&Place> {
        let here = self.places.get(run).and_then(|places| places.get(rollout));
        here.or_else(|| self.lake_places.get(run).and_then(|places| places.get(rollout)))
    }

    /// Reads the lake's rollouts of a run, once, when a row names a rollout that the source does not describe.
    async fn look_up(&mut self, batch: &RecordBatch) -> Result<()> {
        let (runs, rollouts) = (text(batch, "run_id"), text(batch, "rollout_id"));
        let mut missing = BTreeSet::new();
        for row in 0..batch.num_rows() {
            let (Some(run), Some(rollout)) = (value(runs, row), value(rollouts, row)) else {
                continue;
            };
            if !self.lake_places.contains_key(run) && !missing.contains(run) && self.place(run, rollout).is_none() {
                missing.insert(run.to_owned());
            }
        }
        for run in missing {
            let places = self.read_places(&run).await?;
            self.lake_places.insert(run, places);
        }
        Ok(())
    }

    async fn read_places(&self, run: &str) -> Result<HashMap<String, Place>> {
        let mut rows: Vec<(i64, String, Place)> = Vec::new();
        for file in self.head.table("rollouts").files.iter().filter(|file| files::may_hold_run(file, run)) {
            for batch in files::read(self.lake, file, &["run_id", "rollout_id", "step", "group_id", "revision"]).await?
            {
                let (runs, rollouts) = (text(&batch, "run_id"), text(&batch, "rollout_id"));
                let (groups, steps) = (text(&batch, "group_id"), long(&batch, "step"));
                let revisions = long(&batch, "revision");
                rows.extend((0..batch.num_rows()).filter(|&row| value(runs, row) == Some(run)).filter_map(|row| {
                    let place = Place { step: number(steps, row), group_id: value(groups, row).map(str::to_owned) };
                    Some((number(revisions, row).unwrap_or_default(), value(rollouts, row)?.to_owned(), place))
                }));
            }
        }
        rows.sort_by_key(|(revision, _, _)| *revision);
        let mut places: HashMap<String, Place> = HashMap::new();
        for (_, rollout, found) in rows {
            let place = places.entry(rollout).or_default();
            place.step = place.step.or(found.step);
            place.group_id = place.group_id.take().or(found.group_id);
        }
        Ok(places)
    }
}

/// A rollout id that two runs of the source use names no run by itself.
fn note_run(runs: &mut HashMap<String, Option<String>>, rollout: &str, run: &str) {
    match runs.get_mut(rollout) {
        None => {
            runs.insert(rollout.to_owned(), Some(run.to_owned()));
        }
        Some(known) if known.as_deref() != Some(run) => *known = None,
        Some(_) => {}
    }
}

/// A text column by name.
pub(crate) fn text<'b>(batch: &'b RecordBatch, name: &str) -> Option<&'b StringArray> {
    batch.column_by_name(name).and_then(|column| column.as_string_opt::<i32>())
}

/// A column of longs by name.
pub(crate) fn long<'b>(batch: &'b RecordBatch, name: &str) -> Option<&'b Int64Array> {
    batch.column_by_name(name).and_then(|column| column.as_primitive_opt::<Int64Type>())
}

/// A row's text, none where it is null.
pub(crate) fn value(column: Option<&StringArray>, row: usize) -> Option<&str> {
    column.and_then(|column| column.is_valid(row).then(|| column.value(row)))
}

/// A row's number, none where it is null.
pub(crate) fn number(column: Option<&Int64Array>, row: usize) -> Option<i64> {
    column.and_then(|column| column.is_valid(row).then(|| column.value(row)))
}

/// The batch with one column replaced.
pub(crate) fn replace(batch: &RecordBatch, name: &str, column: ArrayRef) -> Result<RecordBatch> {
    let index = batch.schema().index_of(name)?;
    let mut columns = batch.columns().to_vec();
    columns[index] = column;
    Ok(RecordBatch::try_new(batch.schema(), columns)?)
}
