//! Imported rewards: whether they are what the scores and components they name give.

use std::collections::{BTreeMap, HashMap};

use rollbook_query::{Result, Session};

use super::inputs::{Derivation, each_row};
use super::{Found, shown};
use crate::tables::quoted;

/// What float arithmetic may differ by.
const NEAR: f64 = 1e-5;

/// A reward and what it may have been made from.
struct Reward {
    rollout: String,
    call: Option<String>,
    value: f64,
    components: Option<Vec<(String, Option<f64>)>>,
    /// Values of its scores, by verifier; an invalid one has none.
    scores: Vec<(String, Option<f64>)>,
    /// Whether its rollout was cut off.
    is_truncated: bool,
}

impl Reward {
    /// Whether the record says why it is no plain function of its scores: components that agree with these add up to it, or it
    /// is what the run gives truncated rollouts.
    fn is_explained(&self, of_truncated: Option<f64>) -> bool {
        if self.is_truncated && of_truncated.is_some_and(|value| near(value, self.value)) {
            return true;
        }
        let Some(parts) = self.components.as_ref().filter(|parts| parts.len() > 1) else {
            return false;
        };
        let agrees = |(name, value): &(String, Option<f64>)| {
            let own = self.scores.iter().find(|(verifier, _)| verifier == name);
            own.is_none_or(|(_, score)| score.zip(*value).is_none_or(|(score, value)| near(score, value)))
        };
        parts.iter().all(agrees) && total(parts).is_some_and(|total| near(total, self.value))
    }
}

/// Ways in which a reward is made of scores.
const WAYS: [(&str, fn(&Reward) -> Option<f64>); 3] = [
    ("its score", |reward| match reward.scores.as_slice() {
        [(_, value)] => *value,
        _ => None,
    }),
    ("the sum of its scores", |reward| total(&reward.scores)),
    ("the mean of its scores", |reward| {
        let count = u32::try_from(reward.scores.len()).ok().filter(|count| *count > 0)?;
        Some(total(&reward.scores)? / f64::from(count))
    }),
];

fn total(parts: &[(String, Option<f64>)]) -> Option<f64> {
    if parts.is_empty() {
        return None;
    }
    parts.iter().map(|(_, value)| *value).sum()
}

fn near(a: f64, b: f64) -> bool {
    (a - b).abs() <= NEAR * a.abs().max(b.abs()).max(1.0)
}

/// Judges a reward that was imported without a recipe of ours.
pub(super) async fn judge(session: &Session, derivation: &Derivation, found: &mut Vec<Found>) -> Result<()> {
    let rewards = rewards(session, derivation).await?;
    let (on_null, on_truncated) = rules(session, &derivation.run).await?;
    judge_components(derivation, &rewards, on_null.as_deref() == Some("excluded"), found);
    judge_scores(derivation, &rewards, on_truncated.and_then(|text| text.parse().ok()), found);
    Ok(())
}

/// The value is the sum of its components, and null where these are.
fn judge_components(derivation: &Derivation, rewards: &[Reward], excludes_null: bool, found: &mut Vec<Found>) {
    let of = |reward: &Reward| reward.components.as_ref().filter(|parts| !parts.is_empty()).cloned();
    let whole: Vec<(&Reward, f64)> = rewards.iter().filter_map(|reward| Some((reward, total(&of(reward)?)?))).collect();
    let right = whole.iter().filter(|(reward, total)| near(reward.value, *total)).count();
    // Weights may stand between components and value: only where most are plain sums is another value wrong.
    if right >= 1 && 2 * right > whole.len() {
        for (reward, total) in whole.iter().filter(|(reward, total)| !near(reward.value, *total)) {
            found.push(difference(derivation, reward, *total, "the sum of its components"));
        }
    }
    for reward in rewards {
        let Some(parts) = of(reward) else {
            continue;
        };
        let nulls: Vec<&str> =
            parts.iter().filter(|(_, value)| value.is_none()).map(|(name, _)| name.as_str()).collect();
        let is_empty = nulls.len() == parts.len();
        if !nulls.is_empty() && (is_empty || excludes_null) {
            let mut one = difference(derivation, reward, f64::NAN, "null");
            one.expected = Some("null".to_owned());
            one.message = format!(
                "reward {} of rollout {} is {}, and its component {} is null: the value counts it as 0, the component does not",
                derivation.name,
                reward.rollout,
                shown(Some(reward.value)),
                nulls.join(", ")
            );
            found.push(one);
        }
    }
}

