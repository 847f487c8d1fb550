//! The objective: what one unit of loss weight belongs to, and the coefficient each trained token gets from it.

use std::collections::{BTreeMap, HashMap};
use std::str::FromStr;

use crate::error::{Error, Result};

/// What one unit of loss weight belongs to, over an optimizer step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Objective {
    /// Each rollout with a trained token weighs the same: `1 / (R · T_r)`, where R counts those rollouts in the optimizer
    /// step and `T_r` the rollout's trained tokens in it, over all rows.
    Rollout,
}

impl Objective {
    /// Returns the word that `builds.objective_unit` has for it.
    pub fn unit(self) -> &'static str {
        match self {
            Self::Rollout => "rollout",
        }
    }
}

impl FromStr for Objective {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "rollout" => Ok(Self::Rollout),
            "token" | "row" | "group" | "constant" => {
                Err(Error::unsupported(format!("objective {text} is not built yet; rollout is")))
            }
            other => Err(Error::invalid(format!("there is no objective {other}; rollout is one"))),
        }
    }
}

/// Counts of trained tokens, from which every coefficient follows.
#[derive(Debug, Clone, Default)]
pub(super) struct TrainedTokens {
    /// By optimizer step and rollout; only what is above zero.
    tokens: HashMap<(i64, u32), u64>,
    rollouts: BTreeMap<i64, u64>,
}

impl TrainedTokens {
    /// Adds trained tokens of a rollout to an optimizer step.
    pub(super) fn add(&mut self, optimizer_step: i64, rollout: u32, tokens: u32) {
        if tokens == 0 {
            return;
        }
        let count = self.tokens.entry((optimizer_step, rollout)).or_default();
        if *count == 0 {
            *self.rollouts.entry(optimizer_step).or_default() += 1;
        }
        *count += u64::from(tokens);
    }

    /// Returns the denominator of a trained token's coefficient, which is 1 over it.
    pub(super) fn denominator(&self, objective: Objective, optimizer_step: i64, rollout: u32) -> u64 {
        match objective {
            Objective::Rollout => {
                let tokens = self.tokens.get(&(optimizer_step, rollout)).copied().unwrap_or(0);
                self.rollouts.get(&optimizer_step).copied().unwrap_or(0) * tokens
            }
        }
    }

    /// Returns all trained tokens.
    pub(super) fn total(&self) -> u64 {
        self.tokens.values().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By hand: R = 2, T = 3 and 5, so 3 · 1/6 + 5 · 1/10 = 1.
    #[test]
    fn a_step_sums_to_one() {
        let mut trained = TrainedTokens::default();
        trained.add(4, 0, 1);
        trained.add(4, 1, 5);
        trained.add(4, 0, 2);
        trained.add(4, 2, 0);
        trained.add(5, 0, 7);
        assert_eq!(trained.denominator(Objective::Rollout, 4, 0), 6);
        assert_eq!(trained.denominator(Objective::Rollout, 4, 1), 10);
        assert_eq!(trained.denominator(Objective::Rollout, 5, 0), 7);
        assert_eq!(trained.total(), 15);
        // 3/6 + 5/10 over the common denominator 30.
        assert_eq!(3 * 30 / 6 + 5 * 30 / 10, 30);
    }

    #[test]
    fn other_units_are_named_as_not_built_yet() {
        assert_eq!("rollout".parse::<Objective>().unwrap(), Objective::Rollout);
        assert!("token".parse::<Objective>().unwrap_err().to_string().contains("not built yet"));
        assert!("rolout".parse::<Objective>().unwrap_err().to_string().contains("no objective rolout"));
    }
}
