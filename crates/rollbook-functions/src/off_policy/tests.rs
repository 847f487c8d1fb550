//! Weights, rejection and metrics against the definitions, token by token, on random ragged trajectories cut into calls.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Float64Array, ListArray, StringArray};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{Field, Float64Type};
use datafusion_common::ScalarValue;
use datafusion_expr::Accumulator;
use proptest::prelude::*;

use crate::call_window::Definition;
use crate::constants::Constants;

/// A token: whether it is selected, and its log ratio, if it is known.
type Token = (bool, Option<f64>);

/// Trajectories, each a list of calls.
type Batch = Vec<Vec<Vec<Token>>>;

fn batch() -> impl Strategy<Value = Batch> {
    let ratio = prop_oneof![6 => -2.0..2.0f64, 1 => -30.0..30.0f64, 1 => Just(0.0)];
    let token = (proptest::bool::weighted(0.7), proptest::option::weighted(0.95, ratio));
    let call = proptest::collection::vec(token, 0..5);
    proptest::collection::vec(proptest::collection::vec(call, 1..4), 0..5)
}

/// The columns train, rollout, mask, trajectory and call of some calls.
fn columns(calls: &[(usize, &Vec<Token>)]) -> [ArrayRef; 5] {
    let offsets = || OffsetBuffer::from_lengths(calls.iter().map(|call| call.1.len()));
    let list = |items: ArrayRef| -> ArrayRef {
        let field = Arc::new(Field::new_list_field(items.data_type().clone(), true));
        Arc::new(ListArray::new(field, offsets(), items, None))
    };
    let tokens = || calls.iter().flat_map(|call| call.1);
    let train: Float64Array = tokens().map(|token| token.1.map(|ratio| ratio - 1.0)).collect();
    let rollout: Float64Array = tokens().map(|_| Some(-1.0)).collect();
    let mask: BooleanArray = tokens().map(|token| Some(token.0)).collect();
    let trajectories: StringArray = calls.iter().map(|call| Some(call.0.to_string())).collect();
    [
        list(Arc::new(train)),
        list(Arc::new(rollout)),
        list(Arc::new(mask)),
        Arc::new(trajectories.clone()),
        Arc::new(trajectories),
    ]
}

/// Runs a window over the calls of one trajectory.
fn window(definition: Definition, calls: &[Vec<Token>], given: &[ScalarValue]) -> ArrayRef {
    let calls: Vec<(usize, &Vec<Token>)> = calls.iter().map(|call| (0, call)).collect();
    let [train, rollout, mask, _, ids] = columns(&calls);
    let constants = Constants::new(definition.function, definition.columns, given.to_vec()).unwrap();
    (definition.kernel)(&constants).unwrap().evaluate(&[train, rollout, mask, ids], calls.len()).unwrap()
}

/// The log ratios that count, or none where one is unknown.
fn known(calls: &[Vec<Token>]) -> Option<Vec<f64>> {
    calls.iter().flatten().filter(|token| token.0).map(|token| token.1).collect()
}

/// One estimate of the divergence.
fn divergence(option: &str, ratio: f64) -> f64 {
    let ratio = ratio.clamp(-20.0, 20.0);
    match &option[option.len() - 2..] {
        "k1" => -ratio,
        "k2" => ratio * ratio / 2.0,
        _ => ratio.exp() - 1.0 - ratio,
    }
}

fn statistic(option: &str, ratios: &[f64]) -> f64 {
    let values: Vec<f64> = ratios.iter().map(|ratio| divergence(option, *ratio)).collect();
    let sum: f64 = values.iter().sum();
    match option {
        option if option.starts_with("seq_sum") => sum,
        option if option.starts_with("seq_mean") => sum / (f64::from(u32::try_from(values.len()).unwrap()) + 1e-8),
        _ if values.is_empty() => 0.0,
        _ => values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
    }
}

