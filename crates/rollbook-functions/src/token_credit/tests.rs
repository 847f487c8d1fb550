//! Scans and whole functions against naive oracles: the definitions as sums, token by token, on random ragged calls.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Float64Array, Int64Array, ListArray, StringArray};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{DataType, Field, Float64Type};
use datafusion_common::{Result, ScalarValue};
use datafusion_expr::Accumulator;
use proptest::prelude::*;

use super::scan::{Factors, Observations, Steps, advantages, returns};
use crate::constants::Constants;
use crate::number_lists::Unselected;

type Token = (bool, f64, f64);

/// The steps that a trajectory comes to: reward, value, and the token each belongs to, if it is selected.
fn steps(tokens: &[Token], gaps: &[(usize, u64)], observations: Observations) -> Vec<(f64, f64, Option<usize>)> {
    let mut steps = Vec::new();
    for (at, (selected, reward, value)) in tokens.iter().enumerate() {
        let gap: u64 = gaps.iter().filter(|gap| gap.0 == at).map(|gap| gap.1).sum();
        if observations != Observations::Carry {
            // As an ordinary step a gap has a value that nobody recorded; any number stands for it.
            let value = if observations == Observations::Step { 0.7 } else { 0.0 };
            steps.extend((0..gap).map(|_| (0.0, value, None)));
        }
        match (selected, observations) {
            (true, _) => steps.push((*reward, *value, Some(at))),
            (false, Observations::Carry | Observations::Reset) => {}
            (false, Observations::Zero) => steps.push((0.0, 0.0, None)),
            (false, Observations::Step) => steps.push((*reward, *value, None)),
        }
    }
    steps
}

fn power(base: f64, exponent: usize) -> f64 {
    (0..exponent).map(|_| base).product()
}

fn near(found: f64, expected: f64) -> bool {
    (found.is_nan() && expected.is_nan()) || (found - expected).abs() <= 1e-9 * expected.abs().max(1.0)
}

fn tokens() -> impl Strategy<Value = Vec<Token>> {
    let number = || prop_oneof![8 => -3.0..3.0f64, 2 => Just(0.0), 1 => Just(f64::NAN)];
    proptest::collection::vec((proptest::bool::weighted(0.7), number(), number()), 0..14)
}

fn factor() -> impl Strategy<Value = f64> {
    prop_oneof![Just(0.0), Just(1.0), 0.0..1.0f64]
}

fn observations() -> impl Strategy<Value = Observations> {
    prop_oneof![Just(Observations::Carry), Just(Observations::Zero), Just(Observations::Step)]
}

