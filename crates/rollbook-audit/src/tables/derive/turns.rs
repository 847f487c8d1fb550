//! Imported credits that differ from call to call: discounted sums of the calls' rewards.
//!
//! ```text
//! along the tree   G_c = r_c + gamma * mean of G over the calls that continue c       (or their sum, or the largest)
//! along the list   G_c = r_c + gamma * G of the call that came after it in the rollout
//! ```
//!
//! The two are one where each call continues the one before. In a rollout that branches, a sum along the list carries what one
//! branch earned into another: a call that nothing continues has its own reward and no more, however branches are joined.

use std::collections::BTreeMap;

use rollbook_query::{Result, Session};

use super::inputs::{Derivation, each_row};
use super::returns::GAMMAS;
use super::{Found, shown};
use crate::tables::quoted;

/// What float arithmetic may differ by.
const NEAR: f64 = 1e-5;
/// Findings of one discount that are kept.
const KEPT: usize = 10_000;

/// How a call's sum is made of those after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Join {
    Mean,
    Sum,
    Largest,
    /// The call after it in the rollout, whatever that continues.
    List,
}

/// One discount and one way to join.
struct Trial {
    gamma: f64,
    join: Join,
    wrong: usize,
    found: Vec<Found>,
}

/// A call with what it earned and what its credit says.
#[derive(Debug, Clone, Default)]
struct Turn {
    call: String,
    parent: Option<String>,
    reward: f64,
    stored: Option<f64>,
}

/// Judges a credit that has several values within a rollout. False where it is none of these sums, and may be another formula.
pub(super) async fn judge(session: &Session, derivation: &Derivation, found: &mut Vec<Found>) -> Result<bool> {
    let declared = derivation.parameter(&["gamma", "discount", "turn_discount", "turn_gamma", "reward_discount"]);
    let gammas = declared.map_or_else(|| GAMMAS.to_vec(), |gamma| vec![gamma]);
    let mut trials: Vec<Trial> = [Join::Mean, Join::Sum, Join::Largest, Join::List]
        .into_iter()
        .flat_map(|join| gammas.iter().map(move |gamma| (join, *gamma)))
        .map(|(join, gamma)| Trial { gamma, join, wrong: 0, found: Vec::new() })
        .collect();
    let (mut turns, mut rollout): (Vec<Turn>, Option<String>) = (Vec::new(), None);
    let (mut differs, mut earned, mut is_return, mut branches) = (false, 0_usize, false, false);
    let mut close = |rollout: Option<&str>, turns: &[Turn], trials: &mut Vec<Trial>| {
        let mut given = turns.iter().filter_map(|turn| turn.stored);
        let first = given.next();
        differs |= first.is_some_and(|first| given.any(|value| !near(value, first)));
        branches |= has_branches(turns);
        if let Some(rollout) = rollout {
            trials.iter_mut().for_each(|trial| trial.follow(rollout, turns, derivation));
        }
    };
    each_row(session, &query(derivation), |row| {
        let (Some(of), Some(call)) = (row.text("rollout_id")?, row.text("call_id")?) else {
            return Ok(());
        };
        if rollout.as_ref() != Some(&of) {
            close(rollout.as_deref(), &turns, &mut trials);
            turns.clear();
            rollout = Some(of);
        }
        is_return |= row.text("quantity")?.as_deref() == Some("return");
        let reward = row.double("reward")?;
        earned += usize::from(reward.is_some());
        let (parent, stored) = (row.text("parent_call_id")?, row.double("value")?);
        turns.push(Turn { call, parent, reward: reward.unwrap_or(0.0), stored });
        Ok(())
    })
    .await?;
    close(rollout.as_deref(), &turns, &mut trials);
    if !differs || earned == 0 {
        return Ok(false);
    }
    let fits = |list: bool| trials.iter().any(|trial| (trial.join == Join::List) == list && trial.wrong == 0);
    if fits(false) {
        return Ok(true);
    }
    let along_list = fits(true) && branches;
    let gamma = trials.iter().find(|trial| trial.join == Join::List && trial.wrong == 0).map(|trial| trial.gamma);
    let Some(gamma) = gamma.or(declared.filter(|_| is_return)) else {
        if is_return {
            let remedy =
                format!("say the discount of credit {}; none that was tried gives its values", derivation.name);
            let missing = "derivations.parameters.gamma";
            found.push(Found::missing(&derivation.run, derivation.id.as_deref(), missing, remedy));
        }
        return Ok(is_return);
    };
    let why = if along_list {
        format!(
            "the sum follows the order of the calls, from one branch into another (gamma {gamma} gives all values so)"
        )
    } else {
        format!("gamma is {gamma}")
    };
    let right = trials.into_iter().find(|trial| trial.join == Join::Mean && trial.gamma.total_cmp(&gamma).is_eq());
    found.extend(right.into_iter().flat_map(|trial| trial.found).map(|mut one| {
        one.message = format!("{}: {why}", one.message);
        one
    }));
    Ok(true)
}