proptest! {
    #[test]
    fn weights_are_bounded_ratios(
        calls in proptest::collection::vec(proptest::collection::vec((proptest::bool::weighted(0.7), proptest::option::weighted(0.95, -3.0..3.0f64)), 0..6), 1..4),
        level in prop_oneof![Just("token"), Just("sequence"), Just("geometric")],
        mode in prop_oneof![Just("truncate"), Just("clip"), Just("mask"), Just("keep"), Just("none")],
        veto in proptest::option::of(0.01..0.3f64),
    ) {
        let given = [ScalarValue::from(level), ScalarValue::from(mode), ScalarValue::from(1.5), ScalarValue::from(0.5), ScalarValue::Float64(veto)];
        let found = window(super::importance_weights::DEFINITION, &calls, &given);
        let found: Vec<Option<f64>> = found.as_list::<i32>().iter().flatten()
            .flat_map(|list| list.as_primitive::<Float64Type>().iter().collect::<Vec<_>>()).collect();
        let is_vetoed = veto.is_some_and(|veto| calls.iter().flatten().any(|token| token.0 && token.1.is_some_and(|ratio| ratio.exp() < veto)));
        let all = known(&calls);
        let sum = all.as_ref().map(|ratios| ratios.iter().sum::<f64>());
        let count = all.as_ref().map_or(1, |ratios| ratios.len().max(1));
        for (token, found) in calls.iter().flatten().zip(found) {
            let ratio = match level {
                _ if veto.is_some() && all.is_none() => None,
                "token" => token.1,
                "sequence" => sum,
                _ => sum.map(|sum| sum / f64::from(u32::try_from(count).unwrap())),
            };
            let weight = ratio.map(|ratio| {
                let ratio = ratio.clamp(-20.0, 20.0).exp();
                let inside = (0.5..=1.5).contains(&ratio);
                match mode {
                    "truncate" => ratio.min(1.5),
                    "clip" => ratio.clamp(0.5, 1.5),
                    "mask" if inside => ratio,
                    "keep" if inside => 1.0,
                    "none" => ratio,
                    _ => 0.0,
                }
            });
            let expected = if is_vetoed { Some(0.0) } else { weight }.filter(|_| token.0);
            prop_assert_eq!(found.is_some(), expected.is_some());
            let (found, expected) = (found.unwrap_or(0.0), expected.unwrap_or(0.0));
            prop_assert!((found - expected).abs() <= 1e-9 * expected.max(1.0), "{} is not {}", found, expected);
        }
    }

    #[test]
    fn what_a_criterion_keeps(
        calls in proptest::collection::vec(proptest::collection::vec((proptest::bool::weighted(0.7), proptest::option::weighted(0.95, -3.0..3.0f64)), 0..6), 1..4),
        options in proptest::sample::subsequence(vec!["token_k1", "token_k2", "token_k3", "seq_sum_k1", "seq_mean_k2", "seq_mean_k3", "seq_max_k2", "seq_max_k3"], 1..4),
        upper in 1.1..3.0f64,
    ) {
        let given = [ScalarValue::from(options.join(",").as_str()), ScalarValue::from(upper.to_string().as_str())];
        let found = window(super::rejection_mask::DEFINITION, &calls, &given);
        let found: Vec<Option<bool>> = found.as_list::<i32>().iter().flatten()
            .flat_map(|list| list.as_boolean().iter().collect::<Vec<_>>()).collect();
        let all = known(&calls);
        for (token, found) in calls.iter().flatten().zip(found) {
            let verdicts: Vec<Option<bool>> = options.iter().map(|option| {
                let statistic = if option.starts_with("token") {
                    divergence(option, token.1?)
                } else {
                    statistic(option, all.as_ref()?)
                };
                let keeps = if option.ends_with("k1") { statistic.abs() <= upper.ln() } else { statistic <= upper };
                Some(keeps)
            }).collect();
            let expected = match () {
                () if !token.0 || verdicts.contains(&Some(false)) => Some(false),
                () if verdicts.contains(&None) => None,
                () => Some(true),
            };
            // A statistic on its bound may fall to either side of a rounding.
            prop_assert_eq!(found, expected);
        }
    }

    #[test]
    fn metrics_do_not_see_calls_batches_or_order(batch in batch(), cut in any::<prop::sample::Index>()) {
        let calls: Vec<(usize, &Vec<Token>)> =
            batch.iter().enumerate().flat_map(|(at, trajectory)| trajectory.iter().map(move |call| (at, call))).collect();
        let given = [ScalarValue::from("token"), ScalarValue::from("0.5_2.0"), ScalarValue::from(true), ScalarValue::from("token_k1,seq_mean_k3"), ScalarValue::from("2.0,0.5")];
        let fresh = || super::rollout_correction_metrics::accumulator(&given).unwrap();
        let mut whole = fresh();
        whole.update_batch(&columns(&calls)).unwrap();
        let whole = metrics(&mut whole);
        // Backwards, in two parts whose states are merged.
        let mut backwards = calls.clone();
        backwards.reverse();
        let (first, second) = backwards.split_at(if calls.is_empty() { 0 } else { cut.index(calls.len()) });
        let mut merged = fresh();
        for part in [first, second] {
            let mut own = fresh();
            own.update_batch(&columns(part)).unwrap();
            let states: Vec<ArrayRef> = own.state().unwrap().iter().map(|state| state.to_array().unwrap()).collect();
            merged.merge_batch(&states).unwrap();
        }
        prop_assert_eq!(metrics(&mut merged), whole.clone());
        let tokens: Vec<f64> = batch.iter().flatten().flatten().filter(|token| token.0).filter_map(|token| token.1).collect();
        let count = f64::from(u32::try_from(tokens.len()).unwrap());
        if tokens.is_empty() {
            prop_assert!(whole.is_empty());
        } else {
            let kl = -tokens.iter().sum::<f64>() / (count + 1e-8);
            prop_assert!((whole["rollout_corr/kl"] - kl).abs() <= 1e-9 * kl.abs().max(1.0));
            let high = tokens.iter().filter(|ratio| ratio.exp() > 2.0).count();
            let share = f64::from(u32::try_from(high).unwrap()) / (count + 1e-8);
            prop_assert!((whole["rollout_corr/rollout_is_ratio_fraction_high"] - share).abs() < 1e-12);
        }
    }
}

fn metrics(accumulator: &mut dyn Accumulator) -> BTreeMap<String, f64> {
    let map = accumulator.evaluate().unwrap().to_array().unwrap();
    let entries = map.as_map().value(0);
    let names = entries.column(0).as_string::<i32>().clone();
    let values = entries.column(1).as_primitive::<Float64Type>().clone();
    // NaN compares with nothing: bits do.
    (0..names.len()).map(|at| (names.value(at).to_owned(), values.value(at))).collect()
}
