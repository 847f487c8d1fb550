//! The objective: what one unit of loss weight belongs to, and the coefficient each trained token gets from it.
//!
//! ```text
//! unit      coefficient of a trained token in part p      P   parts of the optimizer step with a trained token
//! token     1 / (P · T_p)                                 T   trained tokens
//! row       1 / (P · N_p · T_row,p)                       N   rows with a trained token
//! rollout   1 / (P · R_p · T_rollout,p)                   R   rollouts with a trained token
//! group     1 / (P · G_p · T_group,p)                     G   groups with a trained token
//! constant  1 / C, scope step only                        C   given
//! ```
//!
//! A part is the optimizer step, one of its micro-batches (of a rank), or one of its ranks, by the scope. In each scope the
//! coefficients of a step sum to 1, but for the constant. In the words of trainers, token over the step is the token mean, row
//! the mean over rows of the mean over their tokens, group the prompt mean, constant the sum over a fixed length.

use std::collections::{BTreeMap, HashMap};
use std::str::FromStr;

use crate::build::plan::RowKey;
use crate::error::{Error, Result};

/// What one unit of loss weight belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Each trained token weighs the same.
    Token,
    /// Each row of `samples` with a trained token weighs the same.
    Row,
    /// Each rollout with a trained token weighs the same, over all its rows.
    Rollout,
    /// Each group with a trained token weighs the same; a rollout without a group is one of its own.
    Group,
    /// Each trained token weighs one over a given number.
    Constant,
}

impl Unit {
    const ALL: [Self; 5] = [Self::Token, Self::Row, Self::Rollout, Self::Group, Self::Constant];

    /// Returns the word that `builds.objective_unit` has for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Token => "token",
            Self::Row => "row",
            Self::Rollout => "rollout",
            Self::Group => "group",
            Self::Constant => "constant",
        }
    }
}

impl FromStr for Unit {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let unknown =
            || Error::invalid(format!("there is no objective {text}: it is token, row, rollout, group or constant"));
        Self::ALL.into_iter().find(|unit| unit.as_str() == text).ok_or_else(unknown)
    }
}

/// Over what the units are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// One optimizer step.
    Step,
    /// One micro-batch of one rank; a step is the mean of its micro-batches.
    MicroBatch,
    /// One rank; a step is the mean of its ranks.
    Rank,
}

impl Scope {
    const ALL: [Self; 3] = [Self::Step, Self::MicroBatch, Self::Rank];

    /// Returns the word that `builds.objective_scope` has for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Step => "step",
            Self::MicroBatch => "micro_batch",
            Self::Rank => "rank",
        }
    }
}

impl FromStr for Scope {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let unknown = || Error::invalid(format!("there is no objective scope {text}: it is step, micro_batch or rank"));
        Self::ALL.into_iter().find(|scope| scope.as_str() == text).ok_or_else(unknown)
    }
}

/// What one unit of loss weight belongs to, and over what it is counted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Objective {
    unit: Unit,
    scope: Scope,
    constant: Option<f64>,
}

impl Objective {
    /// Makes an objective; `constant` is the denominator of the unit constant, and of no other.
    pub fn new(unit: Unit, scope: Scope, constant: Option<f64>) -> Result<Self> {
        match (unit, constant) {
            (Unit::Constant, None) => {
                return Err(Error::invalid("objective constant needs its denominator: give an objective constant"));
            }
            (Unit::Constant, Some(value)) if !(value.is_finite() && value > 0.0) => {
                return Err(Error::invalid(format!("an objective constant must be above 0, not {value}")));
            }
            (Unit::Constant, Some(_)) if scope != Scope::Step => {
                return Err(Error::invalid("objective constant counts nothing: its scope is step"));
            }
            (Unit::Constant, Some(_)) | (_, None) => {}
            (_, Some(_)) => {
                return Err(Error::invalid(format!(
                    "an objective constant belongs to the objective constant, not to {}",
                    unit.as_str()
                )));
            }
        }
        Ok(Self { unit, scope, constant })
    }

    /// Makes the objective that gives every rollout of an optimizer step the same weight.
    pub fn rollout() -> Self {
        Self { unit: Unit::Rollout, scope: Scope::Step, constant: None }
    }

    /// Returns what a unit of loss weight belongs to.
    pub fn unit(&self) -> Unit {
        self.unit
    }

    /// Returns over what units are counted.
    pub fn scope(&self) -> Scope {
        self.scope
    }