proptest! {
    #[test]
    fn returns_are_discounted_sums(
        tokens in tokens(),
        gaps in proptest::collection::btree_map(0..14usize, 1..4u64, 0..3),
        gamma in factor(),
        observations in observations(),
    ) {
        let gaps: Vec<(usize, u64)> = gaps.into_iter().collect();
        let rewards: Vec<f64> = tokens.iter().map(|token| token.1).collect();
        let selected: Vec<bool> = tokens.iter().map(|token| token.0).collect();
        let given = Steps { rewards: &rewards, selected: &selected, gaps: &gaps };
        let found = returns(given, gamma, observations, Unselected::Zero);
        let steps = steps(&tokens, &gaps, observations);
        for (first, (_, _, token)) in steps.iter().enumerate() {
            let Some(at) = *token else { continue };
            let rest = steps[first..].iter().enumerate();
            let expected: f64 = rest.map(|(n, (reward, _, _))| power(gamma, n) * reward).sum();
            prop_assert!(near(found[at], expected), "{at}: {} is not {expected}", found[at]);
        }
        prop_assert!(selected.iter().zip(&found).all(|(selected, found)| *selected || *found == 0.0));
    }

    #[test]
    fn advantages_are_sums_of_differences(
        tokens in tokens(),
        gaps in proptest::collection::btree_map(0..14usize, 1..4u64, 0..3),
        gamma in factor(),
        lam in factor(),
        observations in observations(),
    ) {
        let gaps: Vec<(usize, u64)> = gaps.into_iter().collect();
        // Only where lambda is 1 the unknown values of a gap are not needed.
        let lam = if observations == Observations::Step && !gaps.is_empty() { 1.0 } else { lam };
        let rewards: Vec<f64> = tokens.iter().map(|token| token.1).collect();
        let values: Vec<f64> = tokens.iter().map(|token| token.2).collect();
        let selected: Vec<bool> = tokens.iter().map(|token| token.0).collect();
        let given = Steps { rewards: &rewards, selected: &selected, gaps: &gaps };
        let found = advantages(given, &values, Factors { gamma, lam }, observations, Unselected::Null);
        let steps = steps(&tokens, &gaps, observations);
        let difference = |at: usize| {
            let next = steps.get(at + 1).map_or(0.0, |step| step.1);
            steps[at].0 + gamma * next - steps[at].1
        };
        for (first, (_, _, token)) in steps.iter().enumerate() {
            let Some(at) = *token else { continue };
            let expected: f64 = (first..steps.len()).map(|k| power(gamma * lam, k - first) * difference(k)).sum();
            prop_assert!(near(found[at], expected), "{at}: {} is not {expected}", found[at]);
        }
    }

    /// Where nothing passes over observations, each run of selected tokens is alone.
    #[test]
    fn runs_of_tokens_are_apart_where_observations_reset(
        tokens in tokens(),
        gaps in proptest::collection::btree_map(0..14usize, 1..4u64, 0..3),
        gamma in factor(),
        lam in factor(),
    ) {
        let gaps: Vec<(usize, u64)> = gaps.into_iter().collect();
        let rewards: Vec<f64> = tokens.iter().map(|token| token.1).collect();
        let values: Vec<f64> = tokens.iter().map(|token| token.2).collect();
        let selected: Vec<bool> = tokens.iter().map(|token| token.0).collect();
        let whole = Steps { rewards: &rewards, selected: &selected, gaps: &gaps };
        let factors = Factors { gamma, lam };
        let found = [
            returns(whole, gamma, Observations::Reset, Unselected::Null),
            advantages(whole, &values, factors, Observations::Reset, Unselected::Null),
        ];
        let begins = |at: usize| !selected[at - 1] || !selected[at] || gaps.iter().any(|gap| gap.0 == at);
        let mut bounds: Vec<usize> = (1..tokens.len()).filter(|at| begins(*at)).collect();
        bounds.extend([0, tokens.len()]);
        bounds.sort_unstable();
        let mut expected = [Vec::new(), Vec::new()];
        for run in bounds.windows(2).map(|bounds| bounds[0]..bounds[1]) {
            let alone = Steps { rewards: &rewards[run.clone()], selected: &selected[run.clone()], gaps: &[] };
            expected[0].extend(returns(alone, gamma, Observations::Carry, Unselected::Null));
            expected[1].extend(advantages(alone, &values[run], factors, Observations::Carry, Unselected::Null));
        }
        for (found, expected) in found.iter().flatten().zip(expected.iter().flatten()) {
            prop_assert!(near(*found, *expected), "{found} is not {expected}");
        }
    }

    /// A trajectory cut into calls anywhere, in any batch, has the credits of the whole.
    #[test]
    fn cuts_between_calls_leave_no_trace(tokens in tokens(), cuts in proptest::collection::vec(0..15usize, 0..4)) {
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(tokens.len())).collect();
        cuts.extend([0, tokens.len()]);
        cuts.sort_unstable();
        let calls: Vec<&[Token]> = cuts.windows(2).map(|bounds| &tokens[bounds[0]..bounds[1]]).collect();
        let whole = gae(&[&tokens]).unwrap();
        let parts = gae(&calls).unwrap();
        prop_assert_eq!(parts.into_iter().flatten().flatten().collect::<Vec<_>>(), whole.into_iter().flatten().flatten().collect::<Vec<_>>());
    }
}

