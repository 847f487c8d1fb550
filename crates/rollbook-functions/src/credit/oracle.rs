//! Every credit window against the textbook, over random ragged groups: nulls, NaN, ties, singletons, equal values, repeated rows.

#![expect(clippy::cast_precision_loss, clippy::float_cmp, reason = "the groups are small, and ties are exact")]

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Float64Array, Int64Array, StringArray};
use arrow::datatypes::Float64Type;
use datafusion_common::{Result, ScalarValue};
use proptest::prelude::*;

use super::call::{GroupWindow, evaluate_groups};
use super::groups::Groups;
use super::rule::Name;
use super::window::function;
use crate::constants::Constants;

/// One rollout: what all of its rows say.
#[derive(Debug, Clone)]
struct Rollout {
    group: usize,
    value: Option<f64>,
    votes: i64,
    weight: f64,
    is_greedy: bool,
    position: i64,
    rows: usize,
}

fn value() -> impl Strategy<Value = Option<f64>> {
    prop_oneof![
        2 => Just(Some(0.0)),
        2 => Just(Some(1.0)),
        1 => Just(Some(0.1)),
        4 => (-10.0..10.0f64).prop_map(Some),
        1 => Just(None),
        1 => Just(Some(f64::NAN)),
    ]
}

fn rollouts() -> impl Strategy<Value = Vec<Rollout>> {
    let rollout = (0..5usize, value(), 1..4i64, 0.0..9.0f64, any::<bool>(), 0..4i64, 1..4usize);
    let rollout = rollout.prop_map(|(group, value, votes, weight, is_greedy, position, rows)| Rollout {
        group,
        value,
        votes,
        weight,
        is_greedy,
        position,
        rows,
    });
    proptest::collection::vec(rollout, 0..40)
}

/// The rows of the rollouts: group, rollout, in an order that `seed` decides.
fn rows(rollouts: &[Rollout], seed: u64) -> Vec<usize> {
    let mut rows: Vec<usize> = (0..rollouts.len()).flat_map(|at| vec![at; rollouts[at].rows]).collect();
    let mut places: Vec<usize> = (0..rows.len()).collect();
    // A cheap shuffle: by a hash of the place.
    places.sort_by_key(|place| (*place as u64 + 1).wrapping_mul(seed | 1).rotate_left(17));
    rows = places.iter().map(|place| rows[*place]).collect();
    rows
}

fn call(name: Name, given: &[(&str, ScalarValue)]) -> GroupWindow {
    let params = function(name).params;
    let values = params.iter().map(|param| match given.iter().find(|(known, _)| *known == param.name) {
        Some((_, value)) => value.clone(),
        None => param.default_value().unwrap_or(ScalarValue::Null),
    });
    GroupWindow::new(name, &Constants::new(function(name), 0, values.collect()).unwrap()).unwrap()
}

fn columns(name: Name, rollouts: &[Rollout], rows: &[usize], with_votes: bool) -> Vec<ArrayRef> {
    let of = |name: &str| -> Option<ArrayRef> {
        let rows = rows.iter().map(|at| &rollouts[*at]);
        Some(match name {
            "value" => Arc::new(rows.map(|rollout| rollout.value).collect::<Float64Array>()),
            "votes" if with_votes => Arc::new(rows.map(|rollout| Some(rollout.votes)).collect::<Int64Array>()),
            "votes" => Arc::new(rows.map(|_| Some(1)).collect::<Int64Array>()),
            "weight" | "length" => Arc::new(rows.map(|rollout| Some(rollout.weight)).collect::<Float64Array>()),
            "is_greedy" => Arc::new(rows.map(|rollout| Some(rollout.is_greedy)).collect::<BooleanArray>()),
            "position" => Arc::new(rows.map(|rollout| Some(rollout.position)).collect::<Int64Array>()),
            _ => return None,
        })
    };
    let mut columns: Vec<ArrayRef> = function(name).params.iter().filter_map(|param| of(param.name)).collect();
    columns.insert(1, Arc::new(rows.iter().map(|at| Some(format!("r{at:03}"))).collect::<StringArray>()));
    columns
}