    /// Returns the denominator of the unit constant.
    pub fn constant(&self) -> Option<f64> {
        self.constant
    }
}

/// One term of an optimizer step: the whole of it, a micro-batch of a rank, or a rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Part {
    optimizer_step: i64,
    rank: i32,
    micro_batch: i32,
}

/// Who a unit of loss weight belongs to within a part; what does not tell units apart is zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Owner {
    place: (i32, i32, i32),
    member: u32,
}

/// Counts of trained tokens, from which every coefficient follows.
#[derive(Debug, Clone)]
pub(super) struct TrainedTokens {
    objective: Objective,
    /// Number of each rollout's group, by the number of the rollout; empty where groups do not count.
    groups: Vec<u32>,
    /// Only what is above zero.
    tokens: HashMap<(Part, Owner), u64>,
    owners: BTreeMap<Part, u64>,
    parts: BTreeMap<i64, u64>,
    total: u64,
}

impl TrainedTokens {
    /// Starts counting for an objective; `groups` has the number of each rollout's group where the unit is the group.
    pub(super) fn new(objective: Objective, groups: Vec<u32>) -> Self {
        Self { objective, groups, tokens: HashMap::new(), owners: BTreeMap::new(), parts: BTreeMap::new(), total: 0 }
    }

    /// Adds trained tokens of a rollout in a row.
    pub(super) fn add(&mut self, row: RowKey, rollout: u32, tokens: u32) {
        if tokens == 0 {
            return;
        }
        let (part, owner) = self.key(row, rollout);
        let count = self.tokens.entry((part, owner)).or_default();
        if *count == 0 {
            let owners = self.owners.entry(part).or_default();
            if *owners == 0 {
                *self.parts.entry(part.optimizer_step).or_default() += 1;
            }
            *owners += 1;
        }
        *count += u64::from(tokens);
        self.total += u64::from(tokens);
    }

    fn key(&self, row: RowKey, rollout: u32) -> (Part, Owner) {
        let (rank, micro_batch) = match self.objective.scope {
            Scope::Step => (0, 0),
            Scope::MicroBatch => (row.rank, row.micro_batch),
            Scope::Rank => (row.rank, 0),
        };
        let part = Part { optimizer_step: row.optimizer_step, rank, micro_batch };
        let owner = match self.objective.unit {
            Unit::Token | Unit::Constant => Owner { place: (0, 0, 0), member: 0 },
            Unit::Row => Owner { place: (row.rank, row.micro_batch, row.row_index), member: 0 },
            Unit::Rollout => Owner { place: (0, 0, 0), member: rollout },
            Unit::Group => {
                Owner { place: (0, 0, 0), member: self.groups.get(rollout as usize).copied().unwrap_or(rollout) }
            }
        };
        (part, owner)
    }

    /// Returns the denominator of a trained token's coefficient, which is 1 over it.
    #[expect(clippy::cast_precision_loss, reason = "rounded once, from the exact product of the counts")]
    pub(super) fn denominator(&self, row: RowKey, rollout: u32) -> f64 {
        if let Some(constant) = self.objective.constant {
            return constant;
        }
        let (part, owner) = self.key(row, rollout);
        let parts = self.parts.get(&part.optimizer_step).copied().unwrap_or(0);
        let owners = self.owners.get(&part).copied().unwrap_or(0);
        let tokens = self.tokens.get(&(part, owner)).copied().unwrap_or(0);
        (u128::from(parts) * u128::from(owners) * u128::from(tokens)) as f64
    }