/// A call of `gae` over calls, by way of its definition; NaN in a token is a null item.
fn gae(calls: &[&[Token]]) -> Result<Vec<Option<Vec<Option<f64>>>>> {
    let numbers = |of: fn(&Token) -> f64| {
        lists(calls, |tokens| {
            let items = tokens.iter().map(of).map(|value| (!value.is_nan()).then_some(value));
            Arc::new(items.collect::<Float64Array>())
        })
    };
    let mask = lists(calls, |tokens| Arc::new(tokens.iter().map(|token| Some(token.0)).collect::<BooleanArray>()));
    let ids: StringArray = (0..calls.len()).map(|at| Some(format!("c{at}"))).collect();
    let gap: Int64Array = calls.iter().map(|_| None).collect();
    let columns: [ArrayRef; 5] =
        [numbers(|token| token.1), numbers(|token| token.2), mask, Arc::new(ids), Arc::new(gap)];
    let given = vec![ScalarValue::from(0.9), ScalarValue::from(0.8)];
    evaluate(&columns, given, calls.len())
}

fn lists(calls: &[&[Token]], items: impl Fn(&[Token]) -> ArrayRef) -> ArrayRef {
    let items = items(&calls.concat());
    let field = Arc::new(Field::new_list_field(items.data_type().clone(), true));
    Arc::new(ListArray::new(field, OffsetBuffer::from_lengths(calls.iter().map(|call| call.len())), items, None))
}

fn evaluate(columns: &[ArrayRef], given: Vec<ScalarValue>, rows: usize) -> Result<Vec<Option<Vec<Option<f64>>>>> {
    let definition = super::gae::DEFINITION;
    let kernel = (definition.kernel)(&Constants::new(definition.function, definition.columns, given)?)?;
    let result = kernel.evaluate(columns, rows)?;
    assert!(matches!(result.data_type(), DataType::List(_)));
    let result = result.as_list::<i32>();
    Ok(result.iter().map(|list| list.map(|list| list.as_primitive::<Float64Type>().iter().collect())).collect())
}

#[test]
fn the_smallest_trajectories() {
    assert_eq!(gae(&[&[]]).unwrap(), [Some(vec![])]);
    assert_eq!(gae(&[&[(true, 1.0, 0.25)]]).unwrap(), [Some(vec![Some(0.75)])]);
    assert_eq!(gae(&[&[(false, 1.0, 0.25)], &[]]).unwrap(), [Some(vec![None]), Some(vec![])]);
    // A null value: unknown, and what comes before it; the later token is known.
    let found = gae(&[&[(true, 0.0, 0.0), (true, 0.0, f64::NAN)], &[(true, 1.0, 0.0)]]).unwrap();
    assert_eq!(found, [Some(vec![None, None]), Some(vec![Some(1.0)])]);
}

#[test]
fn what_is_not_finite_is_named_where_it_counts() {
    let calls: [&[Token]; 2] = [&[(true, 0.0, 0.0)], &[(true, 0.0, 0.0), (true, f64::INFINITY, 0.0)]];
    let message = gae(&calls).unwrap_err().to_string();
    assert!(message.contains("gae: rewards of call \"c1\" is inf at position 1"), "{message}");
    assert!(gae(&[&[(false, f64::INFINITY, f64::NEG_INFINITY), (true, 1.0, 0.0)]]).is_ok());
    let message = gae(&[&[(true, 1.7e308, 0.0), (true, 1.7e308, -1.7e308)]]).unwrap_err().to_string();
    assert!(message.contains("gae: the result for call \"c0\" at position"), "{message}");
}

#[test]
fn a_long_trajectory_takes_one_pass() {
    let tokens: Vec<Token> = (0..200_000).map(|at| (at % 7 != 0, 0.0, 0.5)).collect();
    let found = gae(&[&tokens]).unwrap();
    let list = found[0].as_ref().unwrap();
    assert_eq!(list.len(), 200_000);
    // Far from the end the estimate is that of an endless trajectory: d / (1 - gamma lam), d = (gamma - 1) V.
    let endless = (0.9 - 1.0) * 0.5 / (1.0 - 0.9 * 0.8);
    assert!((list[1].unwrap() - endless).abs() < 1e-12);
}

