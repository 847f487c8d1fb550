//! Quarantine: what findings say should not train, recorded so that builds and exports leave it out, and lifted again.
//!
//! ```text
//! finding names      quarantined is
//! row of a build     that row                     level sample   (rows, where several answer to what it says)
//! a call             that call                    level call
//! a rollout          that rollout                 level rollout
//! a group            every rollout of the group   level rollout
//! nothing of these   nothing
//! ```
//!
//! Rows are only appended. A thing that stands already is not recorded again; one that was lifted is, if it is found again.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, Int32Array, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray,
};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use futures::TryStreamExt;
use rollbook_lake::{Intent, Lake};
use rollbook_query::quarantine::{RowPlace, STANDING};
use rollbook_query::{Error, Result, Session};
use serde::Serialize;
use uuid::Uuid;

use crate::check::Outcome;
use crate::record::{batch, publish, table, times, write};
use crate::report::{Finding, Report};
use crate::row_places::RowPlaces;
use crate::tables::quoted;

/// One thing that is quarantined.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Quarantined {
    /// Its id, by which it is lifted.
    pub quarantine_id: String,
    /// rollout, call or sample.
    pub level: String,
    /// Run.
    pub run_id: String,
    /// Step.
    pub step: Option<i64>,
    /// Group.
    pub group_id: Option<String>,
    /// Rollout.
    pub rollout_id: Option<String>,
    /// Call.
    pub call_id: Option<String>,
    /// Build.
    pub build_id: Option<String>,
    /// Epoch of the row.
    pub epoch: Option<i32>,
    /// Micro-batch of the row.
    pub micro_batch: Option<i32>,
    /// Rank of the row.
    pub rank: Option<i32>,
    /// Row of the build.
    pub row_index: Option<i32>,
    /// Why.
    pub reason: Option<String>,
    /// Audit it rests on.
    pub audit_id: Option<String>,
}

impl Quarantined {
    /// The place of a row.
    fn place(&self) -> RowPlace {
        RowPlace {
            step: self.step,
            epoch: self.epoch,
            micro_batch: self.micro_batch,
            rank: self.rank,
            row_index: self.row_index,
        }
    }

    /// What makes it the same thing.
    fn thing(&self) -> impl std::hash::Hash + Ord + use<> {
        match self.level.as_str() {
            // Trainers number the rows of each micro-batch anew.
            "sample" => (self.level.clone(), self.run_id.clone(), self.build_id.clone(), Some(self.place())),
            "call" => (self.level.clone(), self.run_id.clone(), self.call_id.clone(), None),
            _ => (self.level.clone(), self.run_id.clone(), self.rollout_id.clone(), None),
        }
    }
}

/// Reads what stands, of one run or of all.
pub async fn quarantined(session: &Session, run: Option<&str>) -> Result<Vec<Quarantined>> {
    let of_run = run.map_or_else(|| "true".to_owned(), |run| format!("run_id = {}", quoted(run)));
    let mut rows = session.stream(&format!("SELECT * FROM ({STANDING}) WHERE {of_run}")).await?;
    let mut found = Vec::new();
    while let Some(batch) = rows.try_next().await? {
        read(&batch, &mut found)?;
    }
    found.sort();
    Ok(found)
}