/// Most rewards are made of their scores in one way; the others are not what their scores give.
fn judge_scores(derivation: &Derivation, rewards: &[Reward], of_truncated: Option<f64>, found: &mut Vec<Found>) {
    let is_plain = |reward: &&Reward| !reward.scores.is_empty() && !reward.is_explained(of_truncated);
    let scored: Vec<&Reward> = rewards.iter().filter(is_plain).collect();
    // A reward with an invalid score is score/valid's question.
    let judged: Vec<&Reward> =
        scored.iter().copied().filter(|reward| reward.scores.iter().all(|(_, value)| value.is_some())).collect();
    if judged.is_empty() {
        return;
    }
    let right = |way: fn(&Reward) -> Option<f64>| {
        judged.iter().filter(|reward| way(reward).is_some_and(|value| near(value, reward.value))).count()
    };
    let best = WAYS.iter().map(|(name, way)| (right(*way), *name, *way)).rev().max_by_key(|(right, ..)| *right);
    let Some((most, name, way)) = best else {
        return;
    };
    if most == judged.len() || is_line(&judged) || is_cut_off(&judged) {
        return;
    }
    if 2 * most > judged.len() {
        for reward in judged.iter().filter(|reward| !way(reward).is_some_and(|value| near(value, reward.value))) {
            let value = way(reward).unwrap_or(f64::NAN);
            found.push(difference(derivation, reward, value, name));
        }
        return;
    }
    let flattened = flattened(&judged);
    if !flattened.is_empty() {
        for reward in flattened {
            let own = reward.scores.first().and_then(|(_, value)| *value).unwrap_or(f64::NAN);
            found.push(difference(derivation, reward, own, "its score; all calls of the rollout have this one value"));
        }
        return;
    }
    let remedy = format!(
        "say how reward {} is made of scores, or give its recipe: it is neither {}",
        derivation.name,
        WAYS.map(|(name, _)| name).join(" nor ")
    );
    found.push(Found::missing(&derivation.run, derivation.id.as_deref(), "derivations.recipe", remedy));
}

/// Whether all rewards lie on one line over their only score: scaled and shifted, and nothing else.
fn is_line(judged: &[&Reward]) -> bool {
    let points: Option<Vec<(f64, f64)>> = judged
        .iter()
        .map(|reward| match reward.scores.as_slice() {
            [(_, Some(score))] => Some((*score, reward.value)),
            _ => None,
        })
        .collect();
    let Some(points) = points else {
        return false;
    };
    let low = points.iter().copied().min_by(|a, b| a.0.total_cmp(&b.0));
    let high = points.iter().copied().max_by(|a, b| a.0.total_cmp(&b.0));
    let (Some(low), Some(high)) = (low, high) else {
        return false;
    };
    let mut scores: Vec<f64> = points.iter().map(|point| point.0).collect();
    scores.sort_by(f64::total_cmp);
    scores.dedup();
    // Two different scores lie on a line whatever their rewards are; a level line keeps nothing of them.
    if points.len() < 3 || (scores.len() < 3 && points.len() < 4) || near(low.1, high.1) {
        return false;
    }
    let slope = (high.1 - low.1) / (high.0 - low.0);
    points.iter().all(|(score, value)| near(low.1 + slope * (score - low.0), *value))
}

/// Whether all rewards are their only score, cut off at the least or the largest reward: two at least must stand at a limit that
/// is used.
fn is_cut_off(judged: &[&Reward]) -> bool {
    let scores: Option<Vec<f64>> = judged
        .iter()
        .map(|reward| match reward.scores.as_slice() {
            [(_, score)] => *score,
            _ => None,
        })
        .collect();
    let Some(scores) = scores else {
        return false;
    };
    let values = || judged.iter().map(|reward| reward.value);
    let (low, high) = (values().fold(f64::INFINITY, f64::min), values().fold(f64::NEG_INFINITY, f64::max));
    let beyond = |is: &dyn Fn(f64) -> bool| scores.iter().filter(|score| is(**score)).count();
    let (below, above) =
        (beyond(&|score| score < low && !near(score, low)), beyond(&|score| score > high && !near(score, high)));
    low < high
        && below != 1
        && above != 1
        && scores.iter().zip(values()).all(|(score, value)| near(score.clamp(low, high), value))
}

/// Rewards of calls that are one value over a rollout although the calls' own scores differ, and no way of taking these
/// together gives it.
fn flattened<'a>(judged: &[&'a Reward]) -> Vec<&'a Reward> {
    let mut rollouts: BTreeMap<&str, Vec<&'a Reward>> = BTreeMap::new();
    for reward in judged.iter().copied().filter(|reward| reward.call.is_some() && reward.scores.len() == 1) {
        rollouts.entry(reward.rollout.as_str()).or_default().push(reward);
    }
    let mut found = Vec::new();
    for rewards in rollouts.into_values() {
        let scores: Vec<f64> = rewards.iter().filter_map(|reward| reward.scores.first()?.1).collect();
        let (Some(value), Some(first)) = (rewards.first().map(|reward| reward.value), scores.first()) else {
            continue;
        };
        let count = u32::try_from(scores.len()).map_or(1.0, f64::from);
        let sum: f64 = scores.iter().sum();
        let is_level = rewards.iter().all(|reward| near(reward.value, value));
        let differ = scores.iter().any(|score| !near(*score, *first));
        let is_made = scores.iter().any(|score| near(*score, value)) || near(sum, value) || near(sum / count, value);
        if is_level && differ && !is_made {
            found.extend(rewards);
        }
    }
    found
}

