//! Golden vectors: the same rewards under each trainer's formula, from the trainers' own sources.

use super::config::{Basis, Center, Config, Eps, Formula, Members, Over, Rule, Std, formulas};
use super::fit::{Stored, Tolerance, agrees, search};
use super::statistics::{Expected, Member, Statistics};

const BASIS: Basis = Basis { over: Over::Rollouts, members: Members::Rewarded, merges_tasks: false };

fn members(rewards: &[f64]) -> Vec<Member> {
    let member = |(at, reward): (usize, &f64)| Member {
        rollout: format!("r{at}"),
        group: Some("g".to_owned()),
        task: Some("t".to_owned()),
        reward: Some(*reward),
        is_rewarded: true,
        rows: 1.0,
        calls: 1.0,
        ..Member::default()
    };
    rewards.iter().enumerate().map(member).collect()
}

fn stored(values: &[f64]) -> Vec<Stored> {
    values.iter().enumerate().map(|(member, value)| Stored { member, call: None, value: Some(*value) }).collect()
}

fn scaled(center: Center, std: Std, ddof: u8, eps: f64) -> Formula {
    Formula::Scaled { center, std, ddof, eps: Eps::Added(eps) }
}

fn given(members: &[Member], formula: Formula) -> Vec<f64> {
    let statistics = Statistics::new(members, BASIS);
    (0..members.len())
        .map(|at| match statistics.expected(at, Config { formula, basis: BASIS }) {
            Expected::Value(value) => value,
            Expected::Nothing | Expected::Excluded => 0.0,
            Expected::Singleton(reward) => reward,
        })
        .collect()
}

fn assert_near(given: &[f64], expected: &[f64]) {
    let near = given.len() == expected.len() && given.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-4);
    assert!(near, "{given:?} {expected:?}");
}

/// Winner and loser of [1, 0, 0, 0], with the constants of each trainer.
#[test]
fn the_trainers_formulas_give_their_published_values() {
    let one = members(&[1.0, 0.0, 0.0, 0.0]);
    let pair = |formula: Formula| given(&one, formula)[..2].to_vec();
    let group = |ddof, eps| scaled(Center::GroupMean, Std::Group, ddof, eps);
    assert_near(&pair(group(1, 1e-4)), &[1.4997, -0.4999]);
    assert_near(&pair(group(0, 1e-8)), &[1.73205, -0.57735]);
    assert_near(&pair(group(1, 1e-6)), &[1.5, -0.5]);
    assert_near(&pair(group(1, 1e-5)), &[1.49997, -0.49999]);
    assert_near(&pair(scaled(Center::LeaveOneOut, Std::Others { undivided: true }, 1, 1e-6)), &[1.0, -0.57735]);
    assert_near(&pair(scaled(Center::GroupMean, Std::None, 1, 0.0)), &[0.75, -0.25]);
    assert_near(&pair(scaled(Center::LeaveOneOut, Std::None, 1, 0.0)), &[1.0, -0.3333]);
    assert_near(&pair(Formula::MaxRl { eps: 0.0 }), &[3.0, -1.0]);
    assert_near(&pair(Formula::Gpg), &[3.0, -1.0]);
    assert_near(&pair(Formula::PassAtK { eps: Some(0.0) }), &[2.0, 0.0]);
    assert_near(&pair(Formula::PassAtK { eps: None }), &[1.0, 0.0]);
}

#[test]
fn formulas_over_tokens_give_their_published_values() {
    let mut one = members(&[1.0, 0.0, 0.0, 0.0]);
    for (member, tokens) in one.iter_mut().zip([200.0, 400.0, 100.0, 300.0]) {
        member.tokens = tokens;
    }
    assert_near(&given(&one, Formula::Opo)[..2], &[0.8, -0.2]);
    let whitened = |ddof, eps| Formula::Scaled { center: Center::GroupMean, std: Std::BatchTokens, ddof, eps };
    assert_near(&given(&one, whitened(0, Eps::Added(0.0)))[..2], &[2.0, -0.5]);
    assert_near(&given(&one, whitened(1, Eps::UnderRoot(1e-8)))[..2], &[1.999, -0.49975]);
    assert_near(&given(&one, scaled(Center::GroupMean, Std::BatchCentered, 0, 0.0))[..2], &[1.73205, -0.57735]);
}

#[test]
fn a_leave_one_out_spread_of_equal_others_is_zero_in_double() {
    let mut rewards = vec![0.0];
    rewards.extend([0.95; 7]);
    let undivided = scaled(Center::LeaveOneOut, Std::Others { undivided: true }, 1, 1e-6);
    assert_near(&given(&members(&rewards), undivided)[..1], &[-0.95]);
}

fn found(rewards: &[f64], credits: &[f64], rule: &Rule) -> super::fit::Found {
    search(&members(rewards), &stored(credits), &[BASIS], &formulas(rule.eps, false), rule)
}

