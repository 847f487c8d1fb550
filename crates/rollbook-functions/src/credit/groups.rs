//! The rows of many groups, and the members of each: its distinct rollouts.

use std::cmp::Ordering;

use arrow::array::{Array, BooleanArray, Float64Array, Int64Array, StringArray};
use datafusion_common::{Result, exec_err};

use super::rule::{Missing, NotANumber, Reading};
use super::spread::{Counted, ScaledMoments};

/// Stands for the member of a row whose rollout is none.
pub(super) const NO_MEMBER: u32 = u32::MAX;

/// Which rows belong together: the rows of group after group, and where each group ends.
#[derive(Debug, Default)]
pub struct Groups {
    rows: Vec<u32>,
    ends: Vec<usize>,
}

impl Groups {
    /// Makes one group of the rows 0 to `rows`.
    pub fn one(rows: usize) -> Result<Self> {
        let Ok(count) = u32::try_from(rows) else {
            return exec_err!("a group of {rows} rows is too large: 4294967294 is the limit");
        };
        Ok(Self { rows: (0..count).collect(), ends: vec![rows] })
    }

    /// Makes groups of rows by the number of each row's group; numbers count from 0 to `count`.
    pub fn by_number(numbers: &[u32], count: usize) -> Result<Self> {
        let Ok(rows) = u32::try_from(numbers.len()) else {
            return exec_err!("{} rows are too many to group: 4294967294 is the limit", numbers.len());
        };
        let mut ends = vec![0; count];
        for number in numbers {
            ends[*number as usize] += 1;
        }
        // Each end first stands where its group begins, and moves up as the group fills.
        let mut start = 0;
        for end in &mut ends {
            start += std::mem::replace(end, start);
        }
        let mut placed = vec![0; numbers.len()];
        for (row, number) in (0..rows).zip(numbers) {
            let end = &mut ends[*number as usize];
            placed[*end] = row;
            *end += 1;
        }
        Ok(Self { rows: placed, ends })
    }

    pub(super) fn row_count(&self) -> usize {
        self.rows.len()
    }

    /// Returns the rows of every group.
    pub(super) fn iter(&self) -> impl Iterator<Item = &[u32]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, end)| &self.rows[start..*end])
    }
}

/// The columns that a credit window reads.
#[derive(Debug, Clone, Copy)]
pub(super) struct Columns<'a> {
    pub(super) values: &'a Float64Array,
    pub(super) rollout_ids: &'a StringArray,
    /// Rows that a rollout stands for.
    pub(super) votes: Option<&'a Int64Array>,
    /// Weight of a rollout in a mean, with the name of its argument.
    pub(super) weights: Option<(&'static str, &'a Float64Array)>,
    pub(super) marks: Option<&'a BooleanArray>,
    pub(super) positions: Option<&'a Int64Array>,
}

impl Columns<'_> {
    /// Returns whether both are the very same columns.
    pub(super) fn are(&self, other: &Self) -> bool {
        fn same<T>(a: Option<&T>, b: Option<&T>) -> bool {
            match (a, b) {
                (Some(a), Some(b)) => std::ptr::eq(a, b),
                (a, b) => a.is_none() && b.is_none(),
            }
        }
        std::ptr::eq(self.values, other.values)
            && std::ptr::eq(self.rollout_ids, other.rollout_ids)
            && same(self.votes, other.votes)
            && same(self.weights.map(|(_, weights)| weights), other.weights.map(|(_, weights)| weights))
            && same(self.marks, other.marks)
            && same(self.positions, other.positions)
    }
}

/// The members of many groups. The optional lists are empty where the call has no such column.
#[derive(Debug, Default)]
pub(super) struct Members {
    pub(super) values: Vec<f64>,
    pub(super) votes: Vec<u32>,
    pub(super) weights: Vec<f64>,
    pub(super) marks: Vec<bool>,
    pub(super) positions: Vec<i64>,
    /// A row of each member, to find its id.
    rows: Vec<u32>,
    /// The place of each row's member in its group, or [`NO_MEMBER`].
    pub(super) of_row: Vec<u32>,
    /// Where the members of each group end.
    pub(super) ends: Vec<usize>,
    /// The values scaled; empty where those of all groups are as they are.
    scaled: Vec<f64>,
    pub(super) moments: Vec<ScaledMoments>,
}

