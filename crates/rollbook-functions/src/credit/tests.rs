//! Credits against what trainers make of the same rewards, and against the textbook.

#![expect(clippy::cast_precision_loss, reason = "the groups are small")]

use proptest::prelude::*;
use rstest::rstest;

use super::kernel::{Fault, credits};
use super::members::{Missing, NotANumber};
use super::rule::{Fallback, Incomplete, Rule, Scale};

const PLAIN: Rule = Rule {
    scale: Scale::None,
    leave_one_out: false,
    singleton: Fallback::Zero,
    zero_variance: Fallback::Zero,
    missing: Missing::Skip,
    not_a_number: NotANumber::Error,
    group_size: None,
    incomplete: Incomplete::Keep,
};
const GRPO: Rule = Rule { scale: Scale::Std { ddof: 1, eps: 1e-6 }, ..PLAIN };
const RLOO: Rule = Rule { leave_one_out: true, ..PLAIN };

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
#[case::trl(Rule { scale: Scale::Std { ddof: 1, eps: 1e-4 }, ..PLAIN }, 1.4997, -0.4999)]
#[case::rllm(Rule { scale: Scale::Std { ddof: 0, eps: 1e-6 }, ..PLAIN }, 1.73205, -0.57735)]
#[case::areal(Rule { scale: Scale::Std { ddof: 1, eps: 1e-5 }, ..PLAIN }, 1.49997, -0.49999)]
#[case::nemo(Rule { leave_one_out: true, ..GRPO }, 1.0, -0.57735)]
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
#[case(&[0.0, -0.0])]
fn equal_values_have_exactly_no_credit(#[case] values: &[f64]) {
    for rule in [GRPO, PLAIN, RLOO, Rule { leave_one_out: true, ..GRPO }] {
        assert_eq!(credits(values, &rule).unwrap(), vec![Some(0.0); values.len()]);
        let null = Rule { zero_variance: Fallback::Null, ..rule };
        assert_eq!(credits(values, &null).unwrap(), vec![None; values.len()]);
    }
}

#[rstest]
#[case(Fallback::Zero, Some(0.0))]
#[case(Fallback::Value, Some(0.7))]
#[case(Fallback::Null, None)]
fn a_singleton_follows_its_rule(#[case] singleton: Fallback, #[case] expected: Option<f64>) {
    for rule in [GRPO, PLAIN, RLOO] {
        assert_eq!(credits(&[0.7], &Rule { singleton, ..rule }).unwrap(), [expected]);
    }
    assert_eq!(credits(&[], &GRPO).unwrap(), []);
}

#[test]
fn incomplete_groups_follow_their_rule() {
    let rule = |incomplete| Rule { group_size: Some(3), incomplete, ..PLAIN };
    assert_eq!(credits(&[1.0, 0.0], &rule(Incomplete::Keep)).unwrap(), [Some(0.5), Some(-0.5)]);
    assert_eq!(credits(&[1.0, 0.0], &rule(Incomplete::Null)).unwrap(), [None, None]);
    let fault = Fault::Incomplete { members: 2, group_size: 3 };
    assert_eq!(credits(&[1.0, 0.0], &rule(Incomplete::Error)).unwrap_err(), fault);
    assert!(credits(&[1.0, 0.0, 0.0], &rule(Incomplete::Error)).is_ok());
}

#[test]
fn two_members_left_alone_have_no_spread() {
    let rule = Rule { leave_one_out: true, ..GRPO };
    assert_eq!(credits(&[1.0, 0.25], &rule).unwrap(), [Some(0.75), Some(-0.75)]);
}

#[rstest]
#[case(1e300)]
#[case(1e-290)]
#[case(-1e308)]
fn size_does_not_matter_where_nothing_is_added(#[case] unit: f64) {
    let rule = Rule { scale: Scale::Std { ddof: 1, eps: 0.0 }, ..PLAIN };
    assert_near(&credits(&[unit, 0.0, 0.0, 0.0], &rule).unwrap(), &[1.5, -0.5, -0.5, -0.5].map(|c| c * unit.signum()));
    assert_near(&credits(&[unit, 0.0, 0.0, 0.0], &PLAIN).unwrap(), &[0.75, -0.25, -0.25, -0.25].map(|c| c * unit));
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

/// The textbook formulas, member by member.
fn naive(values: &[f64], rule: &Rule) -> Vec<f64> {
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    let std = |values: &[f64], ddof: u32| {
        let mean = mean(values);
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        (squares / (values.len() as f64 - f64::from(ddof))).sqrt()
    };
    let credit = |at: usize| {
        let mut base = values.to_vec();
        if rule.leave_one_out {
            base.remove(at);
        }
        let difference = values[at] - mean(&base);
        match rule.scale {
            Scale::Std { ddof, eps } => difference / (std(&base, ddof) + eps),
            Scale::None => difference,
        }
    };
    (0..values.len()).map(credit).collect()
}

proptest! {
    #[test]
    fn agrees_with_the_textbook(
        values in proptest::collection::vec(-10.0..10.0f64, 3..12),
        rule in prop_oneof![
            Just(GRPO),
            Just(PLAIN),
            Just(RLOO),
            Just(Rule { leave_one_out: true, ..GRPO }),
            Just(Rule { scale: Scale::Std { ddof: 0, eps: 0.1 }, ..PLAIN }),
        ],
    ) {
        let credits = credits(&values, &rule).unwrap();
        for (credit, expected) in credits.into_iter().flatten().zip(naive(&values, &rule)) {
            prop_assert!((credit - expected).abs() <= 1e-9 * expected.abs().max(1.0), "{credit} is not {expected}");
        }
    }

    #[test]
    fn order_leaves_no_trace(values in proptest::collection::vec(prop_oneof![Just(0.0), Just(1.0), -1e9..1e9f64], 2..20)) {
        for rule in [GRPO, PLAIN, RLOO, Rule { leave_one_out: true, ..GRPO }] {
            let forward = credits(&values, &rule).unwrap();
            let reversed: Vec<f64> = values.iter().rev().copied().collect();
            let mut backward = credits(&reversed, &rule).unwrap();
            backward.reverse();
            prop_assert_eq!(forward, backward);
        }
    }
}