/// Turns first, then tokens, as RAGEN's loops have it, position by position.
fn bi_level_naive(tokens: &[Token], ends: &[usize], turns: Factors, within: Factors) -> Vec<(usize, f64)> {
    let mut rewards: Vec<f64> = tokens.iter().map(|token| token.1).collect();
    let mut last = 0.0;
    for (n, at) in ends.iter().enumerate().rev() {
        let next = ends.get(n + 1).map_or(0.0, |next| tokens[*next].2);
        last = tokens[*at].1 + turns.gamma * next - tokens[*at].2 + turns.gamma * turns.lam * last;
        rewards[*at] = last + tokens[*at].2;
    }
    let selected: Vec<usize> = (0..tokens.len()).filter(|at| tokens[*at].0).collect();
    let mut result = Vec::new();
    let mut last = 0.0;
    for (n, at) in selected.iter().enumerate().rev() {
        let mut next = selected.get(n + 1).map_or(0.0, |next| tokens[*next].2);
        if ends.contains(at) {
            (next, last) = (0.0, 0.0);
        }
        last = rewards[*at] + within.gamma * next - tokens[*at].2 + within.gamma * within.lam * last;
        result.push((*at, last));
    }
    result
}

/// Runs the function over one trajectory of these calls.
fn bi_level(calls: &[&[Token]], turns: Factors, within: Factors, turn_end: &str) -> Vec<Option<f64>> {
    let definition = super::bi_level_gae::DEFINITION;
    let numbers = |of: fn(&Token) -> f64| {
        lists(calls, |tokens| {
            let items = tokens.iter().map(of).map(|value| (!value.is_nan()).then_some(value));
            Arc::new(items.collect::<Float64Array>())
        })
    };
    let mask = lists(calls, |tokens| Arc::new(tokens.iter().map(|token| Some(token.0)).collect::<BooleanArray>()));
    let ids: StringArray = calls.iter().map(|_| None::<&str>).collect();
    let columns: [ArrayRef; 4] = [numbers(|token| token.1), numbers(|token| token.2), mask, Arc::new(ids)];
    let given =
        [turns.gamma, within.gamma, within.lam].map(ScalarValue::from).into_iter().chain([ScalarValue::from(turn_end)]);
    let constants = Constants::new(definition.function, definition.columns, given.collect()).unwrap();
    let result = (definition.kernel)(&constants).unwrap().evaluate(&columns, calls.len()).unwrap();
    result
        .as_list::<i32>()
        .iter()
        .flatten()
        .flat_map(|list| list.as_primitive::<Float64Type>().iter().collect::<Vec<_>>())
        .collect()
}

/// Whitens by way of the functions: the moments of all calls, then each call's list.
fn whiten(calls: &[Vec<(bool, Option<f64>)>], given: &[ScalarValue]) -> Vec<Option<f64>> {
    let values: Vec<Option<f64>> = calls.iter().flatten().map(|token| token.1).collect();
    let mask: Vec<bool> = calls.iter().flatten().map(|token| token.0).collect();
    let offsets = || OffsetBuffer::from_lengths(calls.iter().map(Vec::len));
    let list = |items: ArrayRef| -> ArrayRef {
        let field = Arc::new(Field::new_list_field(items.data_type().clone(), true));
        Arc::new(ListArray::new(field, offsets(), items, None))
    };
    let ids: ArrayRef = Arc::new(calls.iter().map(|_| Some("c")).collect::<StringArray>());
    let columns =
        [list(Arc::new(Float64Array::from(values))), list(Arc::new(BooleanArray::from(mask))), Arc::clone(&ids)];
    let mut moments = super::token_moments::MomentsAccumulator::default();
    moments.update_batch(&columns).unwrap();
    let moments = moments.evaluate().unwrap().to_array_of_size(calls.len()).unwrap();
    let [values, mask, _] = columns;
    let constants = Constants::new(&super::WHITEN, 4, given.to_vec()).unwrap();
    let result = super::whiten::evaluate(&[values, mask, moments, ids], calls.len(), &constants).unwrap();
    result
        .as_list::<i32>()
        .iter()
        .flatten()
        .flat_map(|list| list.as_primitive::<Float64Type>().iter().collect::<Vec<_>>())
        .collect()
}

