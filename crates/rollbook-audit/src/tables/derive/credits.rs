//! Imported credits: which known configuration gives them, and whether it is the one that the run declares.

use std::collections::{BTreeMap, HashMap};

use rollbook_query::{Result, Session};

use super::config::{Basis, Config, Members, Over, Rule, formulas};
use super::fit::{Fit, Stored, search};
use super::inputs::{Derivation, each_row};
use super::statistics::{Expected, Member, Statistics};
use super::{Found, gdpo, returns, shown, turns};
use crate::tables::quoted;

/// Findings of one credit that are kept.
const KEPT: usize = 10_000;

/// Judges a credit that was imported without a recipe of ours.
pub(super) async fn judge(session: &Session, derivation: &Derivation, found: &mut Vec<Found>) -> Result<()> {
    let mut rule = rule(session, &derivation.run).await?;
    let clip =
        derivation.parameter(&["advantage_clip", "adv_clip", "clip_advantage", "advantage_clip_max", "max_advantage"]);
    rule.clip = clip.filter(|clip| *clip > 0.0);
    let (mut stored, is_by_token) = stored(session, derivation).await?;
    if is_by_token {
        return returns::judge(session, derivation, found).await;
    }
    if turns::judge(session, derivation, found).await? {
        return Ok(());
    }
    // A weight is no function of rewards that is known here.
    if stored.is_empty() {
        return Ok(());
    }
    let Some(rewards) = rewards(session, derivation).await? else {
        let remedy =
            format!("give the rewards, or the scores of one verifier, that credit {} was made from", derivation.name);
        found.push(Found::missing(&derivation.run, derivation.id.as_deref(), "rewards.value", remedy));
        return Ok(());
    };
    let (members, index) = members(session, derivation, &rewards).await?;
    stored.retain_mut(|(rollout, credit)| match index.get(rollout) {
        Some(member) => {
            credit.member = *member;
            true
        }
        // A rollout that the run does not hold is rollout/orphan's.
        None => false,
    });
    let stored: Vec<Stored> = stored.into_iter().map(|(_, credit)| credit).collect();
    if stored.is_empty() {
        return Ok(());
    }
    let mut faults = Vec::new();
    judge_values(derivation, &members, &stored, &rule, &mut faults);
    // What the run declares is of one reward; without that the components may have been normalized one by one.
    let may_be_gdpo = !faults.is_empty() && !rule.is_declared();
    if !(may_be_gdpo && gdpo::fits(session, derivation, &members, &stored).await?) {
        found.append(&mut faults);
    }
    Ok(())
}

fn judge_values(derivation: &Derivation, members: &[Member], stored: &[Stored], rule: &Rule, found: &mut Vec<Found>) {
    let has_tokens = members.iter().any(|member| member.tokens > 0.0);
    let fits = search(members, stored, &bases(members), &formulas(rule.eps, has_tokens), rule);
    if fits.perfect.iter().any(|fit| rule.allows(fit.config)) {
        return;
    }
    if let Some((clip, config)) = cut_off(members, stored, rule, &fits) {
        let remedy = format!(
            "say at which size credits are cut off (advantage_clip): {} gives all {} credits of {} with {}",
            config.formula,
            stored.len(),
            derivation.name,
            shown(Some(clip))
        );
        let missing = "derivations.parameters.advantage_clip";
        found.push(Found::missing(&derivation.run, derivation.id.as_deref(), missing, remedy));
        return;
    }
    let Some(nearest) = fits.nearest else {
        return;
    };
    // Without a rule, and nothing that fits, only a configuration that most credits follow can accuse the others; where all
    // rewards of each group are equal, none gives its members different credits.
    let followed = fits.informative.saturating_sub(nearest.wrong.len());
    let is_followed = match fits.informative {
        0 => is_split(members, stored),
        all => followed >= 2 && 2 * followed > all,
    };
    if fits.perfect.is_empty() && !rule.is_declared() && !is_followed {
        let remedy = format!(
            "say how credit {} is made of rewards, or give its recipe: no known configuration gives its {} values",
            derivation.name,
            stored.len()
        );
        found.push(Found::missing(&derivation.run, derivation.id.as_deref(), "runs.credit_rule", remedy));
        return;
    }
    let why = why(&fits.perfect, &nearest, rule, stored.len(), fits.informative);
    let statistics = Statistics::new(members, nearest.config.basis);
    for at in nearest.wrong.iter().take(KEPT) {
        if let Some(credit) = stored.get(*at) {
            found.push(wrong(derivation, members, credit, statistics.expected(credit.member, nearest.config), &why));
        }
    }
}