fn near(one: f64, other: f64) -> bool {
    (one - other).abs() <= NEAR * one.abs().max(other.abs()).max(1.0)
}

/// Whether a call is continued by two, or two begin anew, where calls say what they continue.
fn has_branches(turns: &[Turn]) -> bool {
    if turns.iter().all(|turn| turn.parent.is_none()) {
        return false;
    }
    let mut children: BTreeMap<Option<&str>, usize> = BTreeMap::new();
    turns.iter().for_each(|turn| *children.entry(turn.parent.as_deref()).or_default() += 1);
    children.values().any(|count| *count > 1)
}

/// Calls of the credit's rollouts in order, with their rewards; those of a call's scores where no reward names a call.
fn query(derivation: &Derivation) -> String {
    let run = quoted(&derivation.run);
    let upstream: Vec<String> = derivation.upstream_ids.iter().map(|id| quoted(id)).collect();
    let of =
        if upstream.is_empty() { String::new() } else { format!(" AND derivation_id IN ({})", upstream.join(", ")) };
    format!(
        "WITH given AS (
             SELECT rollout_id, call_id, min(value) AS value, min(quantity) AS quantity FROM credits_history
             WHERE {} AND call_id IS NOT NULL AND value IS NOT NULL GROUP BY rollout_id, call_id
         ),
         reward AS (
             SELECT call_id, min(value) AS value FROM rewards_history WHERE run_id = {run} AND call_id IS NOT NULL{of} GROUP BY call_id
         ),
         score AS (
             SELECT call_id, min(value) AS value FROM scores
             WHERE run_id = {run} AND call_id IS NOT NULL AND coalesce(is_valid, true) AND coalesce(error_type, '') = ''
             GROUP BY call_id HAVING count(DISTINCT verifier) = 1
         ),
         has_reward AS (SELECT count(*) AS rewards FROM reward)
         SELECT call.rollout_id, call.call_id, call.parent_call_id, given.value, given.quantity,
             CASE WHEN has_reward.rewards > 0 THEN reward.value ELSE score.value END AS reward
         FROM (
             SELECT rollout_id, call_id, min(call_index) AS call_index, min(parent_call_id) AS parent_call_id FROM calls
             WHERE run_id = {run} AND coalesce(is_trainable, coalesce(kind, 'act') IN ('act', 'compact'))
             GROUP BY rollout_id, call_id
         ) AS call
         JOIN (SELECT DISTINCT rollout_id FROM given) AS judged ON judged.rollout_id = call.rollout_id
         CROSS JOIN has_reward
         LEFT JOIN given ON given.rollout_id = call.rollout_id AND given.call_id = call.call_id
         LEFT JOIN reward ON reward.call_id = call.call_id
         LEFT JOIN score ON score.call_id = call.call_id
         ORDER BY call.rollout_id, call.call_index, call.call_id",
        derivation.condition()
    )
}