#[test]
fn what_fits_is_told_from_what_is_declared() {
    let declared = Rule { std_scope: Some("group".to_owned()), ..Rule::default() };
    let right = found(&[1.0, 0.0, 0.0, 0.0], &[1.5, -0.5, -0.5, -0.5], &declared);
    assert!(right.perfect.iter().any(|fit| declared.allows(fit.config)));
    let centered = found(&[1.0, 0.0, 0.0, 0.0], &[0.75, -0.25, -0.25, -0.25], &declared);
    assert!(!centered.perfect.is_empty());
    assert!(centered.perfect.iter().all(|fit| !declared.allows(fit.config)));
    assert_eq!(declared.broken_parts(centered.perfect[0].config.formula), ["std is none, not group"]);
    assert_eq!(centered.nearest.unwrap().wrong.len(), 4);
}

#[test]
fn equal_rewards_tell_nothing_apart() {
    let flat = found(&[1.0, 1.0, 1.0], &[0.0, 0.0, 0.0], &Rule::default());
    assert_eq!(flat.informative, 0);
    assert!(flat.perfect.len() > 10);
}

#[test]
fn one_credit_that_was_changed_is_the_one_that_is_wrong() {
    let changed = found(&[1.0, 0.0, 0.0, 0.0], &[1.5, -0.5, -0.5, 0.7], &Rule::default());
    assert!(changed.perfect.is_empty());
    assert_eq!(changed.nearest.unwrap().wrong, [3]);
}

#[test]
fn eps_is_told_by_the_digits_that_are_kept() {
    let values = |eps: f64| [0.75 / (0.5 + eps), -0.25 / (0.5 + eps), -0.25 / (0.5 + eps), -0.25 / (0.5 + eps)];
    let rule = |eps| Rule { eps: Some(eps), std_scope: Some("group".to_owned()), ..Rule::default() };
    let fits = |stored: f64, declared: f64| {
        let found = found(&[1.0, 0.0, 0.0, 0.0], &values(stored), &rule(declared));
        found.perfect.iter().any(|fit| rule(declared).allows(fit.config))
    };
    assert!(fits(1e-4, 1e-4) && fits(1e-6, 1e-6) && fits(3e-3, 3e-3));
    assert!(!fits(1e-4, 1e-6) && !fits(1e-6, 1e-4));
}

#[test]
fn rounded_sources_are_compared_at_their_last_place() {
    let tolerance = Tolerance::of(&stored(&[0.8165, -0.8165]));
    let rule = Rule::default();
    assert!(agrees(Expected::Value(0.816_496_58), Some(0.8165), &rule, tolerance));
    assert!(!agrees(Expected::Value(0.8163), Some(0.8165), &rule, tolerance));
    // One place is no rounding: 1.5 is 1.5.
    let exact = Tolerance::of(&stored(&[1.5, -0.5]));
    assert!(!agrees(Expected::Value(1.4997), Some(1.5), &rule, exact));
    // A division by 0 is near to nothing but itself.
    assert!(!agrees(Expected::Value(f64::INFINITY), Some(1.5), &rule, exact));
    assert!(agrees(Expected::Value(f64::INFINITY), Some(f64::INFINITY), &rule, exact));
}

#[test]
fn a_singleton_gets_what_the_run_declares() {
    let tolerance = Tolerance::of(&[]);
    let declared = |singleton: &str| Rule { singleton: Some(singleton.to_owned()), ..Rule::default() };
    let single = Expected::Singleton(0.4);
    for value in [None, Some(0.0), Some(0.4), Some(f64::NAN)] {
        assert!(agrees(single, value, &Rule::default(), tolerance), "{value:?}");
    }
    assert!(!agrees(single, Some(0.3), &Rule::default(), tolerance));
    assert!(
        agrees(single, Some(0.4), &declared("raw"), tolerance)
            && !agrees(single, Some(0.0), &declared("raw"), tolerance)
    );
    assert!(
        agrees(single, None, &declared("null"), tolerance) && !agrees(single, Some(0.4), &declared("null"), tolerance)
    );
    assert!(
        agrees(single, Some(0.0), &declared("0"), tolerance) && !agrees(single, Some(0.4), &declared("0"), tolerance)
    );
}

#[test]
fn rows_and_nulls_in_a_baseline_are_no_rule_of_the_lake() {
    let mut cut = members(&[1.0, 0.0, 0.0]);
    cut[0].rows = 3.0;
    let over_rows = Basis { over: Over::Rows, ..BASIS };
    let credits = stored(&[0.4, -0.6, -0.6]);
    let found = search(&cut, &credits, &[BASIS, over_rows], &formulas(None, false), &Rule::default());
    assert!(!found.perfect.is_empty());
    assert!(found.perfect.iter().all(|fit| fit.config.basis == over_rows));
    assert!(!Rule::default().allows(found.perfect[0].config));
}