/// The size at which a configuration that the run allows gives all credits, if it is cut off there: where nothing gives them
/// as they are, and two of them at least stand at their largest size.
fn cut_off(members: &[Member], stored: &[Stored], rule: &Rule, fits: &super::fit::Found) -> Option<(f64, Config)> {
    if !fits.perfect.is_empty() || rule.clip.is_some() {
        return None;
    }
    let sizes = || stored.iter().filter_map(|credit| credit.value).map(f64::abs).filter(|size| size.is_finite());
    let clip = sizes().fold(0.0, f64::max);
    let is_at_clip = |size: &f64| (size - clip).abs() <= 1e-6 * clip;
    if clip <= 0.0 || sizes().filter(is_at_clip).count() < 2 {
        return None;
    }
    let cut = Rule { clip: Some(clip), ..rule.clone() };
    let has_tokens = members.iter().any(|member| member.tokens > 0.0);
    let fits = search(members, stored, &bases(members), &formulas(rule.eps, has_tokens), &cut);
    // One that gives the uncut credits as well has told nothing of those at the limit.
    let uncut = |config: Config| {
        let statistics = Statistics::new(members, config.basis);
        let beyond = |credit: &Stored| match statistics.expected(credit.member, config) {
            Expected::Value(value) => value.abs() > clip * (1.0 + 1e-6),
            _ => false,
        };
        let (cut, kept): (Vec<&Stored>, Vec<&Stored>) = stored.iter().partition(|credit| beyond(credit));
        cut.len() >= 2 && kept.iter().filter(|credit| credit.value.is_some_and(|value| value != 0.0)).count() >= 2
    };
    fits.perfect
        .iter()
        .map(|fit| fit.config)
        .find(|config| rule.allows(*config) && uncut(*config))
        .map(|config| (clip, config))
}

/// Whether members of one group have different credits.
fn is_split(members: &[Member], stored: &[Stored]) -> bool {
    let mut first: BTreeMap<(Option<&str>, Option<&str>), f64> = BTreeMap::new();
    stored.iter().any(|credit| {
        let (Some(member), Some(value)) = (members.get(credit.member), credit.value) else {
            return false;
        };
        let known = *first.entry((member.group.as_deref(), member.task.as_deref())).or_insert(value);
        (known - value).abs() > 1e-6 * known.abs().max(1.0)
    })
}

fn wrong(derivation: &Derivation, members: &[Member], credit: &Stored, expected: Expected, why: &str) -> Found {
    let member = members.get(credit.member).cloned().unwrap_or_default();
    let expected = match expected {
        Expected::Value(value) => shown(Some(value)),
        Expected::Nothing => "0".to_owned(),
        Expected::Singleton(_) => "what a singleton gets".to_owned(),
        Expected::Excluded => "null".to_owned(),
    };
    let observed = shown(credit.value);
    Found {
        run: derivation.run.clone(),
        step: member.step,
        group: member.group.clone(),
        rollout: Some(member.rollout.clone()),
        call: credit.call.clone(),
        derivation: derivation.id.clone(),
        message: format!(
            "credit {} gives rollout {} {observed}, and {expected} is right: {why}",
            derivation.name, member.rollout
        ),
        expected: Some(expected),
        observed: Some(observed),
        ..Found::default()
    }
}

/// What is wrong with the credits as a whole, and which configuration fits.
fn why(perfect: &[Fit], nearest: &Fit, rule: &Rule, credits: usize, informative: usize) -> String {
    let Some(first) = perfect.first() else {
        let source = match (rule.is_declared(), informative) {
            (true, _) => "the run's credit_rule",
            (false, 0) => "the rewards of each group are equal, and any configuration gives that; one of them",
            (false, _) => "what the other credits follow",
        };
        return format!(
            "{source} is {}, which gives {} of {credits} credits, and no known configuration gives all",
            nearest.config.formula,
            credits - nearest.wrong.len()
        );
    };
    // What every configuration that fits does otherwise is certain; of the rest one is named.
    let parts = |config: Config| -> Vec<String> {
        let faults = config.basis.faults(rule.null_is_zero()).into_iter().map(str::to_owned);
        faults.chain(rule.broken_parts(config.formula)).collect()
    };
    let mut certain = parts(first.config);
    certain.retain(|part| perfect.iter().all(|fit| parts(fit.config).contains(part)));
    let broken = if certain.is_empty() { parts(first.config) } else { certain };
    let alike = match perfect.len() {
        1 => String::new(),
        more => format!(", as do {} others that differ from it on other data only", more - 1),
    };
    format!("{}; {} gives all {credits} credits{alike}", broken.join(", "), first.config.formula)
}