fn read(batch: &RecordBatch, found: &mut Vec<Quarantined>) -> Result<()> {
    let column = |name: &str, kind: DataType| -> Result<ArrayRef> {
        let column = batch.column_by_name(name).ok_or_else(|| Error::corrupt(format!("the scan lost {name}")))?;
        Ok(cast(column, &kind)?)
    };
    let texts = |name: &str| -> Result<StringArray> { Ok(column(name, DataType::Utf8)?.as_string::<i32>().clone()) };
    let (ids, levels, runs, groups) = (texts("quarantine_id")?, texts("level")?, texts("run_id")?, texts("group_id")?);
    let (rollouts, calls, builds) = (texts("rollout_id")?, texts("call_id")?, texts("build_id")?);
    let (reasons, audits) = (texts("reason")?, texts("audit_id")?);
    let places = RowPlace::of(batch)?;
    for (row, place) in places.into_iter().enumerate() {
        let text = |texts: &StringArray| texts.is_valid(row).then(|| texts.value(row).to_owned());
        found.push(Quarantined {
            quarantine_id: text(&ids).unwrap_or_default(),
            level: text(&levels).unwrap_or_default(),
            run_id: text(&runs).unwrap_or_default(),
            step: place.step,
            group_id: text(&groups),
            rollout_id: text(&rollouts),
            call_id: text(&calls),
            build_id: text(&builds),
            epoch: place.epoch,
            micro_batch: place.micro_batch,
            rank: place.rank,
            row_index: place.row_index,
            reason: text(&reasons),
            audit_id: text(&audits),
        });
    }
    Ok(())
}

/// Quarantines what a report's findings name, where they are at least as bad as `least`; returns what is new.
///
/// # Errors
///
/// A lake that cannot be written: nothing is recorded.
pub async fn quarantine(session: &Session, report: &Report, least: Outcome) -> Result<Vec<Quarantined>> {
    // At the newest snapshot: an earlier audit may have quarantined meanwhile.
    let newest = Session::open(session.lake(), None, session.options().clone()).await?;
    let mut things: BTreeMap<_, Quarantined> = BTreeMap::new();
    let standing: HashSet<_> = quarantined(&newest, None).await?.iter().map(Quarantined::thing).collect();
    let mut places = RowPlaces::default();
    for finding in report.findings.iter().filter(|finding| finding.outcome >= least) {
        for thing in things_of(&newest, finding, &mut places).await? {
            if !standing.contains(&thing.thing()) {
                things.entry(thing.thing()).or_insert(thing);
            }
        }
    }
    let mut things: Vec<Quarantined> = things.into_values().collect();
    for thing in &mut things {
        thing.quarantine_id = format!("quarantine-{}", Uuid::new_v4().simple());
    }
    append(session.lake(), &things, None, "quarantine").await?;
    Ok(things)
}

async fn things_of(session: &Session, finding: &Finding, places: &mut RowPlaces) -> Result<Vec<Quarantined>> {
    let Some(run_id) = finding.run_id.clone() else {
        return Ok(Vec::new());
    };
    let thing = |level: &str| Quarantined {
        quarantine_id: String::new(),
        level: level.to_owned(),
        run_id: run_id.clone(),
        step: finding.step,
        group_id: finding.group_id.clone(),
        rollout_id: finding.rollout_id.clone(),
        call_id: finding.call_id.clone(),
        build_id: None,
        epoch: None,
        micro_batch: None,
        rank: None,
        row_index: None,
        reason: Some(format!("{}: {}", finding.check, finding.message)),
        audit_id: finding.audit_id.clone(),
    };
    let rows = places.of(session, finding).await?;
    if !rows.is_empty() {
        let row = |place: RowPlace| Quarantined {
            step: place.step,
            build_id: finding.build_id.clone(),
            epoch: place.epoch,
            micro_batch: place.micro_batch,
            rank: place.rank,
            row_index: place.row_index,
            call_id: None,
            ..thing("sample")
        };
        return Ok(rows.into_iter().map(row).collect());
    }
    if finding.call_id.is_some() {
        return Ok(vec![thing("call")]);
    }
    if finding.rollout_id.is_some() {
        return Ok(vec![thing("rollout")]);
    }
    let Some(group) = &finding.group_id else {
        return Ok(Vec::new());
    };
    let sql = format!(
        "SELECT DISTINCT rollout_id FROM rollouts WHERE run_id = {} AND group_id = {} ORDER BY 1",
        quoted(&run_id),
        quoted(group)
    );
    let mut members = Vec::new();
    for batch in session.collect(&sql).await? {
        let names = cast(batch.column(0), &DataType::Utf8)?.as_string::<i32>().clone();
        let names = (0..names.len()).filter(|row| names.is_valid(*row)).map(|row| names.value(row).to_owned());
        members.extend(names.map(|rollout| Quarantined { rollout_id: Some(rollout), ..thing("rollout") }));
    }
    Ok(members)
}