/// Collects the members of every group, sorted by id. Which of several faults of a group is reported does not depend on the order of rows.
pub(super) fn members(function: &str, columns: &Columns, groups: &Groups, reading: Reading) -> Result<Members> {
    if columns.rollout_ids.null_count() > 0 {
        return exec_err!("{function}: a rollout_id is null");
    }
    let collector = Collector { function, columns, reading };
    // As large as they may become: to grow would touch twice the memory.
    let mut members = Members {
        of_row: vec![NO_MEMBER; groups.row_count()],
        values: Vec::with_capacity(groups.row_count()),
        rows: Vec::with_capacity(groups.row_count()),
        ends: Vec::with_capacity(groups.ends.len()),
        moments: Vec::with_capacity(groups.ends.len()),
        ..Members::default()
    };
    let (mut sorted, mut scaled) = (Vec::new(), Vec::new());
    for rows in groups.iter() {
        let start = members.values.len();
        collector.group(rows, &mut sorted, &mut members)?;
        members.ends.push(members.values.len());
        let values = members.values.get(start..).unwrap_or_default();
        let votes = members.votes.get(start..).unwrap_or_default();
        scaled.clear();
        let moments = ScaledMoments::new(Counted { values, votes }, &mut scaled);
        members.moments.push(moments);
        if moments.is_scaled() && members.scaled.is_empty() {
            members.scaled.extend_from_slice(members.values.get(..start).unwrap_or_default());
        }
        if moments.is_scaled() || !members.scaled.is_empty() {
            members.scaled.extend_from_slice(&scaled);
        }
    }
    Ok(members)
}

impl Members {
    /// Returns the values scaled.
    pub(super) fn scaled(&self) -> &[f64] {
        if self.scaled.is_empty() { &self.values } else { &self.scaled }
    }

    /// Returns the id of a member.
    pub(super) fn id<'a>(&self, ids: &'a StringArray, member: usize) -> &'a str {
        self.rows.get(member).map_or("", |row| ids.value(*row as usize))
    }
}

/// What one rollout says in its rows; the rows must agree.
#[derive(Debug, Clone, Copy)]
struct Said {
    value: Option<f64>,
    votes: i64,
    weight: Option<f64>,
    mark: bool,
    position: Option<i64>,
}

struct Collector<'a> {
    function: &'a str,
    columns: &'a Columns<'a>,
    reading: Reading,
}

