//! Credits against what trainers make of the same rewards, and against the textbook.

#![expect(clippy::cast_precision_loss, reason = "the groups are small")]

use rstest::rstest;

use super::kernel::{Fault, Group, Outcome};
use super::rule::{Fallback, Gate, Incomplete, Method, Missing, NotANumber, Reading, Rule, Scale};
use super::spread::{Counted, Scaled, ScaledMoments};

const GATE: Gate =
    Gate { singleton: Fallback::Zero, zero_variance: Fallback::Zero, group_size: None, incomplete: Incomplete::Keep };
const PLAIN: Rule = rule(false, Scale::None);
const GRPO: Rule = rule(false, std(1, 1e-6));
const RLOO: Rule = rule(true, Scale::None);
const OTHERS: Rule = rule(true, std(1, 1e-6));

const fn rule(leave_one_out: bool, scale: Scale) -> Rule {
    let reading = Reading { missing: Missing::Skip, nan: NotANumber::Error };
    Rule { method: Method::Relative { leave_one_out, scale }, gate: Some(GATE), reading }
}

const fn std(ddof: u32, eps: f64) -> Scale {
    Scale::Std { ddof, eps, min_std: 0.0 }
}

const fn gated(rule: Rule, gate: Gate) -> Rule {
    Rule { gate: Some(gate), ..rule }
}

fn credits(values: &[f64], rule: &Rule) -> Result<Vec<Option<f64>>, Fault> {
    let mut scaled = Vec::new();
    let members = Counted { values, votes: &[] };
    let moments = ScaledMoments::new(members, &mut scaled);
    let scaled = Scaled { members: Counted { values: &scaled, votes: &[] }, moments };
    let group = Group { members, scaled, weights: &[], marks: &[], positions: &[] };
    let mut found = Vec::new();
    assert_eq!(super::kernel::credits(group, rule, &mut found)?, Outcome::Each);
    Ok(found.into_iter().map(|credit| (!credit.is_nan()).then_some(credit)).collect())
}

fn assert_near(credits: &[Option<f64>], expected: &[f64]) {
    assert_eq!(credits.len(), expected.len());
    for (credit, expected) in credits.iter().zip(expected) {
        let near = credit.is_some_and(|credit| (credit - expected).abs() <= 6e-6 * expected.abs().max(1e-9));
        assert!(near, "{credits:?} is not {expected:?}");
    }
}

/// What trainers make of the rewards 1, 0, 0, 0.
#[rstest]
#[case::verl_skyrl_roll(GRPO, 1.5, -0.5)]
#[case::trl(rule(false, std(1, 1e-4)), 1.4997, -0.4999)]
#[case::rllm(rule(false, std(0, 1e-6)), 1.73205, -0.57735)]
#[case::areal(rule(false, std(1, 1e-5)), 1.49997, -0.49999)]
#[case::nemo(OTHERS, 1.0, -0.57735)]
#[case::dr_grpo(PLAIN, 0.75, -0.25)]
#[case::rloo(RLOO, 1.0, -0.33333)]
fn one_winner_of_four(#[case] rule: Rule, #[case] winner: f64, #[case] loser: f64) {
    let credits = credits(&[1.0, 0.0, 0.0, 0.0], &rule).unwrap();
    for (credit, expected) in credits.into_iter().flatten().zip([winner, loser, loser, loser]) {
        // The table has four to six digits.
        assert!((credit - expected).abs() < 6e-5, "{credit} is not {expected}");
    }
}

#[test]
fn differences_without_a_divisor_are_exact() {
    assert_eq!(credits(&[1.0, 0.0, 0.0, 0.0], &PLAIN).unwrap(), [0.75, -0.25, -0.25, -0.25].map(Some));
    assert_eq!(credits(&[3.0, 1.0], &RLOO).unwrap(), [Some(2.0), Some(-2.0)]);
}

#[rstest]
// 0.1 + 0.1 + 0.1 over 3 is not 0.1 in doubles.
#[case(&[0.1, 0.1, 0.1])]
#[case(&[5.0, 5.0])]
#[case(&[0.0, 0.0])]
fn equal_values_have_exactly_no_credit(#[case] values: &[f64]) {
    for rule in [GRPO, PLAIN, RLOO, OTHERS] {
        assert_eq!(credits(values, &rule).unwrap(), vec![Some(0.0); values.len()]);
        let null = gated(rule, Gate { zero_variance: Fallback::Null, ..GATE });
        assert_eq!(credits(values, &null).unwrap(), vec![None; values.len()]);
    }
}

#[rstest]
#[case(Fallback::Zero, Some(0.0))]
#[case(Fallback::Value, Some(0.7))]
#[case(Fallback::Null, None)]
fn a_singleton_follows_its_rule(#[case] singleton: Fallback, #[case] expected: Option<f64>) {
    for rule in [GRPO, PLAIN, RLOO] {
        assert_eq!(credits(&[0.7], &gated(rule, Gate { singleton, ..GATE })).unwrap(), [expected]);
    }
    assert_eq!(credits(&[], &GRPO).unwrap(), []);
}