/// Lifts what stands under some ids, or of some rollouts and calls; returns it.
///
/// # Errors
///
/// An id under which nothing stands.
pub async fn lift(session: &Session, ids: &[String]) -> Result<Vec<Quarantined>> {
    let newest = Session::open(session.lake(), None, session.options().clone()).await?;
    let standing = quarantined(&newest, None).await?;
    let names = |thing: &Quarantined| {
        let own =
            [Some(&thing.quarantine_id), thing.audit_id.as_ref(), thing.call_id.as_ref(), thing.rollout_id.as_ref()];
        own.into_iter().flatten().cloned().collect::<BTreeSet<String>>()
    };
    for id in ids {
        if !standing.iter().any(|thing| names(thing).contains(id)) {
            return Err(Error::not_found(format!(
                "nothing stands in quarantine under {id}: `rollbook quarantine list` shows what does"
            )));
        }
    }
    let lifted: Vec<Quarantined> =
        standing.into_iter().filter(|thing| ids.iter().any(|id| names(thing).contains(id))).collect();
    append(session.lake(), &lifted, Some(session.lake().now_us()), "lift quarantine").await?;
    Ok(lifted)
}

async fn append(lake: &Lake, things: &[Quarantined], lifted_at: Option<i64>, reason: &str) -> Result<()> {
    if things.is_empty() {
        return Ok(());
    }
    let mut sorted: Vec<&Quarantined> = things.iter().collect();
    // The order of rows in a file.
    sorted.sort_by(|a, b| {
        (&a.run_id, a.step, &a.group_id, &a.rollout_id).cmp(&(&b.run_id, b.step, &b.group_id, &b.rollout_id))
    });
    let mut changes = Vec::new();
    // No file holds two runs.
    for run in sorted.chunk_by(|a, b| a.run_id == b.run_id) {
        changes.push(write(lake, "quarantine", &[rows(run, lifted_at, lake.now_us())?]).await?);
    }
    let mut change = changes.remove(0);
    changes.into_iter().for_each(|more| change.add.extend(more.add));
    publish(lake, Intent::append(reason), vec![change]).await?;
    Ok(())
}

fn rows(things: &[&Quarantined], lifted_at: Option<i64>, now: i64) -> Result<RecordBatch> {
    let count = things.len();
    let text = |value: fn(&Quarantined) -> Option<&str>| -> ArrayRef {
        Arc::new(things.iter().map(|thing| value(thing)).collect::<StringArray>())
    };
    let int = |value: fn(&Quarantined) -> Option<i32>| -> ArrayRef {
        Arc::new(things.iter().map(|thing| value(thing)).collect::<Int32Array>())
    };
    let lifted = TimestampMicrosecondArray::from(vec![lifted_at; count]).with_timezone("UTC");
    batch(
        table("quarantine")?,
        count,
        BTreeMap::from([
            ("quarantine_id", text(|thing| Some(&thing.quarantine_id))),
            ("level", text(|thing| Some(&thing.level))),
            ("run_id", text(|thing| Some(&thing.run_id))),
            ("step", Arc::new(things.iter().map(|thing| thing.step).collect::<Int64Array>()) as ArrayRef),
            ("group_id", text(|thing| thing.group_id.as_deref())),
            ("rollout_id", text(|thing| thing.rollout_id.as_deref())),
            ("call_id", text(|thing| thing.call_id.as_deref())),
            ("build_id", text(|thing| thing.build_id.as_deref())),
            ("epoch", int(|thing| thing.epoch)),
            ("micro_batch", int(|thing| thing.micro_batch)),
            ("rank", int(|thing| thing.rank)),
            ("row_index", int(|thing| thing.row_index)),
            ("reason", text(|thing| thing.reason.as_deref())),
            ("audit_id", text(|thing| thing.audit_id.as_deref())),
            ("lifted_at", Arc::new(lifted)),
            ("created_at", times(now, count)),
        ]),
    )
}