    /// Returns all trained tokens.
    pub(super) fn total(&self) -> u64 {
        self.total
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn row(optimizer_step: i64, rank: i32, micro_batch: i32, row_index: i32) -> RowKey {
        RowKey { optimizer_step, micro_batch, rank, row_index }
    }

    /// Two ranks, three micro-batches, four rows; rollouts 0 and 1 are one group, 2 is another.
    ///
    /// ```text
    /// rank 0  micro-batch 0  row 0  rollout 0: 2 tokens, rollout 1: 4 tokens
    ///                        row 1  rollout 0: 3 tokens
    ///         micro-batch 1  row 2  rollout 2: 1 token
    /// rank 1  micro-batch 0  row 3  rollout 2: 5 tokens
    /// ```
    fn counted(unit: Unit, scope: Scope) -> TrainedTokens {
        let mut trained = TrainedTokens::new(Objective::new(unit, scope, None).unwrap(), vec![0, 0, 1]);
        trained.add(row(4, 0, 0, 0), 0, 2);
        trained.add(row(4, 0, 0, 0), 1, 4);
        trained.add(row(4, 0, 0, 1), 0, 3);
        trained.add(row(4, 0, 1, 2), 2, 1);
        trained.add(row(4, 1, 0, 3), 2, 5);
        trained.add(row(4, 1, 0, 3), 0, 0);
        trained.add(row(5, 0, 0, 0), 0, 7);
        trained
    }

    /// Denominators of the five entries of step 4, by hand.
    #[rstest]
    #[case(Unit::Token, Scope::Step, [15.0; 5])]
    #[case(Unit::Token, Scope::MicroBatch, [27.0, 27.0, 27.0, 3.0, 15.0])]
    #[case(Unit::Token, Scope::Rank, [20.0, 20.0, 20.0, 20.0, 10.0])]
    #[case(Unit::Row, Scope::Step, [24.0, 24.0, 12.0, 4.0, 20.0])]
    #[case(Unit::Row, Scope::MicroBatch, [36.0, 36.0, 18.0, 3.0, 15.0])]
    #[case(Unit::Row, Scope::Rank, [36.0, 36.0, 18.0, 6.0, 10.0])]
    #[case(Unit::Rollout, Scope::Step, [15.0, 12.0, 15.0, 18.0, 18.0])]
    #[case(Unit::Rollout, Scope::MicroBatch, [30.0, 24.0, 30.0, 3.0, 15.0])]
    #[case(Unit::Rollout, Scope::Rank, [30.0, 24.0, 30.0, 6.0, 10.0])]
    #[case(Unit::Group, Scope::Step, [18.0, 18.0, 18.0, 12.0, 12.0])]
    #[case(Unit::Group, Scope::MicroBatch, [27.0, 27.0, 27.0, 3.0, 15.0])]
    #[case(Unit::Group, Scope::Rank, [36.0, 36.0, 36.0, 4.0, 10.0])]
    fn denominators_are_those_of_the_unit_and_the_scope(
        #[case] unit: Unit,
        #[case] scope: Scope,
        #[case] expected: [f64; 5],
    ) {
        let trained = counted(unit, scope);
        let entries = [
            (row(4, 0, 0, 0), 0, 2.0),
            (row(4, 0, 0, 0), 1, 4.0),
            (row(4, 0, 0, 1), 0, 3.0),
            (row(4, 0, 1, 2), 2, 1.0),
            (row(4, 1, 0, 3), 2, 5.0),
        ];
        let denominators = entries.map(|(row, rollout, _)| trained.denominator(row, rollout));
        assert_eq!(denominators, expected);
        let sum: f64 = entries.iter().zip(expected).map(|((_, _, tokens), denominator)| tokens / denominator).sum();
        assert!((sum - 1.0).abs() < 1e-12, "a step sums to one: {sum}");
        assert_eq!(trained.total(), 22);
    }

    #[test]
    fn a_constant_counts_nothing_and_must_be_given() {
        let objective = Objective::new(Unit::Constant, Scope::Step, Some(2048.0)).unwrap();
        let mut trained = TrainedTokens::new(objective, Vec::new());
        trained.add(row(0, 0, 0, 0), 0, 3);
        assert!((trained.denominator(row(0, 0, 0, 0), 0) - 2048.0).abs() < f64::EPSILON);
        let wrong = |unit, scope, constant| Objective::new(unit, scope, constant).unwrap_err().to_string();
        assert!(wrong(Unit::Constant, Scope::Step, None).contains("needs its denominator"));
        assert!(wrong(Unit::Constant, Scope::Step, Some(0.0)).contains("above 0"));
        assert!(wrong(Unit::Constant, Scope::Rank, Some(1.0)).contains("its scope is step"));
        assert!(wrong(Unit::Row, Scope::Step, Some(1.0)).contains("not to row"));
    }

    #[test]
    fn words_are_those_of_the_table() {
        for unit in Unit::ALL {
            assert_eq!(unit.as_str().parse::<Unit>().unwrap(), unit);
        }
        for scope in Scope::ALL {
            assert_eq!(scope.as_str().parse::<Scope>().unwrap(), scope);
        }
        assert!("rolout".parse::<Unit>().unwrap_err().to_string().contains("no objective rolout"));
        assert!("batch".parse::<Scope>().unwrap_err().to_string().contains("no objective scope batch"));
    }
}