#[test]
fn incomplete_groups_follow_their_rule() {
    let rule = |incomplete| gated(PLAIN, Gate { group_size: Some(3), incomplete, ..GATE });
    assert_eq!(credits(&[1.0, 0.0], &rule(Incomplete::Keep)).unwrap(), [Some(0.5), Some(-0.5)]);
    assert_eq!(credits(&[1.0, 0.0], &rule(Incomplete::Null)).unwrap(), [None, None]);
    let fault = Fault::Incomplete { members: 2, group_size: 3 };
    assert_eq!(credits(&[1.0, 0.0], &rule(Incomplete::Error)).unwrap_err(), fault);
    assert!(credits(&[1.0, 0.0, 0.0], &rule(Incomplete::Error)).is_ok());
}

#[test]
fn two_members_left_alone_have_no_spread() {
    assert_eq!(credits(&[1.0, 0.25], &OTHERS).unwrap(), [Some(0.75), Some(-0.75)]);
}

#[rstest]
#[case(1e300)]
#[case(1e-290)]
#[case(-1e308)]
fn size_does_not_matter_where_nothing_is_added(#[case] unit: f64) {
    let rule = rule(false, std(1, 0.0));
    assert_near(&credits(&[unit, 0.0, 0.0, 0.0], &rule).unwrap(), &[1.5, -0.5, -0.5, -0.5].map(|c| c * unit.signum()));
    assert_near(&credits(&[unit, 0.0, 0.0, 0.0], &PLAIN).unwrap(), &[0.75, -0.25, -0.25, -0.25].map(|c| c * unit));
}

/// Values that lie closer to each other than their mean can say: the exact differences and deviations.
#[test]
fn the_mean_is_not_rounded_before_it_is_taken_off() {
    let values = [1e15, 1e15 + 1.0, 1e15 + 3.0];
    let thirds = [-4.0 / 3.0, -1.0 / 3.0, 5.0 / 3.0];
    let deviation = (42.0f64 / 9.0 / 2.0).sqrt();
    let near = |found: Vec<Option<f64>>, expected: [f64; 3]| {
        for (found, expected) in found.iter().zip(expected) {
            assert!((found.unwrap() - expected).abs() <= 1e-12, "{found:?} is not {expected}");
        }
    };
    near(credits(&values, &PLAIN).unwrap(), thirds);
    near(credits(&values, &RLOO).unwrap(), thirds.map(|third| 1.5 * third));
    near(credits(&values, &rule(false, std(1, 0.0))).unwrap(), thirds.map(|third| third / deviation));
}

#[test]
fn a_deviation_beyond_the_doubles_divides_all_the_same() {
    let half = 0.5f64.sqrt();
    for rule in [GRPO, rule(false, std(1, 0.0))] {
        assert_near(&credits(&[1.7e308, -1.7e308], &rule).unwrap(), &[half, -half]);
    }
}

#[test]
fn subnormal_values_vanish_beside_eps() {
    assert_near(&credits(&[4e-320, 0.0], &GRPO).unwrap(), &[0.0, 0.0]);
}

#[test]
fn a_credit_beyond_the_doubles_is_a_fault() {
    let values = [1.7e308, -1.7e308, -1.7e308];
    assert_eq!(credits(&values, &PLAIN).unwrap_err(), Fault::Overflow { member: 0 });
    assert!(credits(&values, &GRPO).is_ok());
}

#[test]
fn a_lone_value_far_from_all_others_leaves_their_spread_alone() {
    // The spread of the others is that of 0, 1e-9, …, 99e-9, which a sum of squares less its own share would lose beside 1e9.
    let mut values: Vec<f64> = (0..100).map(|at| f64::from(at) * 1e-9).collect();
    let n = values.len() as f64;
    let expected_std = 1e-9 * ((n * n - 1.0) / 12.0 * n / (n - 1.0)).sqrt();
    values.push(1e9);
    let winner = credits(&values, &rule(true, std(1, 0.0))).unwrap()[100].unwrap();
    let expected = (1e9 - 49.5e-9) / expected_std;
    assert!((winner / expected - 1.0).abs() < 1e-9, "{winner} is not {expected}");
}

#[test]
fn equal_others_have_no_spread_however_many_they_are() {
    let mut values = vec![0.1; 50_000];
    values.push(1.0);
    let found = credits(&values, &OTHERS).unwrap();
    // Less the mean of the others, 0.1.
    assert!((found[50_000].unwrap() - 0.9).abs() < 1e-15, "{:?}", found[50_000]);
}

#[test]
fn a_value_and_its_rule_for_one_member() {
    let unit = gated(GRPO, Gate { singleton: Fallback::UnitStd { eps: 1e-6 }, ..GATE });
    assert_eq!(credits(&[2.0], &unit).unwrap(), [Some(2.0 / (1.0 + 1e-6))]);
    let error = gated(GRPO, Gate { singleton: Fallback::Error, ..GATE });
    assert_eq!(credits(&[2.0], &error).unwrap_err(), Fault::Singleton { member: 0 });
}

#[test]
fn others_that_vanish_beside_one_keep_their_spread() {
    // The others' standard deviation is 1e-300 / sqrt(2); scaled with 1e300 it is 0, and 0 would mean that nothing is divided.
    let found = credits(&[1e300, 1e-300, 2e-300], &OTHERS).unwrap();
    assert_near(&found[..1], &[1e306]);
}