proptest! {
    #[test]
    fn bi_level_estimation_is_that_of_its_loops(
        tokens in tokens(),
        cuts in proptest::collection::vec(0..15usize, 0..4),
        gammas in (factor(), factor()),
        lam in factor(),
        by_call in any::<bool>(),
    ) {
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(tokens.len())).collect();
        cuts.extend([0, tokens.len()]);
        cuts.sort_unstable();
        let calls: Vec<&[Token]> = cuts.windows(2).map(|bounds| &tokens[bounds[0]..bounds[1]]).collect();
        let ends: Vec<usize> = if by_call {
            cuts.windows(2).filter_map(|bounds| (bounds[0]..bounds[1]).rev().find(|at| tokens[*at].0)).collect()
        } else {
            (0..tokens.len()).filter(|at| tokens[*at].0 && tokens[*at].1 != 0.0).collect()
        };
        let (turns, within) = (Factors { gamma: gammas.0, lam }, Factors { gamma: gammas.1, lam });
        let found = bi_level(&calls, turns, within, if by_call { "call" } else { "nonzero_reward" });
        for (at, expected) in bi_level_naive(&tokens, &ends, turns, within) {
            prop_assert!(near(found[at].unwrap_or(f64::NAN), expected), "{at}: {:?} is not {expected}", found[at]);
        }
    }

    #[test]
    fn whitening_is_that_of_two_passes(
        calls in proptest::collection::vec(
            proptest::collection::vec((proptest::bool::weighted(0.7), proptest::option::weighted(0.9, -1e3..1e3f64)), 0..8),
            0..6,
        ),
        ddof in 0..2i64,
        eps in prop_oneof![Just(1e-8), 0.1..1.0f64],
        eps_at in prop_oneof![Just("variance"), Just("deviation"), Just("floor")],
        count_eps in prop_oneof![Just(0.0), Just(1e-8)],
    ) {
        let given = [ScalarValue::from(ddof), ScalarValue::from(eps), ScalarValue::from(eps_at), ScalarValue::from(count_eps)];
        let found = whiten(&calls, &given);
        let tokens: Vec<(bool, Option<f64>)> = calls.iter().flatten().copied().collect();
        let counted: Vec<f64> = tokens.iter().filter(|token| token.0).filter_map(|token| token.1).collect();
        let count = f64::from(u32::try_from(counted.len()).unwrap());
        let mean = counted.iter().sum::<f64>() / (count + count_eps);
        let squares: f64 = counted.iter().map(|value| (value - mean) * (value - mean)).sum();
        let freedom = f64::from(i32::try_from(ddof).unwrap());
        let variance = squares / (count + count_eps) * count / (count - freedom);
        let divisor = match eps_at {
            "variance" => (variance + eps).sqrt(),
            "deviation" => variance.sqrt() + eps,
            _ => variance.max(eps).sqrt(),
        };
        prop_assert_eq!(found.len(), tokens.len());
        for ((selected, value), found) in tokens.iter().zip(&found) {
            let expected = value.filter(|_| *selected).map(|value| if count <= freedom { 0.0 } else { (value - mean) / divisor });
            match (found, expected) {
                // Where the variance is all rounding, so is what it divides.
                (Some(_), Some(_)) if variance < 1e-18 && eps_at == "deviation" && eps < 1e-6 => {}
                (Some(found), Some(expected)) => prop_assert!((found - expected).abs() <= 1e-7 * expected.abs().max(1.0), "{found} {expected}"),
                (found, expected) => prop_assert_eq!(*found, expected),
            }
        }
        let mut reversed = calls.clone();
        reversed.reverse();
        let mut again: Vec<Vec<Option<f64>>> = Vec::new();
        let mut rest = whiten(&reversed, &given).into_iter();
        for call in &reversed {
            again.push(rest.by_ref().take(call.len()).collect());
        }
        again.reverse();
        prop_assert_eq!(again.into_iter().flatten().collect::<Vec<_>>(), found);
    }
}