/// The bases on which the members differ.
fn bases(members: &[Member]) -> Vec<Basis> {
    let mut sets = vec![Members::Rewarded];
    if members.iter().any(|member| member.is_dropped && member.reward.is_some()) {
        sets.push(Members::Kept);
    }
    if members.iter().any(|member| member.is_idle && member.reward.is_some()) {
        sets.push(Members::Idle);
    }
    if members.iter().any(|member| member.is_rewarded && member.reward.is_none()) {
        sets.push(Members::NullIsZero);
    }
    let mut over = vec![Over::Rollouts];
    if members.iter().any(|member| member.rows > 1.0) {
        over.push(Over::Rows);
    }
    if members.iter().any(|member| member.calls > 1.0) {
        over.push(Over::Calls);
    }
    let mut tasks: BTreeMap<Option<&str>, Option<&str>> = BTreeMap::new();
    let mut merges = vec![false];
    let has_several = members.iter().any(|member| {
        let first = *tasks.entry(member.group.as_deref()).or_insert(member.task.as_deref());
        first != member.task.as_deref()
    });
    if has_several {
        merges.push(true);
    }
    let mut bases = Vec::new();
    for merges_tasks in merges {
        for over in &over {
            bases.extend(sets.iter().map(|members| Basis { over: *over, members: *members, merges_tasks }));
        }
    }
    bases
}

async fn rule(session: &Session, run: &str) -> Result<Rule> {
    let sql = format!(
        "SELECT max(credit_rule['center']) AS center, max(credit_rule['std_scope']) AS std_scope, max(credit_rule['ddof']) AS ddof,
             max(credit_rule['eps']) AS eps, max(credit_rule['singleton']) AS singleton, max(credit_rule['null']) AS on_null
         FROM runs WHERE run_id = {}",
        quoted(run)
    );
    let mut rule = Rule::default();
    each_row(session, &sql, |row| {
        rule = Rule {
            center: row.text("center")?.map(|word| Rule::plain_center(&word.to_lowercase()).to_owned()),
            std_scope: row.text("std_scope")?.map(|word| Rule::plain_scope(&word.to_lowercase()).to_owned()),
            ddof: row.long("ddof")?,
            eps: row.double("eps")?,
            singleton: row.text("singleton")?.map(|word| if word == "zero" { "0".to_owned() } else { word }),
            null: row.text("on_null")?,
            clip: None,
        };
        Ok(())
    })
    .await?;
    Ok(rule)
}

/// The stored credits with their rollouts, and whether they differ from token to token.
async fn stored(session: &Session, derivation: &Derivation) -> Result<(Vec<(String, Stored)>, bool)> {
    let sql = format!(
        "SELECT rollout_id, call_id, value, token_values FROM credits_history WHERE {} AND rollout_id IS NOT NULL
             AND coalesce(quantity, 'advantage') <> 'weight'
         ORDER BY rollout_id, call_id",
        derivation.condition()
    );
    let (mut stored, mut is_by_token) = (Vec::new(), false);
    each_row(session, &sql, |row| {
        let Some(rollout) = row.text("rollout_id")? else {
            return Ok(());
        };
        let mut value = row.double("value")?;
        if let Some(tokens) = row.numbers("token_values")? {
            // One value at every token is the rollout's own; masked tokens may have none or 0.
            let mut given = tokens.iter().flatten().copied().filter(|token| *token != 0.0);
            let first = given.next();
            is_by_token |= first.is_some_and(|first| given.any(|token| token.total_cmp(&first).is_ne()));
            value = value.or(first).or_else(|| tokens.iter().flatten().next().copied());
        }
        stored.push((rollout, Stored { member: 0, call: row.text("call_id")?, value }));
        Ok(())
    })
    .await?;
    Ok((stored, is_by_token))
}

