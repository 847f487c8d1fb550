//! Random rollouts against the naive oracle: exact on rebuilding, optimal in bases, right in prefix lengths.

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use proptest::collection::vec;
use proptest::option::weighted;
use proptest::prelude::*;

use super::oracle;
use super::rows::{Case, cases, decode_by, encode, int, lists, logical, only, text};
use crate::codec::{Encoder, needs_rebase, rebase_rollout};

/// How a call's prompt comes from that of an earlier call.
#[derive(Debug, Clone)]
enum Step {
    Extend(Vec<i32>),
    Rewrite { kept: usize, new: Vec<i32> },
    Retry,
    Fresh(Vec<i32>),
    Empty,
    Unknown,
}

#[derive(Debug, Clone)]
struct Plan {
    step: Step,
    /// How far back the call that this one follows lies: 0 = the last, most often.
    back: usize,
    output: Option<Vec<i32>>,
    is_retry_equal: bool,
    rollout: usize,
    index: Option<i32>,
    id: Option<usize>,
    parent: usize,
    message: usize,
}

/// Few ids, so that tokens coincide by chance; runs long enough to cross blocks of the digest.
fn tokens() -> impl Strategy<Value = Vec<i32>> {
    prop_oneof![
        6 => vec(0..3_i32, 0..6),
        1 => (vec(0..3_i32, 1..4), 100..700_usize).prop_map(|(unit, len)| unit.into_iter().cycle().take(len).collect()),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => tokens().prop_map(Step::Extend),
        3 => (0..800_usize, tokens()).prop_map(|(kept, new)| Step::Rewrite { kept, new }),
        2 => Just(Step::Retry),
        1 => tokens().prop_map(Step::Fresh),
        1 => Just(Step::Empty),
        1 => Just(Step::Unknown),
    ]
}

fn plan() -> impl Strategy<Value = Plan> {
    let back = prop_oneof![3 => Just(0), 1 => 0..6_usize];
    let ids = (weighted(0.8, 0..6_i32), weighted(0.9, 0..8_usize), 0..12_usize);
    (step(), back, weighted(0.9, tokens()), any::<bool>(), 0..2_usize, ids, 0..3_usize).prop_map(
        |(step, back, output, is_retry_equal, rollout, (index, id, parent), message)| Plan {
            step,
            back,
            output,
            is_retry_equal,
            rollout,
            index,
            id,
            parent,
            message,
        },
    )
}

/// The calls that the plans make; ids and indexes double now and then, parents are earlier, later, missing or the call.
fn calls(plans: &[Plan]) -> Vec<Case> {
    let mut calls: Vec<Case> = Vec::new();
    for (number, plan) in plans.iter().enumerate() {
        let before = calls.len().checked_sub(1 + plan.back).map(|place| calls[place].clone()).unwrap_or_default();
        let old = before.prompt.clone().unwrap_or_default();
        let context = [old.as_slice(), before.output.as_deref().unwrap_or(&[])].concat();
        let prompt = match &plan.step {
            Step::Extend(new) => Some([context.as_slice(), new].concat()),
            Step::Rewrite { kept, new } => Some([&context[..(*kept).min(context.len())], new].concat()),
            Step::Retry => Some(old),
            Step::Fresh(new) => Some(new.clone()),
            Step::Empty => Some(Vec::new()),
            Step::Unknown => None,
        };
        let is_equal = matches!(plan.step, Step::Retry) && plan.is_retry_equal;
        calls.push(Case {
            rollout: [Some("one".to_owned()), None][plan.rollout].clone(),
            id: plan.id.map(|id| if id < 6 { format!("call-{number}") } else { format!("call-{id}") }),
            index: plan.index.map(|index| if index < 3 { i32::try_from(number).unwrap() } else { index }),
            parent: match plan.parent {
                0..4 => None,
                4..8 => before.id,
                other => Some(format!("call-{}", other * 3 % 14)),
            },
            prompt,
            output: if is_equal { before.output } else { plan.output.clone() },
            request: request(before.request.as_deref(), plan.message),
        });
    }
    calls
}