/// Evaluates a call over all groups at once; one result a rollout, that of each of its rows.
fn evaluate(
    name: Name,
    given: &[(&str, ScalarValue)],
    rollouts: &[Rollout],
    seed: u64,
    with_votes: bool,
) -> Result<Vec<Option<f64>>> {
    let rows = rows(rollouts, seed);
    let numbers: Vec<u32> = rows.iter().map(|at| u32::try_from(rollouts[*at].group).unwrap()).collect();
    let groups = Groups::by_number(&numbers, 5)?;
    let results = evaluate_groups(&[(call(name, given), columns(name, rollouts, &rows, with_votes))], &groups)?;
    let results = results[0].as_primitive::<Float64Type>();
    let mut by_rollout: BTreeMap<usize, Option<f64>> = BTreeMap::new();
    for (row, at) in rows.iter().enumerate() {
        let result = results.is_valid(row).then(|| results.value(row));
        let known = by_rollout.entry(*at).or_insert(result);
        assert_eq!(known.map(f64::to_bits), result.map(f64::to_bits), "rows of one rollout differ");
    }
    Ok(by_rollout.into_values().collect())
}

/// One group as the textbook sees it: each member as often as it votes.
struct Book {
    members: Vec<usize>,
    values: Vec<f64>,
}

impl Book {
    fn new(rollouts: &[Rollout], group: usize, with_votes: bool) -> Self {
        let mut book = Self { members: vec![], values: vec![] };
        for (at, rollout) in rollouts.iter().enumerate() {
            if rollout.group == group
                && let Some(value) = rollout.value.filter(|value| !value.is_nan())
            {
                let votes = if with_votes { rollout.votes } else { 1 };
                for _ in 0..votes {
                    book.members.push(at);
                    book.values.push(value);
                }
            }
        }
        book
    }

    fn without(&self, at: usize) -> Vec<f64> {
        let one = self.members.iter().position(|member| *member == at).unwrap();
        let mut values = self.values.clone();
        values.remove(one);
        values
    }

