//! Credits that normalize each component of the reward by itself (GDPO, arXiv 2601.05242).
//!
//! ```text
//! A_i = sum over components k of (r_ik - mean_group(r_k)) / (std_group(r_k) + eps)
//! and, over the batch,       (A_i - mean(A)) / (std(A) + eps)
//! ```
//!
//! Where one component alone varies in a group it is the normalized sum, so that the two are told apart by other groups only.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use rollbook_query::{Result, Session};

use super::fit::{Stored, Tolerance};
use super::inputs::{Derivation, each_row};
use super::statistics::Member;
use crate::tables::quoted;

const EPS: [f64; 5] = [1e-6, 1e-8, 1e-4, 1e-5, 0.0];

/// Components of rewards by rollout.
type Components = HashMap<String, BTreeMap<String, f64>>;

/// Whether the stored credits are those of components that were normalized one by one.
pub(super) async fn fits(
    session: &Session,
    derivation: &Derivation,
    members: &[Member],
    stored: &[Stored],
) -> Result<bool> {
    let components = components(session, derivation).await?;
    let names: BTreeSet<&String> = components.values().flat_map(BTreeMap::keys).collect();
    if names.len() < 2 {
        return Ok(false);
    }
    let is_member = |member: &Member| {
        member.group.is_some()
            && !member.is_idle
            && components.get(&member.rollout).is_some_and(|own| own.len() == names.len())
    };
    let judged: Vec<usize> = (0..members.len()).filter(|at| members.get(*at).is_some_and(is_member)).collect();
    if judged.is_empty() || stored.iter().any(|credit| credit.value.is_some() && !judged.contains(&credit.member)) {
        return Ok(false);
    }
    let tolerance = Tolerance::of(stored);
    for ddof in [1.0, 0.0] {
        for eps in EPS {
            let sums = sums(members, &judged, &components, ddof, eps);
            for whitens in [None, Some(1.0), Some(0.0)] {
                let values = whitens.map_or_else(|| sums.clone(), |ddof| whitened(members, &sums, ddof, eps));
                let is_same = |credit: &Stored| match (credit.value, values.get(&credit.member)) {
                    (Some(stored), Some(value)) => tolerance.near(*value, stored),
                    (stored, _) => stored.is_none(),
                };
                if stored.iter().all(is_same) {
                    return Ok(true);
                }
            }
        }
    }
    Ok(false)
}

async fn components(session: &Session, derivation: &Derivation) -> Result<Components> {
    let run = quoted(&derivation.run);
    let ids: Vec<String> = derivation.upstream_ids.iter().map(|id| quoted(id)).collect();
    let of = if ids.is_empty() { String::new() } else { format!(" AND derivation_id IN ({})", ids.join(", ")) };
    let table = if ids.is_empty() { "rewards" } else { "rewards_history" };
    let of_rewards = format!(
        "SELECT rollout_id, unnest(map_keys(components)) AS name, unnest(map_values(components)) AS value
         FROM {table} WHERE run_id = {run} AND call_id IS NULL AND components IS NOT NULL{of}"
    );
    let of_scores = format!(
        "SELECT rollout_id, verifier AS name, value FROM scores
         WHERE run_id = {run} AND call_id IS NULL AND coalesce(is_valid, true) AND coalesce(error_type, '') = ''"
    );
    let mut found = Components::new();
    for sql in [of_rewards, of_scores] {
        each_row(session, &sql, |row| {
            if let (Some(rollout), Some(name), Some(value)) =
                (row.text("rollout_id")?, row.text("name")?, row.double("value")?)
            {
                found.entry(rollout).or_default().insert(name, value);
            }
            Ok(())
        })
        .await?;
        if !found.is_empty() {
            break;
        }
    }
    Ok(found)
}

/// The sum over components of each member's normalized component.
fn sums(members: &[Member], judged: &[usize], components: &Components, ddof: f64, eps: f64) -> BTreeMap<usize, f64> {
    let mut groups: BTreeMap<(Option<&str>, Option<&str>), Vec<usize>> = BTreeMap::new();
    for at in judged {
        if let Some(member) = members.get(*at) {
            groups.entry((member.group.as_deref(), member.task.as_deref())).or_default().push(*at);
        }
    }
    let mut sums: BTreeMap<usize, f64> = judged.iter().map(|at| (*at, 0.0)).collect();
    let of = |at: &usize| members.get(*at).and_then(|member| components.get(&member.rollout));
    for group in groups.values() {
        let names: Vec<&String> = group.first().and_then(of).into_iter().flat_map(BTreeMap::keys).collect();
        for name in names {
            let values: Vec<f64> = group.iter().filter_map(|at| of(at)?.get(name).copied()).collect();
            for (at, value) in group.iter().zip(normalized(&values, ddof, eps)) {
                *sums.entry(*at).or_default() += value;
            }
        }
    }
    sums
}

/// The same, normalized over the members of a step.
fn whitened(members: &[Member], sums: &BTreeMap<usize, f64>, ddof: f64, eps: f64) -> BTreeMap<usize, f64> {
    let mut steps: BTreeMap<Option<i64>, Vec<(usize, f64)>> = BTreeMap::new();
    for (at, sum) in sums {
        steps.entry(members.get(*at).and_then(|member| member.step)).or_default().push((*at, *sum));
    }
    let mut found = BTreeMap::new();
    for batch in steps.values() {
        let values: Vec<f64> = batch.iter().map(|(_, sum)| *sum).collect();
        found.extend(batch.iter().map(|(at, _)| *at).zip(normalized(&values, ddof, eps)));
    }
    found
}

/// `(x - mean) / (std + eps)`, 0 where the values do not differ.
fn normalized(values: &[f64], ddof: f64, eps: f64) -> Vec<f64> {
    #[expect(clippy::cast_precision_loss, reason = "a group has few members")]
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean) * (value - mean)).sum();
    let divisor = (squares / (count - ddof).max(1.0)).sqrt() + eps;
    values.iter().map(|value| if squares <= 1e-24 { 0.0 } else { (value - mean) / divisor }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_component_counts_as_much_as_another() {
        let member =
            |rollout: &str| Member { rollout: rollout.to_owned(), group: Some("g".to_owned()), ..Member::default() };
        let members = [member("a"), member("b")];
        let of = |correct: f64, format: f64| {
            BTreeMap::from([("correct".to_owned(), correct), ("format".to_owned(), format)])
        };
        let components = Components::from([("a".to_owned(), of(10.0, 0.0)), ("b".to_owned(), of(0.0, 1.0))]);
        // ±1/√2 of each, whatever its size.
        assert_eq!(sums(&members, &[0, 1], &components, 1.0, 0.0), BTreeMap::from([(0, 0.0), (1, 0.0)]));
        let alike = Components::from([("a".to_owned(), of(10.0, 1.0)), ("b".to_owned(), of(0.0, 0.0))]);
        let sums = sums(&members, &[0, 1], &alike, 1.0, 0.0);
        assert!((sums[&0] - 2.0_f64.sqrt()).abs() < 1e-12, "{sums:?}");
        assert_eq!(whitened(&members, &sums, 0.0, 0.0), BTreeMap::from([(0, 1.0), (1, -1.0)]));
    }
}