/// The reward of each rollout: from the rewards that the credit names, else the run's only ones, else the scores of its
/// only verifier, else the sum of token rewards over tokens that train.
async fn rewards(session: &Session, derivation: &Derivation) -> Result<Option<HashMap<String, Option<f64>>>> {
    let run = quoted(&derivation.run);
    let mut queries = Vec::new();
    if !derivation.upstream_ids.is_empty() {
        let ids: Vec<String> = derivation.upstream_ids.iter().map(|id| quoted(id)).collect();
        queries.push(format!(
            "SELECT rollout_id, value, 'named' AS source FROM rewards_history
             WHERE run_id = {run} AND derivation_id IN ({}) AND call_id IS NULL",
            ids.join(", ")
        ));
    }
    queries.push(format!(
        "SELECT rollout_id, value, name AS source FROM rewards WHERE run_id = {run} AND call_id IS NULL"
    ));
    queries.push(format!(
        "SELECT rollout_id, CASE WHEN coalesce(is_valid, true) AND coalesce(error_type, '') = '' THEN value END AS value, verifier AS source
         FROM scores WHERE run_id = {run} AND call_id IS NULL"
    ));
    queries.push(format!(
        "SELECT signal.rollout_id, sum(trained_sum(signal.values, call.sampled_mask, call.action_mask)) AS value, signal.name AS source
         FROM token_signals AS signal
         JOIN calls AS call ON call.run_id = signal.run_id AND call.call_id = signal.call_id
         WHERE signal.run_id = {run} AND signal.name LIKE '%reward%' GROUP BY signal.rollout_id, signal.name"
    ));
    for sql in queries {
        let mut values = HashMap::new();
        let mut sources: Vec<String> = Vec::new();
        each_row(session, &sql, |row| {
            let source = row.text("source")?.unwrap_or_default();
            if !sources.contains(&source) {
                sources.push(source);
            }
            if let Some(rollout) = row.text("rollout_id")? {
                values.insert(rollout, row.double("value")?);
            }
            Ok(())
        })
        .await?;
        match sources.len() {
            0 => {}
            1 => return Ok(Some(values)),
            _ => return Ok(None),
        }
    }
    Ok(None)
}

/// The rollouts of the run that have a reward or a credit, by id.
async fn members(
    session: &Session,
    derivation: &Derivation,
    rewards: &HashMap<String, Option<f64>>,
) -> Result<(Vec<Member>, HashMap<String, usize>)> {
    let run = quoted(&derivation.run);
    let sql = format!(
        "WITH called AS (
             SELECT rollout_id, count(*) AS calls, sum(CAST(trained_count(output_len, sampled_mask, action_mask) AS BIGINT)) AS tokens,
                 count(output_len) AS known
             FROM calls
             WHERE run_id = {run} AND coalesce(is_trainable, coalesce(kind, 'act') IN ('act', 'compact'))
             GROUP BY rollout_id
         ),
         cut AS (
             SELECT rollout_id, count(*) AS rows
             FROM (
                 SELECT DISTINCT build_id, step, optimizer_step, micro_batch, rank, row_index, rollout_id
                 FROM samples
                 WHERE run_id = {run} AND rollout_id IS NOT NULL AND NOT coalesce(is_pad, false) AND coalesce(epoch, 0) = 0
             )
             GROUP BY rollout_id
         )
         SELECT rollout.rollout_id, rollout.step, rollout.group_id, rollout.task_id, rollout.is_dropped,
             coalesce(called.tokens = 0 AND called.known = called.calls, false) AS is_idle,
             coalesce(cut.rows, 1) AS rows, coalesce(called.calls, 1) AS calls, coalesce(called.tokens, 0) AS tokens
         FROM (
             SELECT rollout_id, min(step) AS step, min(group_id) AS group_id, min(task_id) AS task_id,
                 bool_or(drop_reason IS NOT NULL) AS is_dropped
             FROM rollouts WHERE run_id = {run} AND coalesce(purpose, 'train') = 'train' GROUP BY rollout_id
         ) AS rollout
         LEFT JOIN called ON called.rollout_id = rollout.rollout_id
         LEFT JOIN cut ON cut.rollout_id = rollout.rollout_id
         ORDER BY rollout.rollout_id"
    );
    let (mut members, mut index) = (Vec::new(), HashMap::new());
    each_row(session, &sql, |row| {
        let Some(rollout) = row.text("rollout_id")? else {
            return Ok(());
        };
        index.insert(rollout.clone(), members.len());
        members.push(Member {
            is_rewarded: rewards.contains_key(&rollout),
            reward: rewards.get(&rollout).copied().flatten(),
            rollout,
            step: row.long("step")?,
            group: row.text("group_id")?,
            task: row.text("task_id")?,
            is_dropped: row.is_true("is_dropped")?,
            is_idle: row.is_true("is_idle")?,
            rows: row.double("rows")?.unwrap_or(1.0),
            calls: row.double("calls")?.unwrap_or(1.0),
            tokens: row.double("tokens")?.unwrap_or(0.0),
        });
        Ok(())
    })
    .await?;
    Ok((members, index))
}
