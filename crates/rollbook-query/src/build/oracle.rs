//! Random runs, built and compared with the rule for `merged` worked out naively from the calls.

use std::collections::{BTreeMap, BTreeSet};

use arrow::array::AsArray;
use arrow::datatypes::{Float64Type, Int32Type, Int64Type};
use rstest::rstest;
use serde_json::{Value, json};

use crate::build::{BuildOptions, run_build};
use crate::fixture::Scratch;
use crate::recipe::{DeriveOptions, find_recipe, run_credit, run_reward};

/// Numbers that look random and are the same on every machine.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % sides
    }

    fn tokens(&mut self, most: usize) -> Vec<i32> {
        let count = self.roll(most + 1);
        (0..count).map(|_| i32::try_from(self.roll(50)).unwrap()).collect()
    }
}

#[derive(Debug, Clone)]
struct Call {
    id: String,
    rollout: String,
    step: usize,
    parent: Option<String>,
    prompt: Vec<i32>,
    output: Vec<i32>,
    trainable: bool,
}

impl Call {
    fn context(&self) -> Vec<i32> {
        [self.prompt.as_slice(), self.output.as_slice()].concat()
    }
}

/// Trees of extensions, rewrites, branches and fresh starts.
fn random_calls(dice: &mut Dice) -> Vec<Call> {
    let mut calls = Vec::new();
    for rollout in 0..6 {
        let first = calls.len();
        let step = dice.roll(2);
        for index in 0..=dice.roll(6) {
            let parent: Option<Call> = (index > 0).then(|| {
                let back: Vec<Call> = calls[first..].to_vec();
                back[dice.roll(back.len())].clone()
            });
            let mut prompt = match &parent {
                Some(parent) if dice.roll(4) > 0 => parent.context(),
                Some(parent) => parent.prompt.clone(),
                None => vec![1, 2],
            };
            prompt.extend(dice.tokens(3));
            calls.push(Call {
                id: format!("r{rollout}c{index}"),
                rollout: format!("r{rollout}"),
                step,
                parent: parent.map(|parent| parent.id),
                prompt,
                output: dice.tokens(4),
                trainable: dice.roll(5) > 0,
            });
        }
    }
    calls
}

fn as_rows(calls: &[Call]) -> Value {
    let mut sorted: Vec<(usize, &Call)> = calls.iter().enumerate().collect();
    sorted.sort_by_key(|(_, call)| (call.step, call.rollout.clone()));
    let row = |(index, call): (usize, &Call)| {
        json!({"run_id": "r", "step": call.step, "group_id": "g", "rollout_id": call.rollout, "call_id": call.id,
               "call_index": index, "parent_call_id": call.parent, "is_trainable": call.trainable,
               "prompt_token_ids": call.prompt, "output_token_ids": call.output,
               "output_logprobs": vec![-0.5; call.output.len()], "prompt_exactness": "engine",
               "output_exactness": "engine", "logprobs_source": "engine"})
    };
    json!(sorted.into_iter().map(row).collect::<Vec<_>>())
}

/// The sequences by the rule: a call continues its parent if it extends it and no earlier call did; then calls after the
/// last that trains anything are cut off.
fn naive_sequences(calls: &[Call]) -> BTreeSet<Vec<String>> {
    let mut chains: Vec<Vec<&Call>> = Vec::new();
    for call in calls {
        let parent = calls.iter().find(|other| call.parent.as_ref() == Some(&other.id));
        let extends = parent.is_some_and(|parent| call.prompt.starts_with(&parent.context()));
        let open = chains.iter_mut().find(|chain| chain.last().map(|last| &last.id) == call.parent.as_ref());
        match open {
            Some(chain) if extends => chain.push(call),
            _ => chains.push(vec![call]),
        }
    }
    let cut = |chain: Vec<&Call>| {
        let kept = chain.iter().rposition(|call| call.trainable && !call.output.is_empty()).map_or(0, |last| last + 1);
        chain[..kept].iter().map(|call| call.id.clone()).collect::<Vec<_>>()
    };
    chains.into_iter().map(cut).filter(|chain| !chain.is_empty()).collect()
}

