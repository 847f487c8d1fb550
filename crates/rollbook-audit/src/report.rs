//! What an audit found, in the form that machines read.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::check::{Check, Outcome};

/// One finding; its fields are the columns of `findings`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Audit that found it; null where it is not recorded.
    pub audit_id: Option<String>,
    /// Check, as `family/name`.
    pub check: String,
    /// Violation, rule or undeclared.
    pub outcome: Outcome,
    /// error, warning or info.
    pub severity: String,
    /// Layer to look at.
    pub layer: String,
    /// Run.
    pub run_id: Option<String>,
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
    /// Derivation that is at fault.
    pub derivation_id: Option<String>,
    /// Epoch of the row.
    pub epoch: Option<i32>,
    /// Micro-batch of the row.
    pub micro_batch: Option<i32>,
    /// Rank of the row.
    pub rank: Option<i32>,
    /// Row of the build.
    pub row_index: Option<i32>,
    /// First token, from 0.
    pub position: Option<i32>,
    /// What position counts in: prompt, output or row.
    pub position_in: Option<String>,
    /// Number of tokens from position on.
    pub length: Option<i32>,
    /// What should stand there.
    pub expected: Option<String>,
    /// What stands there.
    pub observed: Option<String>,
    /// The finding in a sentence.
    pub message: String,
}

impl Finding {
    /// What findings are ordered by: the worst first, then as the lake's rows are.
    pub(crate) fn order(&self) -> impl Ord + '_ {
        (
            std::cmp::Reverse(self.outcome),
            (&self.run_id, self.step, &self.group_id, &self.rollout_id, &self.build_id),
            (self.epoch, self.micro_batch, self.rank),
            (self.row_index, &self.call_id, &self.derivation_id, &self.position_in, self.position, self.length),
            (&self.expected, &self.observed, &self.message),
        )
    }
}

/// What one check found, in numbers; every finding counts, kept in memory or not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Count {
    /// Check, as `family/name`.
    pub check: &'static str,
    /// Version of its definition.
    pub version: u32,
    /// Contradictions of the record.
    pub violation: u64,
    /// Broken expectations.
    pub rule: u64,
    /// Missing fields and expectations.
    pub undeclared: u64,
    /// Things that were judged.
    pub examined: u64,
}

impl Count {
    /// A count of nothing.
    pub(crate) fn of(check: &Check) -> Self {
        Self { check: check.code, version: check.version, violation: 0, rule: 0, undeclared: 0, examined: 0 }
    }

    /// Returns how many findings there are.
    pub fn found(&self) -> u64 {
        self.violation + self.rule + self.undeclared
    }

    pub(crate) fn add(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Violation => self.violation += 1,
            Outcome::Rule => self.rule += 1,
            Outcome::Undeclared => self.undeclared += 1,
        }
    }
}

/// What an audit found.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Snapshot that was examined.
    pub snapshot: u64,
    /// Each check, in the catalogue's order.
    pub checks: Vec<Count>,
    /// The findings by check; of a check with very many, the first.
    pub findings: Vec<Finding>,
    /// Snapshot after which it looked; none where some check looked at everything.
    #[serde(skip)]
    pub since: Option<u64>,
    /// Run it was restricted to.
    #[serde(skip)]
    pub run: Option<String>,
}

impl Report {
    /// Returns the worst outcome, none where nothing was found.
    pub fn worst(&self) -> Option<Outcome> {
        let has = |count: fn(&Count) -> u64| self.checks.iter().any(|check| count(check) > 0);
        if has(|check| check.violation) {
            Some(Outcome::Violation)
        } else if has(|check| check.rule) {
            Some(Outcome::Rule)
        } else if has(|check| check.undeclared) {
            Some(Outcome::Undeclared)
        } else {
            None
        }
    }

    /// Returns the findings of one check.
    pub fn of<'a>(&'a self, check: &'a str) -> impl Iterator<Item = &'a Finding> {
        self.findings.iter().filter(move |finding| finding.check == check)
    }

    /// Returns, for checks with more findings than are kept, how many are only counted.
    pub fn left_out(&self) -> BTreeMap<&'static str, u64> {
        let mut kept: BTreeMap<&str, u64> = BTreeMap::new();
        for finding in &self.findings {
            *kept.entry(finding.check.as_str()).or_default() += 1;
        }
        let left = |count: &Count| count.found() - kept.get(count.check).copied().unwrap_or(0).min(count.found());
        self.checks.iter().map(|count| (count.check, left(count))).filter(|(_, left)| *left > 0).collect()
    }
}