impl Collector<'_> {
    fn id(&self, row: u32) -> &str {
        self.columns.rollout_ids.value(row as usize)
    }

    fn group(&self, rows: &[u32], sorted: &mut Vec<u32>, members: &mut Members) -> Result<()> {
        sorted.clear();
        sorted.extend_from_slice(rows);
        // Rows mostly come by rollout already, and then are only looked at.
        if !sorted.is_sorted_by(|a, b| self.id(*a) < self.id(*b)) {
            sorted.sort_unstable_by(|a, b| self.id(*a).cmp(self.id(*b)));
        }
        let mut place = 0;
        for rollout in sorted.chunk_by(|a, b| self.id(*a) == self.id(*b)) {
            let Some((first, others)) = rollout.split_first() else {
                continue;
            };
            let said = self.said(*first)?;
            if !others.is_empty() {
                self.agree(rollout)?;
            }
            if self.joins(*first, &said)? {
                members.add(&said, self.columns, *first);
                for row in rollout {
                    members.of_row[*row as usize] = place;
                }
                place += 1;
            }
        }
        Ok(())
    }

    fn said(&self, row: u32) -> Result<Said> {
        let at = row as usize;
        let columns = self.columns;
        let votes = match columns.votes {
            Some(votes) if votes.is_null(at) => {
                return exec_err!("{}: the votes of rollout {:?} are null", self.function, self.id(row));
            }
            Some(votes) => votes.value(at),
            None => 1,
        };
        Ok(Said {
            value: self.value(row),
            votes,
            weight: columns.weights.and_then(|(_, weights)| weights.is_valid(at).then(|| weights.value(at))),
            mark: columns.marks.is_some_and(|marks| marks.is_valid(at) && marks.value(at)),
            position: columns.positions.and_then(|column| column.is_valid(at).then(|| column.value(at))),
        })
    }

    fn value(&self, row: u32) -> Option<f64> {
        let values = self.columns.values;
        let at = row as usize;
        let value = values.is_valid(at).then(|| values.value(at));
        let value = value.filter(|value| self.reading.nan == NotANumber::Error || !value.is_nan());
        if self.reading.missing == Missing::Zero { value.or(Some(0.0)) } else { value }
    }

    /// Fails where the rows of one rollout say different things.
    fn agree(&self, rollout: &[u32]) -> Result<()> {
        let Some(first) = rollout.first() else {
            return Ok(());
        };
        let (mut least, mut greatest) = (self.value(*first), self.value(*first));
        let known = self.said(*first)?;
        for row in rollout {
            let value = self.value(*row);
            least = if compare(value, least).is_lt() { value } else { least };
            greatest = if compare(value, greatest).is_gt() { value } else { greatest };
            let said = self.said(*row)?;
            if let Some(name) = self.difference(&said, &known) {
                return exec_err!("{}: the rows of rollout {:?} differ in {name}", self.function, self.id(*row));
            }
        }
        let (id, function) = (self.id(*first), self.function);
        let word = |value: Option<f64>| value.map_or("null".to_owned(), |value| format!("{value:?}"));
        if let Some(value) = [least, greatest].into_iter().flatten().find(|value| !value.is_finite()) {
            return exec_err!("{function}: the value of rollout {id:?} is {value}");
        }
        match (least, greatest) {
            (Some(least), Some(greatest)) if least == greatest => Ok(()),
            (None, None) => Ok(()),
            _ => exec_err!(
                "{function}: rollout {id:?} has two values in one group: {} and {}",
                word(least),
                word(greatest)
            ),
        }
    }

    /// Returns the argument, other than the value, in which two rows of a rollout differ.
    fn difference(&self, a: &Said, b: &Said) -> Option<&'static str> {
        let weight = |said: &Said| said.weight.map(f64::to_bits);
        match (a, b) {
            (a, b) if a.votes != b.votes => Some("votes"),
            (a, b) if a.mark != b.mark => Some("is_greedy"),
            (a, b) if a.position != b.position => Some("position"),
            (a, b) if weight(a) != weight(b) => self.columns.weights.map(|(name, _)| name),
            _ => None,
        }
    }

    /// Returns whether a rollout is a member; fails where what it says cannot be computed with.
    fn joins(&self, row: u32, said: &Said) -> Result<bool> {
        let (function, columns) = (self.function, self.columns);
        let id = || self.id(row);
        if let Some(value) = said.value.filter(|value| !value.is_finite()) {
            return exec_err!("{function}: the value of rollout {:?} is {value}", id());
        }
        if let Some((name, _)) = columns.weights
            && let Some(weight) = said.weight.filter(|weight| !weight.is_finite() || *weight < 0.0)
        {
            return exec_err!("{function}: the {name} of rollout {:?} is {weight}", id());
        }
        if said.votes < 0 || u32::try_from(said.votes).is_err() {
            return exec_err!("{function}: rollout {:?} has {} votes", id(), said.votes);
        }
        let missing = match (columns.weights, columns.positions) {
            _ if said.value.is_none() => Some("value"),
            (Some((name, _)), _) if said.weight.is_none() => Some(name),
            (_, Some(_)) if said.position.is_none() => Some("position"),
            _ => None,
        };
        match missing {
            Some(name) if self.reading.missing == Missing::Error => {
                exec_err!("{function}: the {name} of rollout {:?} is null", id())
            }
            Some(_) => Ok(false),
            // A rollout without rows has nothing to compare.
            None => Ok(said.votes > 0),
        }
    }
}

impl Members {
    fn add(&mut self, said: &Said, columns: &Columns, row: u32) {
        // 0.0 and -0.0 are one value.
        self.values.push(said.value.unwrap_or(0.0) + 0.0);
        self.rows.push(row);
        if columns.votes.is_some() {
            self.votes.push(u32::try_from(said.votes).unwrap_or(0));
        }
        if columns.weights.is_some() {
            self.weights.push(said.weight.unwrap_or(0.0));
        }
        if columns.marks.is_some() {
            self.marks.push(said.mark);
        }
        if columns.positions.is_some() {
            self.positions.push(said.position.unwrap_or(0));
        }
    }
}

fn compare(a: Option<f64>, b: Option<f64>) -> Ordering {
    match (a, b) {
        (Some(a), Some(b)) => a.total_cmp(&b),
        (a, b) => a.is_some().cmp(&b.is_some()),
    }
}
