//! Two rewards, credits or builds side by side: where they agree, where they differ most, and which setting differs.
//!
//! ```text
//! A, B ─ side ──> rows of rewards or credits, rows of samples
//!      ─ items ─> one number a rollout, call or token: 128-bit keys, position, value; sorted outside of memory
//!      ─ merge ─> pairs in one order ─ tally ─> counts, largest differences, ranks, distribution
//! derivations ─ settings ─> what the two were made with, and what was not the same
//! ```
//!
//! A credit of rollouts beside one of calls or tokens is spread over the finer ones. Of builds, trained tokens are paired by
//! rollout, call and output offset, with their advantages and their loss weights. Everything is linear or `n log n`; pairs
//! are held up to [`PAIRS`], beyond which ranks and distributions are those of the rollouts' means.

mod histogram;
mod items;
mod merge;
mod names;
mod ranks;
mod settings;
mod side;
mod tally;
#[cfg(test)]
mod tests;

pub use histogram::Histogram;
pub use settings::Setting;
pub use tally::{Difference, Measure};

use crate::error::{Error, Result};
use crate::session::Session;
use items::{Level, Sorting};
use merge::Merge;
use side::Side;
use tally::{Combine, Tally};

/// Pairs of values that are held for ranks and distributions.
pub const PAIRS: usize = 8 << 20;

/// How two results are compared.
#[derive(Debug, Clone, Default)]
pub struct CompareOptions {
    /// `reward`, `credit` or `build`, where a name could be several.
    pub kind: Option<String>,
    /// Run to which it is restricted.
    pub run: Option<String>,
    /// How many of the largest differences are kept; 10 where there is none.
    pub top: Option<usize>,
}

/// What was found.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Comparison {
    /// reward, credit or build.
    pub kind: &'static str,
    /// What was asked for, with the derivations it names.
    pub a: (String, Vec<String>),
    /// The other side.
    pub b: (String, Vec<String>),
    /// rollout, call or token.
    pub level: &'static str,
    /// One for rewards and credits; advantage and loss weight for builds.
    pub measures: Vec<Measure>,
    /// Settings that are not the same.
    pub settings: Vec<Setting>,
    /// What the user should know.
    pub notes: Vec<String>,
}

/// Compares what `a` and `b` name: `NAME`, `NAME@ID`, or the id of a derivation or build.
pub async fn compare(session: &Session, a: &str, b: &str, options: &CompareOptions) -> Result<Comparison> {
    let side_a = Side::find(session, a, options).await?;
    let side_b = Side::find(session, b, options).await?;
    if side_a.kind() != side_b.kind() {
        return Err(Error::invalid(format!(
            "{a} is a {}, {b} a {}: only results of one kind compare; name it with --kind where a name is both",
            side_a.kind(),
            side_b.kind()
        )));
    }
    let mut notes = Vec::new();
    let level_a = side_a.level(session).await?;
    let level_b = side_b.level(session).await?;
    let level = level_a.max(level_b);
    if level_a != level_b {
        notes.push(format!(
            "{a} is of level {}, {b} of level {}: the coarser one is spread over each {}",
            level_a.as_str(),
            level_b.as_str(),
            level.as_str()
        ));
    }
    let mut sorting_a = Sorting::start(session)?;
    side_a.read(session, level, &mut sorting_a).await?;
    let sorted_a = sorting_a.finish().await?;
    let mut sorting_b = Sorting::start(session)?;
    side_b.read(session, level, &mut sorting_b).await?;
    let sorted_b = sorting_b.finish().await?;

    let top = options.top.unwrap_or(10);
    let is_stored_float = level == Level::Token;
    let mut tallies = if side_a.kind() == "build" {
        vec![
            Tally::new("advantage", Combine::Mean, is_stored_float, top),
            Tally::new("loss_weight", Combine::Sum, false, top),
        ]
    } else {
        vec![Tally::new("value", Combine::Mean, is_stored_float, top)]
    };
    let mut merge = Merge::new(sorted_a, sorted_b);
    while let Some((key, a, b)) = merge.next().await? {
        for (number, tally) in tallies.iter_mut().enumerate() {
            tally.add(key, a.map(|values| values[number]), b.map(|values| values[number]));
        }
    }
    let mut measures: Vec<Measure> = tallies.into_iter().map(|tally| tally.finish(level)).collect();
    names::fill(session, [&side_a, &side_b], &mut measures).await?;
    if measures.iter().all(|measure| measure.both + measure.only_a + measure.only_b == 0) {
        return Err(Error::invalid(format!("neither {a} nor {b} has a value to compare")));
    }
    let settings = settings::differences(session, &side_a, &side_b).await?;
    Ok(Comparison {
        kind: side_a.kind(),
        a: (a.to_owned(), side_a.derivation_ids().to_vec()),
        b: (b.to_owned(), side_b.derivation_ids().to_vec()),
        level: level.as_str(),
        measures,
        settings,
        notes,
    })
}