fn request(before: Option<&str>, message: usize) -> Option<String> {
    match (message, before) {
        (0, _) => None,
        (1, Some(before)) => Some(before.replacen("]}", r#",{"role":"tool"}]}"#, 1)),
        _ => Some(r#"{"model":"m","messages":[{"role":"user","content":"go"}]}"#.to_owned()),
    }
}

fn of_rollout(calls: &[Case], rollout: Option<&str>) -> Vec<Case> {
    calls.iter().filter(|call| call.rollout.as_deref() == rollout).cloned().collect()
}

/// Checks one rollout's stored rows, in the order stored, against the oracle.
fn check_stored(stored: &RecordBatch, calls: &[Case], is_complete: bool) {
    let (base_index, base_len) = (int(stored, "base_index"), int(stored, "base_len"));
    let (prefix, suffix) = (int(stored, "parent_prefix_len"), lists(stored, "prompt_suffix"));
    for at in 0..calls.len() {
        let base = oracle::base(calls, at);
        assert_eq!(base_len[at], base.map(|(_, len)| i32::try_from(len).unwrap()), "base_len of {at} in {calls:?}");
        if calls[at].prompt.is_some() {
            assert_eq!(
                base_index[at],
                base.map(|(place, _)| i32::try_from(place).unwrap()),
                "base of {at} in {calls:?}"
            );
        }
        let rest = calls[at].prompt.as_ref().map(|prompt| prompt[base.map_or(0, |(_, len)| len)..].to_vec());
        assert_eq!(suffix[at], rest, "suffix of {at}");
        let known = if is_complete { calls.len() } else { at };
        assert_eq!(prefix[at], oracle::parent_prefix_len(calls, at, known), "parent_prefix_len of {at} in {calls:?}");
    }
}

/// Checks that stored rows give the calls back, with the digests the definition asks for.
fn check_rebuilt(stored: &RecordBatch, calls: &[Case], step: usize, max_bytes: usize) {
    let rebuilt = decode_by(stored, step, max_bytes);
    assert_eq!(cases(&rebuilt), calls);
    assert_eq!(int(&rebuilt, "marker"), int(&logical(calls), "marker"));
    let digest = |tokens: &Option<Vec<i32>>| tokens.as_deref().map(oracle::digest);
    let (prompts, outputs) = (text(&rebuilt, "prompt_digest"), text(&rebuilt, "output_digest"));
    assert_eq!(prompts, calls.iter().map(|call| digest(&call.prompt)).collect::<Vec<_>>());
    assert_eq!(outputs, calls.iter().map(|call| digest(&call.output)).collect::<Vec<_>>());
}

const ROLLOUTS: [Option<&str>; 2] = [Some("one"), None];

proptest! {
    #[test]
    fn arrival_in_any_order_is_stored_best(
        plans in vec(plan(), 1..24),
        keys in prop_oneof![Just(vec![0; 24]), vec(any::<u8>(), 24)],
        cut in 1..8_usize,
        (step, max_bytes) in (1..6_usize, prop_oneof![Just(1), Just(2_000), Just(usize::MAX)]),
    ) {
        let mut arrivals: Vec<(u8, Case)> = keys.into_iter().zip(calls(&plans)).collect();
        arrivals.sort_by_key(|(key, _)| *key);
        let calls: Vec<Case> = arrivals.into_iter().map(|(_, call)| call).collect();
        let mut encoder = Encoder::new(usize::MAX);
        let parts: Vec<_> = calls.chunks(cut).map(|part| encoder.encode(&logical(part)).unwrap()).collect();
        let stored = concat_batches(&parts[0].schema(), &parts).unwrap();
        for rollout in ROLLOUTS {
            let (rows, own) = (only(&stored, rollout), of_rollout(&calls, rollout));
            check_stored(&rows, &own, false);
            check_rebuilt(&rows, &own, step, max_bytes);
            let joined = rebase_rollout(std::slice::from_ref(&rows)).unwrap();
            let sorted = oracle::canonical(&own);
            check_stored(&joined, &sorted, true);
            check_rebuilt(&joined, &sorted, step, max_bytes);
            if !needs_rebase(std::slice::from_ref(&rows)).unwrap() {
                prop_assert_eq!(&joined, &rows);
            }
            prop_assert_eq!(&rebase_rollout(std::slice::from_ref(&joined)).unwrap(), &joined);
        }
    }

    #[test]
    fn several_imports_and_small_caches_join_to_the_same_rows(
        plans in vec(plan(), 1..24),
        cuts in vec(1..8_usize, 1..5),
        limit in prop_oneof![Just(0), 100..2_000_usize, Just(usize::MAX)],
    ) {
        let calls = calls(&plans);
        let mut files: [Vec<_>; 2] = Default::default();
        let mut rest = calls.as_slice();
        for cut in cuts.iter().cycle() {
            let (part, more) = rest.split_at((*cut).min(rest.len()));
            let stored = Encoder::new(limit).encode(&logical(part)).unwrap();
            for (rollout, files) in ROLLOUTS.into_iter().zip(&mut files) {
                check_rebuilt(&only(&stored, rollout), &of_rollout(part, rollout), 3, 500);
                files.push(only(&stored, rollout));
            }
            rest = more;
            if rest.is_empty() {
                break;
            }
        }
        for (rollout, files) in ROLLOUTS.into_iter().zip(&files) {
            let joined = rebase_rollout(files).unwrap();
            let sorted = oracle::canonical(&of_rollout(&calls, rollout));
            check_stored(&joined, &sorted, true);
            check_rebuilt(&joined, &sorted, 4, 1_000);
            prop_assert_eq!(&rebase_rollout(&[only(&encode(&of_rollout(&calls, rollout)), rollout)]).unwrap(), &joined);
        }
    }
}