async fn built(calls: &[Call], max_tokens: u32) -> (Scratch, u64) {
    let scratch = Scratch::new().await;
    let steps: BTreeMap<&str, usize> = calls.iter().map(|call| (call.rollout.as_str(), call.step)).collect();
    let rollouts: Vec<Value> = steps
        .iter()
        .map(|(id, step)| json!({"run_id": "r", "rollout_id": id, "step": step, "group_id": "g", "revision": 0}))
        .collect();
    scratch.add("rollouts", json!(rollouts)).await;
    let scores: Vec<Value> = steps
        .keys()
        .enumerate()
        .map(|(value, id)| json!({"run_id": "r", "rollout_id": id, "score_id": id, "verifier": "v", "value": value}))
        .collect();
    scratch.add("scores", json!(scores)).await;
    scratch.add("calls", as_rows(calls)).await;
    let options = DeriveOptions::default();
    run_reward(&scratch.session().await, &find_recipe("verifier_value").unwrap(), &options).await.unwrap();
    run_credit(&scratch.session().await, &find_recipe("rloo").unwrap(), "verifier_value", &options).await.unwrap();
    let merged = find_recipe("merged").unwrap();
    let session = scratch.session().await;
    let derived = run_build(&session, &merged, "rloo", &BuildOptions::new(max_tokens)).await.unwrap();
    (scratch, derived.row_count)
}

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn random_runs_are_merged_by_the_rule(#[values(1, 2, 3, 4, 5, 6, 7, 8)] seed: u64) {
    let calls = random_calls(&mut Dice(seed));
    let by_id: BTreeMap<&str, &Call> = calls.iter().map(|call| (call.id.as_str(), call)).collect();
    let (scratch, rows) = built(&calls, 64).await;
    let session = scratch.session().await;
    let batches = session
        .collect("SELECT optimizer_step, token_ids, loss_weights, segments, action_mask FROM samples")
        .await
        .unwrap();
    let mut sequences: Vec<Vec<String>> = Vec::new();
    let mut trained: BTreeMap<(String, i32), usize> = BTreeMap::new();
    let mut weights: BTreeMap<i64, f64> = BTreeMap::new();
    let mut seen_rows = 0;
    for batch in &batches {
        for row in 0..batch.num_rows() {
            seen_rows += 1;
            let list = |column: usize| batch.column(column).as_list::<i32>().value(row);
            let tokens = list(1).as_primitive::<Int32Type>().values().to_vec();
            assert!(tokens.len() <= 64);
            let loss = list(2).as_primitive::<Float64Type>().values().to_vec();
            let step = batch.column(0).as_primitive::<Int64Type>().value(row);
            *weights.entry(step).or_default() += loss.iter().sum::<f64>();
            let mask = list(4).as_boolean().clone();
            let segments = list(3).as_struct().clone();
            let integer = |name: &str| segments.column_by_name(name).unwrap().as_primitive::<Int32Type>().clone();
            let text = |name: &str| segments.column_by_name(name).unwrap().as_string::<i32>().clone();
            let is_trained = segments.column_by_name("trained").unwrap().as_boolean().clone();
            let (start, length, from) = (integer("start"), integer("length"), integer("source_start"));
            let (sequence, call_ids, source) = (integer("sequence_index"), text("call_id"), text("source"));
            let mut end = 0;
            let base = sequences.len();
            for segment in 0..start.len() {
                assert_eq!(start.value(segment), end, "segments tile the row");
                end += length.value(segment);
                let call = by_id[call_ids.value(segment)];
                let stream = if source.value(segment) == "output" { &call.output } else { &call.prompt };
                let place = usize::try_from(sequence.value(segment)).unwrap() + base;
                sequences.resize((place + 1).max(sequences.len()), Vec::new());
                if sequences[place].last() != Some(&call.id) {
                    sequences[place].push(call.id.clone());
                }
                for token in 0..length.value(segment) {
                    let at = usize::try_from(start.value(segment) + token).unwrap();
                    let position = from.value(segment) + token;
                    assert_eq!(tokens[at], stream[usize::try_from(position).unwrap()]);
                    assert_eq!(mask.value(at), is_trained.value(segment));
                    assert_eq!(loss[at] > 0.0, mask.value(at));
                    if mask.value(at) {
                        *trained.entry((call.id.clone(), position)).or_default() += 1;
                    }
                }
            }
            assert_eq!(usize::try_from(end).unwrap(), tokens.len());
        }
    }
    assert_eq!(seen_rows, rows);
    // A call without any token of its own has no segment: it cannot be seen in a row.
    let shown = |sequence: Vec<String>| -> Vec<String> {
        let mut context = 0;
        let mut shown = Vec::new();
        for id in sequence {
            let call = by_id[id.as_str()];
            if call.context().len() > context {
                shown.push(id);
            }
            context = call.context().len();
        }
        shown
    };
    let expected: BTreeSet<_> = naive_sequences(&calls).into_iter().map(shown).collect();
    assert_eq!(sequences.into_iter().collect::<BTreeSet<_>>(), expected);
    let due = calls.iter().filter(|call| call.trainable).map(|call| call.output.len()).sum::<usize>();
    assert_eq!(trained.len(), due);
    assert!(trained.values().all(|times| *times == 1), "no token trains twice");
    assert!(weights.values().all(|sum| (sum - 1.0).abs() < 1e-12), "{weights:?}");
}
