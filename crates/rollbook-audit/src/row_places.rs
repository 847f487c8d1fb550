//! Which rows of a build a finding means.
//!
//! A row's number counts in its micro-batch on its rank, so that step, epoch, micro-batch, rank and number together name a row.
//! What a finding leaves out is looked up: where several rows answer to what it says, those that hold its call or rollout are meant.

use std::collections::HashMap;

use futures::TryStreamExt;
use rollbook_query::quarantine::RowPlace;
use rollbook_query::{Result, Session};

use crate::report::Finding;
use crate::tables::quoted;

const KEY: &str = "step, epoch, micro_batch, rank, row_index";

/// The places of builds' rows, each build read once.
#[derive(Default)]
pub(crate) struct RowPlaces {
    /// By run and build, then by row number.
    builds: HashMap<(String, String), HashMap<i32, Vec<RowPlace>>>,
}

impl RowPlaces {
    /// The rows that a finding means; what it says itself where the lake has no such row.
    pub(crate) async fn of(&mut self, session: &Session, finding: &Finding) -> Result<Vec<RowPlace>> {
        let (Some(run), Some(build), Some(row)) = (&finding.run_id, &finding.build_id, finding.row_index) else {
            return Ok(Vec::new());
        };
        let told = RowPlace {
            step: finding.step,
            epoch: finding.epoch,
            micro_batch: finding.micro_batch,
            rank: finding.rank,
            row_index: Some(row),
        };
        if told.epoch.is_some() && told.micro_batch.is_some() && told.rank.is_some() {
            return Ok(vec![told]);
        }
        let key = (run.clone(), build.clone());
        if !self.builds.contains_key(&key) {
            self.builds.insert(key.clone(), places_of(session, run, build).await?);
        }
        let rows = self.builds.get(&key).and_then(|rows| rows.get(&row));
        let meant: Vec<RowPlace> = rows.into_iter().flatten().filter(|place| told.means(place)).copied().collect();
        if meant.len() < 2 {
            return Ok(meant.first().map_or_else(|| vec![told], |place| vec![*place]));
        }
        let holding = holding(session, finding, (run, build, row)).await?;
        let narrower: Vec<RowPlace> = meant.iter().filter(|place| holding.contains(place)).copied().collect();
        Ok(if narrower.is_empty() { meant } else { narrower })
    }
}

async fn places_of(session: &Session, run: &str, build: &str) -> Result<HashMap<i32, Vec<RowPlace>>> {
    let sql = format!(
        "SELECT DISTINCT {KEY} FROM samples WHERE run_id = {} AND build_id = {} AND row_index IS NOT NULL",
        quoted(run),
        quoted(build)
    );
    let mut places: HashMap<i32, Vec<RowPlace>> = HashMap::new();
    for place in read(session, &sql).await? {
        if let Some(row) = place.row_index {
            places.entry(row).or_default().push(place);
        }
    }
    places.values_mut().for_each(|places| places.sort_unstable());
    Ok(places)
}

/// Rows of one number that hold what a finding names: its call, else its rollout.
async fn holding(session: &Session, finding: &Finding, row: (&str, &str, i32)) -> Result<Vec<RowPlace>> {
    let (run, build, row) = row;
    let named = match (&finding.call_id, &finding.rollout_id) {
        (Some(call), _) => format!("segment['call_id'] = {}", quoted(call)),
        (None, Some(rollout)) => format!("coalesce(segment['rollout_id'], rollout_id) = {}", quoted(rollout)),
        (None, None) => return Ok(Vec::new()),
    };
    let sql = format!(
        "SELECT DISTINCT {KEY} FROM (
             SELECT {KEY}, rollout_id, unnest(segments) AS segment FROM samples
             WHERE run_id = {} AND build_id = {} AND row_index = {row}
         ) WHERE {named}",
        quoted(run),
        quoted(build)
    );
    read(session, &sql).await
}

async fn read(session: &Session, sql: &str) -> Result<Vec<RowPlace>> {
    let mut stream = session.stream(sql).await?;
    let mut places = Vec::new();
    while let Some(batch) = stream.try_next().await? {
        places.extend(RowPlace::of(&batch)?);
    }
    Ok(places)
}