    fn all_equal(&self) -> bool {
        self.values.iter().all(|value| *value == self.values[0])
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

fn std(values: &[f64], ddof: usize) -> f64 {
    let mean = mean(values);
    let freedom = values.len() as f64 - ddof as f64;
    (values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / freedom).sqrt()
}

fn near(found: Option<f64>, expected: Option<f64>) -> bool {
    match (found, expected) {
        (Some(found), Some(expected)) => (found - expected).abs() <= 1e-9 * expected.abs().max(1.0),
        (found, expected) => found.is_none() && expected.is_none(),
    }
}

const NAN_IS_MISSING: (&str, &str) = ("nan", "missing");

fn with_nan(given: &[(&'static str, ScalarValue)]) -> Vec<(&'static str, ScalarValue)> {
    let mut given = given.to_vec();
    given.push((NAN_IS_MISSING.0, ScalarValue::from(NAN_IS_MISSING.1)));
    given
}

/// Compares a window with `book`, which says what a member of a group gets.
fn check(
    name: Name,
    given: &[(&'static str, ScalarValue)],
    (rollouts, seed, with_votes): (&[Rollout], u64, bool),
    book: impl Fn(&Book, usize) -> Option<f64>,
) -> std::result::Result<(), TestCaseError> {
    let found = evaluate(name, &with_nan(given), rollouts, seed, with_votes).unwrap();
    for (at, rollout) in rollouts.iter().enumerate() {
        let group = Book::new(rollouts, rollout.group, with_votes);
        let is_member = group.members.contains(&at);
        let expected = is_member.then(|| book(&group, at)).flatten();
        prop_assert!(
            near(found[at], expected),
            "{name:?} {given:?}: {:?} is not {expected:?} in {:?}",
            found[at],
            group.values
        );
    }
    Ok(())
}

proptest! {
    #[test]
    fn group_relative_credits(rollouts in rollouts(), seed in any::<u64>(), with_votes in any::<bool>()) {
        let input = (rollouts.as_slice(), seed, with_votes);
        let gated = |book: &Book, at: usize, credit: f64| {
            let value = rollouts[at].value;
            if book.values.len() == 1 || book.all_equal() { Some(0.0) } else { value.map(|_| credit) }
        };
        let value = |at: usize| rollouts[at].value.unwrap();
        check(Name::Grpo, &[], input, |book, at| {
            gated(book, at, (value(at) - mean(&book.values)) / (std(&book.values, 1) + 1e-6))
        })?;
        check(Name::Grpo, &[("ddof", ScalarValue::from(0i64)), ("eps", ScalarValue::from(0.5))], input, |book, at| {
            gated(book, at, (value(at) - mean(&book.values)) / (std(&book.values, 0) + 0.5))
        })?;
        check(Name::Grpo, &[("leave_one_out", ScalarValue::from(true))], input, |book, at| {
            let others = if book.values.len() > 1 { book.without(at) } else { vec![] };
            let equal = others.iter().all(|other| *other == others[0]);
            let spread = if others.len() < 2 || equal { None } else { Some(std(&others, 1) + 1e-6) };
            let less = if others.is_empty() { 0.0 } else { value(at) - mean(&others) };
            gated(book, at, less / spread.unwrap_or(1.0))
        })?;
        check(Name::DrGrpo, &[], input, |book, at| gated(book, at, value(at) - mean(&book.values)))?;
        check(Name::Rloo, &[("singleton", ScalarValue::from("value"))], input, |book, at| {
            if book.values.len() == 1 { rollouts[at].value } else { gated(book, at, value(at) - mean(&book.without(at))) }
        })?;
        check(Name::MaxRl, &[("eps", ScalarValue::from(1e-6))], input, |book, at| {
            let mean = mean(&book.values);
            gated(book, at, if mean <= 0.0 { 0.0 } else { (value(at) - mean) / (mean + 1e-6) })
        })?;
        check(Name::GrpoPassK, &[], input, |book, at| {
            let mut sorted = book.values.clone();
            sorted.sort_by(|a, b| b.total_cmp(a));
            let lead = if value(at) == sorted[0] && sorted.len() > 1 { sorted[0] - sorted[1] } else { 0.0 };
            gated(book, at, lead / (std(&book.values, 1) + 1e-6))
        })?;
    }

    #[test]
    fn weighted_greedy_and_ordered_credits(rollouts in rollouts(), seed in any::<u64>()) {
        let input = (rollouts.as_slice(), seed, false);
        let value = |at: usize| rollouts[at].value.unwrap();
        check(Name::Opo, &[], input, |book, at| {
            let weight: f64 = book.members.iter().map(|member| rollouts[*member].weight).sum();
            let sum: f64 = book.members.iter().map(|member| rollouts[*member].weight * value(*member)).sum();
            if book.all_equal() { Some(0.0) } else { (weight > 0.0).then(|| value(at) - sum / weight) }
        })?;
        check(Name::ReMax, &[], input, |book, at| {
            let greedy: Vec<f64> = book.members.iter().filter(|m| rollouts[**m].is_greedy).map(|m| value(*m)).collect();
            if rollouts[at].is_greedy || greedy.is_empty() { None } else { Some(value(at) - mean(&greedy)) }
        })?;
        check(Name::Rae, &[], input, |book, at| {
            let mut order = book.members.clone();
            order.sort_by_key(|member| (rollouts[*member].position, *member));
            let before = order.iter().take_while(|member| **member != at);
            Some(value(at) - before.fold(0.0, |average, member| 0.95 * average + 0.05 * value(*member)))
        })?;
        check(Name::RunningNorm, &[("eps", ScalarValue::from(0.1))], input, |book, at| {
            let so_far = book.members.iter().filter(|member| rollouts[**member].position <= rollouts[at].position);
            let so_far: Vec<f64> = so_far.map(|member| value(*member)).collect();
            let std = if so_far.len() < 2 { 0.0 } else { std(&so_far, 1) };
            Some((value(at) - mean(&so_far)) / (std + 0.1))
        })?;
        check(Name::RolloutRank, &[], input, |book, at| {
            let below = book.values.iter().filter(|other| **other < value(at)).count() as f64;
            let equal = book.values.iter().filter(|other| **other == value(at)).count() as f64;
            Some(below + f64::midpoint(equal, 1.0))
        })?;
    }

    #[test]
    fn statistics_reach_every_row(rollouts in rollouts(), seed in any::<u64>()) {
        for at in 0..rollouts.len() {
            let book = Book::new(&rollouts, rollouts[at].group, false);
            let some = !book.values.is_empty();
            let weights: Vec<f64> = book.members.iter().map(|member| rollouts[*member].weight).collect();
            let weight: f64 = weights.iter().sum();
            let sum: f64 = weights.iter().zip(&book.values).map(|(weight, value)| weight * value).sum();
            let squares: f64 =
                weights.iter().zip(&book.values).map(|(weight, value)| weight * (value - sum / weight_or_one(weight_sum(&weights))).powi(2)).sum();
            let found = |name: Name| evaluate(name, &with_nan(&[]), &rollouts, seed, false).unwrap()[at];
            prop_assert_eq!(found(Name::RolloutCount), Some(book.values.len() as f64));
            prop_assert!(near(found(Name::RolloutSum), some.then(|| book.values.iter().sum())));
            let mean = if some && book.all_equal() && weights.iter().all(|w| *w > 0.0) { Some(book.values[0]) } else { (weight > 0.0).then(|| sum / weight) };
            prop_assert!(near(found(Name::RolloutMean), mean));
            // Close to a freedom of 0 the two summations may differ in whether there is one.
            if (weight - 1.0).abs() > 1e-6 {
                prop_assert!(near(found(Name::RolloutStd), (weight > 1.0).then(|| (squares / (weight - 1.0)).sqrt())));
            }
        }
    }

    #[test]
    fn neither_order_nor_repetition_nor_company_changes_a_bit(rollouts in rollouts(), seeds in any::<(u64, u64)>()) {
        for name in [Name::Grpo, Name::DrGrpo, Name::Rloo, Name::Opo, Name::MaxRl, Name::GrpoPassK, Name::Rae, Name::RunningNorm, Name::RolloutMean] {
            let bits = |found: Vec<Option<f64>>| found.into_iter().map(|credit| credit.map(f64::to_bits)).collect::<Vec<_>>();
            let given = with_nan(&[]);
            let known = bits(evaluate(name, &given, &rollouts, seeds.0, true).unwrap());
            let mut once = rollouts.clone();
            once.iter_mut().for_each(|rollout| rollout.rows = 1);
            prop_assert_eq!(&bits(evaluate(name, &given, &once, seeds.1, true).unwrap()), &known);
            // Group by group, as another engine may call it.
            for group in 0..5 {
                let places: Vec<usize> = (0..rollouts.len()).filter(|at| rollouts[*at].group == group).collect();
                let rows: Vec<usize> = rows(&rollouts, seeds.1).into_iter().filter(|at| rollouts[*at].group == group).collect();
                let columns = columns(name, &rollouts, &rows, true);
                let found = evaluate_groups(&[(call(name, &given), columns)], &Groups::one(rows.len()).unwrap()).unwrap();
                let found = found[0].as_primitive::<Float64Type>();
                for at in places {
                    let row = rows.iter().position(|row| *row == at).unwrap();
                    prop_assert_eq!(found.is_valid(row).then(|| found.value(row).to_bits()), known[at]);
                }
            }
        }
    }
}

fn weight_sum(weights: &[f64]) -> f64 {
    weights.iter().sum()
}

fn weight_or_one(weight: f64) -> f64 {
    if weight > 0.0 { weight } else { 1.0 }
}

#[test]
fn a_nan_an_infinity_and_unequal_rows_name_the_rollout() {
    let rollout = |value: f64| Rollout {
        group: 0,
        value: Some(value),
        votes: 1,
        weight: 1.0,
        is_greedy: false,
        position: 0,
        rows: 2,
    };
    for (value, word) in [(f64::NAN, "NaN"), (f64::INFINITY, "inf"), (f64::NEG_INFINITY, "-inf")] {
        let rollouts = [rollout(1.0), rollout(value), rollout(0.0)];
        for name in [Name::Grpo, Name::Rae, Name::RolloutSum, Name::RolloutRank] {
            let error = evaluate(name, &[], &rollouts, 7, false).unwrap_err().to_string();
            assert!(error.contains(&format!("the value of rollout \"r001\" is {word}")), "{error}");
        }
    }
}

#[test]
fn calls_over_the_same_columns_share_their_members() {
    let rollouts: Vec<Rollout> = [1.0, 0.0, 0.0, 0.0]
        .map(|value| Rollout {
            group: 0,
            value: Some(value),
            votes: 1,
            weight: 1.0,
            is_greedy: false,
            position: 0,
            rows: 1,
        })
        .to_vec();
    let rows: Vec<usize> = (0..4).collect();
    let columns = columns(Name::Grpo, &rollouts, &rows, false);
    let calls: Vec<_> = [Name::DrGrpo, Name::Rloo].map(|name| (call(name, &[]), columns.clone())).to_vec();
    let found = evaluate_groups(&calls, &Groups::one(4).unwrap()).unwrap();
    assert_eq!(found[0].as_primitive::<Float64Type>().values()[..2], [0.75, -0.25]);
    assert_eq!(found[1].as_primitive::<Float64Type>().value(0), 1.0);
}