fn difference(derivation: &Derivation, reward: &Reward, expected: f64, what: &str) -> Found {
    let (expected, observed) = (shown(Some(expected)), shown(Some(reward.value)));
    let place = reward.call.as_ref().map_or_else(String::new, |call| format!(", call {call}"));
    Found {
        run: derivation.run.clone(),
        rollout: Some(reward.rollout.clone()),
        call: reward.call.clone(),
        derivation: derivation.id.clone(),
        message: format!(
            "reward {} of rollout {}{place} is {observed}, and {what} is {expected}",
            derivation.name, reward.rollout
        ),
        expected: Some(expected),
        observed: Some(observed),
        ..Found::default()
    }
}

/// What the run declares of nulls and of truncated rollouts.
async fn rules(session: &Session, run: &str) -> Result<(Option<String>, Option<String>)> {
    let sql = format!(
        "SELECT max(credit_rule['null']) AS on_null, max(credit_rule['truncated']) AS on_truncated FROM runs WHERE run_id = {}",
        quoted(run)
    );
    let mut rules = (None, None);
    each_row(session, &sql, |row| {
        rules = (row.text("on_null")?, row.text("on_truncated")?);
        Ok(())
    })
    .await?;
    Ok(rules)
}

async fn rewards(session: &Session, derivation: &Derivation) -> Result<Vec<Reward>> {
    let run = quoted(&derivation.run);
    let value = "CASE WHEN coalesce(is_valid, true) AND coalesce(error_type, '') = '' THEN value END AS value";
    let (mut by_id, mut by_place) = (HashMap::new(), HashMap::new());
    // A score that was written twice with two values is score/raw's; here its newest counts.
    let sql =
        format!("SELECT score_id, verifier, {value} FROM scores_history WHERE run_id = {run} AND score_id IS NOT NULL");
    each_row(session, &sql, |row| {
        let score = (row.text("verifier")?.unwrap_or_default(), row.double("value")?);
        by_id.insert(row.text("score_id")?.unwrap_or_default(), score);
        Ok(())
    })
    .await?;
    let sql =
        format!("SELECT rollout_id, call_id, verifier, {value} FROM scores WHERE run_id = {run} ORDER BY verifier");
    each_row(session, &sql, |row| {
        let place = (row.text("rollout_id")?.unwrap_or_default(), row.text("call_id")?);
        let scores: &mut Vec<(String, Option<f64>)> = by_place.entry(place).or_default();
        scores.push((row.text("verifier")?.unwrap_or_default(), row.double("value")?));
        Ok(())
    })
    .await?;
    let sql = format!(
        "SELECT reward.rollout_id, reward.call_id, reward.value, reward.components, reward.score_ids, cut.is_truncated
         FROM (
             SELECT run_id, rollout_id, call_id, value, components, score_ids FROM rewards_history
             WHERE {} AND rollout_id IS NOT NULL AND value IS NOT NULL
         ) AS reward
         LEFT JOIN (
             SELECT run_id, rollout_id, bool_or(status = 'truncated') AS is_truncated FROM rollouts GROUP BY run_id, rollout_id
         ) AS cut ON cut.run_id = reward.run_id AND cut.rollout_id = reward.rollout_id
         ORDER BY reward.rollout_id, reward.call_id",
        derivation.condition()
    );
    let mut rewards = Vec::new();
    each_row(session, &sql, |row| {
        let (Some(rollout), Some(value)) = (row.text("rollout_id")?, row.double("value")?) else {
            return Ok(());
        };
        let call = row.text("call_id")?;
        let ids = row.texts("score_ids")?;
        let scores = if ids.is_empty() {
            by_place.get(&(rollout.clone(), call.clone())).cloned().unwrap_or_default()
        } else {
            ids.iter().filter_map(|id| by_id.get(id).cloned()).collect()
        };
        // NaN and infinity are score/range's.
        if value.is_finite() {
            let (components, is_truncated) = (row.named_numbers("components")?, row.is_true("is_truncated")?);
            rewards.push(Reward { rollout, call, value, components, scores, is_truncated });
        }
        Ok(())
    })
    .await?;
    Ok(rewards)
}