impl Trial {
    /// Compares the calls of a rollout, given in their order.
    fn follow(&mut self, rollout: &str, turns: &[Turn], derivation: &Derivation) {
        let sums = self.sums(turns);
        for (turn, sum) in turns.iter().zip(sums) {
            if turn.stored.is_some_and(|stored| near(stored, sum)) {
                continue;
            }
            // A call without a credit trains nothing; it is no other value.
            let Some(stored) = turn.stored else {
                continue;
            };
            self.wrong += 1;
            if self.found.len() < KEPT {
                self.found.push(difference(rollout, turn, derivation, sum, stored));
            }
        }
    }

    /// The sum of each call; a call comes after the one it continues.
    fn sums(&self, turns: &[Turn]) -> Vec<f64> {
        let mut sums = vec![0.0; turns.len()];
        let mut behind: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
        // Without parents, the calls are one chain.
        let is_list = self.join == Join::List || turns.iter().all(|turn| turn.parent.is_none());
        let mut after = 0.0;
        for (at, turn) in turns.iter().enumerate().rev() {
            let rest = if is_list { after } else { self.joined(behind.get(turn.call.as_str())) };
            let sum = turn.reward + self.gamma * rest;
            after = sum;
            if let Some(parent) = &turn.parent {
                behind.entry(parent).or_default().push(sum);
            }
            if let Some(slot) = sums.get_mut(at) {
                *slot = sum;
            }
        }
        sums
    }

    fn joined(&self, sums: Option<&Vec<f64>>) -> f64 {
        let Some(sums) = sums.filter(|sums| !sums.is_empty()) else {
            return 0.0;
        };
        let total: f64 = sums.iter().sum();
        match self.join {
            Join::Mean => total / f64::from(u32::try_from(sums.len()).unwrap_or(u32::MAX)),
            Join::Largest => sums.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            Join::Sum | Join::List => total,
        }
    }
}

fn difference(rollout: &str, turn: &Turn, derivation: &Derivation, sum: f64, stored: f64) -> Found {
    let (expected, observed) = (shown(Some(sum)), shown(Some(stored)));
    Found {
        run: derivation.run.clone(),
        rollout: Some(rollout.to_owned()),
        call: Some(turn.call.clone()),
        derivation: derivation.id.clone(),
        message: format!(
            "credit {} gives call {} {observed}, and its return over the calls that continue it is {expected}",
            derivation.name, turn.call
        ),
        expected: Some(expected),
        observed: Some(observed),
        ..Found::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(call: &str, parent: Option<&str>, reward: f64) -> Turn {
        Turn { call: call.to_owned(), parent: parent.map(str::to_owned), reward, stored: None }
    }

    fn sums(join: Join, gamma: f64, turns: &[Turn]) -> Vec<f64> {
        Trial { gamma, join, wrong: 0, found: Vec::new() }.sums(turns)
    }

    /// `AReaL` PR 1666: a root, a branch that earned 1 and one that earned nothing.
    #[test]
    fn a_branch_earns_nothing_of_another() {
        let tree = [turn("r", None, 0.0), turn("b", Some("r"), 0.0), turn("a", Some("r"), 1.0)];
        assert_eq!(sums(Join::Mean, 0.5, &tree), [0.25, 0.0, 1.0]);
        assert_eq!(sums(Join::Sum, 0.5, &tree), [0.5, 0.0, 1.0]);
        assert_eq!(sums(Join::Largest, 0.5, &tree), [0.5, 0.0, 1.0]);
        assert_eq!(sums(Join::List, 0.5, &tree), [0.25, 0.5, 1.0]);
        assert!(has_branches(&tree));
    }

    #[test]
    fn a_chain_is_the_same_along_the_tree_and_along_the_list() {
        let chain = [turn("a", None, 0.0), turn("b", Some("a"), 0.0), turn("c", Some("b"), 1.0)];
        for join in [Join::Mean, Join::Sum, Join::Largest, Join::List] {
            assert_eq!(sums(join, 0.9, &chain), [0.81, 0.9, 1.0]);
        }
        assert!(!has_branches(&chain));
    }
}
