//! Builds over a hand-made run.
//!
//! ```text
//! rollout a (T = 3)   a0 ── a1        a2 extends a0 too, but a1 came first: it starts its own sequence
//!                       └── a2
//! rollout b (T = 5)   b0 ── b1   b2   b2 is a compaction: its prompt is new
//! ```

use arrow::array::{Array, AsArray};
use arrow::datatypes::{Float32Type, Float64Type, Int32Type};
use serde_json::{Value, json};

use crate::build::{BuildOptions, run_build};
use crate::fixture::Scratch;
use crate::recipe::{DeriveOptions, Derived, Recipe, find_recipe, run_credit, run_reward, text_column};
use crate::session::{Session, SessionOptions};

pub(super) fn call(rollout: &str, index: usize, parent: Option<&str>, prompt: &[i32], output: &[i32]) -> Value {
    let logprobs: Vec<f64> = output.iter().map(|token| f64::from(*token) / -64.0).collect();
    json!({"run_id": "r", "step": 3, "group_id": "g", "rollout_id": rollout, "call_id": format!("{rollout}{index}"),
           "call_index": index, "parent_call_id": parent, "kind": "act", "prompt_token_ids": prompt,
           "output_token_ids": output, "output_logprobs": logprobs, "prompt_exactness": "engine",
           "output_exactness": "engine", "logprobs_source": "engine"})
}

pub(super) fn calls() -> Vec<Value> {
    vec![
        call("a", 0, None, &[1, 2], &[3]),
        call("a", 1, Some("a0"), &[1, 2, 3, 4], &[5]),
        call("a", 2, Some("a0"), &[1, 2, 3], &[6]),
        call("b", 0, None, &[7], &[8, 9, 10]),
        call("b", 1, Some("b0"), &[7, 8, 9, 10, 11], &[12]),
        call("b", 2, Some("b1"), &[20], &[21]),
    ]
}

pub(super) async fn scratch(batches: Vec<Vec<Value>>) -> Scratch {
    let scratch = Scratch::new().await;
    let rollout = |id: &str, purpose: &str| json!({"run_id": "r", "rollout_id": id, "step": 3, "group_id": "g", "purpose": purpose, "revision": 0});
    let rollouts = json!([rollout("a", "train"), rollout("b", "train"), rollout("c", "train"), rollout("e", "eval")]);
    scratch.add("rollouts", rollouts).await;
    let score = |id: &str, value: f64| json!({"run_id": "r", "step": 3, "group_id": "g", "rollout_id": id, "score_id": id, "verifier": "v", "value": value});
    scratch.add("scores", json!([score("a", 1.0), score("b", 0.0), score("e", 1.0)])).await;
    for batch in batches {
        scratch.add("calls", json!(batch)).await;
    }
    let session = scratch.session().await;
    run_reward(&session, &find_recipe("verifier_value").unwrap(), &DeriveOptions::default()).await.unwrap();
    let session = scratch.session().await;
    let credit = find_recipe("dr_grpo").unwrap();
    run_credit(&session, &credit, "verifier_value", &DeriveOptions::default()).await.unwrap();
    scratch
}

async fn merged(scratch: &Scratch, options: &BuildOptions) -> crate::Result<Derived> {
    run_build(&scratch.session().await, &find_recipe("merged").unwrap(), "dr_grpo", options).await
}

pub(super) async fn texts(session: &Session, sql: &str) -> Vec<String> {
    text_column(&session.collect(sql).await.unwrap(), 0).unwrap()
}

const SEGMENTS: &str = "SELECT s['call_id'] || ' ' || s['source'] || ' ' || s['start'] || '+' || s['length'] || ' @' \
     || s['source_start'] || ' #' || s['sequence_index'] FROM (SELECT unnest(segments) AS s, row_index FROM samples) ORDER BY row_index, s['start']";

#[tokio::test(flavor = "multi_thread")]
async fn merged_follows_extensions_and_its_segments_tile_the_rows() {
    let scratch = scratch(vec![calls()]).await;
    let derived = merged(&scratch, &BuildOptions::new(64)).await.unwrap();
    assert_eq!(derived.row_count, 1);
    let session = scratch.session().await;
    let expected = [
        "a0 prompt 0+2 @0 #0",
        "a0 output 2+1 @0 #0",
        "a1 prompt 3+1 @3 #0",
        "a1 output 4+1 @0 #0",
        "a2 prompt 5+3 @0 #1",
        "a2 output 8+1 @0 #1",
        "b0 prompt 9+1 @0 #2",
        "b0 output 10+3 @0 #2",
        "b1 prompt 13+1 @4 #2",
        "b1 output 14+1 @0 #2",
        "b2 prompt 15+1 @0 #3",
        "b2 output 16+1 @0 #3",
    ];
    assert_eq!(texts(&session, SEGMENTS).await, expected);
    let tokens = texts(&session, "SELECT array_to_string(token_ids, ' ') FROM samples").await;
    assert_eq!(tokens, ["1 2 3 4 5 1 2 3 6 7 8 9 10 11 12 20 21"]);
    let positions = texts(&session, "SELECT array_to_string(position_ids, ' ') FROM samples").await;
    assert_eq!(positions, ["0 1 2 3 4 0 1 2 3 0 1 2 3 4 5 0 1"]);
}

/// `R = 2, T_a = 3, T_b = 5`, so 1/6 and 1/10; the advantages are 1 - 1/2 and 0 - 1/2.
#[tokio::test(flavor = "multi_thread")]
async fn weights_are_one_over_rollouts_times_tokens() {
    let scratch = scratch(vec![calls()]).await;
    merged(&scratch, &BuildOptions::new(64)).await.unwrap();
    let session = scratch.session().await;
    let rows = session.collect("SELECT loss_weights, advantages, logprobs, action_mask FROM samples").await.unwrap();
    let list = |column: usize| rows[0].column(column).as_list::<i32>().value(0);
    let weights: Vec<f64> = list(0).as_primitive::<Float64Type>().values().to_vec();
    let (a, b) = (1.0 / 6.0, 1.0 / 10.0);
    assert_eq!(weights, [0.0, 0.0, a, 0.0, a, 0.0, 0.0, 0.0, a, 0.0, b, b, b, 0.0, b, 0.0, b]);
    let advantages: Vec<f32> = list(1).as_primitive::<Float32Type>().values().to_vec();
    assert_eq!((advantages[2], advantages[3], advantages[10]), (0.5, 0.0, -0.5));
    let logprobs = list(2).as_primitive::<Float32Type>().clone();
    assert!(logprobs.is_null(0) && logprobs.is_null(13));
    assert!((logprobs.value(16) - 21.0 / -64.0).abs() < f32::EPSILON);
    let trained: Vec<usize> = (0..17).filter(|token| list(3).as_boolean().value(*token)).collect();
    assert_eq!(trained, [2, 4, 8, 10, 11, 12, 14, 16]);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_sampled_token_that_does_not_train_has_a_reason() {
    let mut all = calls();
    all[0]["output_logprobs"] = json!([null]);
    all[1]["kind"] = json!("judge");
    all[2]["prompt_exactness"] = json!("rendered");
    all[3]["sampled_mask"] = json!([true, false, true]);
    all[3]["action_mask"] = json!([true, true, false]);
    all.push(call("c", 0, None, &[1], &[2, 3]));
    all.push(call("e", 0, None, &[1], &[2, 3]));
    let scratch = scratch(vec![all]).await;
    merged(&scratch, &BuildOptions::new(64)).await.unwrap();
    let session = scratch.session().await;
    let sql = "SELECT call_id || ' ' || position || '+' || length || ' ' || reason FROM exclusions ORDER BY call_id, position";
    let expected = [
        "a0 0+1 no_logprob",
        "a1 0+1 not_trainable",
        "a2 0+1 not_exact",
        "b0 1+1 not_sampled",
        "b0 2+1 action_mask",
        "c0 0+2 no_score",
    ];
    assert_eq!(texts(&session, sql).await, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollout_in_two_imports_merges_as_in_one() {
    let mut later = calls();
    let earlier: Vec<Value> = [0, 3].map(|index| later[index].clone()).to_vec();
    later.retain(|call| call["call_index"] != json!(0));
    let whole = scratch(vec![calls()]).await;
    let split = scratch(vec![earlier, later]).await;
    let options = BuildOptions::new(64);
    let one = merged(&whole, &options).await.unwrap();
    let two = merged(&split, &options).await.unwrap();
    assert_eq!(one.content_digest, two.content_digest);
}

/// Makes a session work in batches of so many rows.
fn set_batch_size(session: &Session, rows: usize) {
    let state = session.context().state_ref();
    let mut state = state.write();
    let config = state.config().clone().with_batch_size(rows);
    *state.config_mut() = config;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_digest_does_not_depend_on_threads_batches_or_memory() {
    let scratch = scratch(vec![calls()]).await;
    let n = scratch.session().await.snapshot().n;
    let mut digests = Vec::new();
    for (threads, rows, memory_limit) in [(1, 8192, 256 << 20), (4, 1, 64 << 20), (2, 3, 256 << 20)] {
        let options = SessionOptions { threads, memory_limit, spill_dir: None };
        let session = Session::open(&scratch.lake, Some(n), options).await.unwrap();
        set_batch_size(&session, rows);
        let recipe = find_recipe("merged").unwrap();
        let derived = run_build(&session, &recipe, "dr_grpo", &BuildOptions::new(10)).await.unwrap();
        digests.push(derived.content_digest);
    }
    digests.dedup();
    assert_eq!(digests.len(), 1, "{digests:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sequence_that_does_not_fit_is_named_and_nothing_is_written() {
    let scratch = scratch(vec![calls()]).await;
    let before = scratch.lake.snapshot().await.unwrap().n;
    let message = merged(&scratch, &BuildOptions::new(5)).await.unwrap_err().to_string();
    assert!(message.contains("rollout b, call b1: a sequence of 6 tokens does not fit into max-tokens 5"), "{message}");
    assert_eq!(scratch.lake.snapshot().await.unwrap().n, before);
    assert_eq!(merged(&scratch, &BuildOptions::new(6)).await.unwrap().row_count, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn assumed_tokens_train_only_where_they_are_accepted() {
    let mut all = calls();
    for call in &mut all {
        call["prompt_exactness"] = json!("assumed");
        call["logprobs_source"] = json!("assumed");
    }
    let scratch = scratch(vec![all]).await;
    assert!(merged(&scratch, &BuildOptions::new(64)).await.unwrap_err().to_string().contains("plans nothing"));
    let options = BuildOptions { accept_assumed: true, ..BuildOptions::new(64) };
    assert_eq!(merged(&scratch, &options).await.unwrap().row_count, 1);
}

/// A plan of one's own, wrong in one way.
#[rstest::rstest]
#[case::unknown_call(
    "SELECT 0 AS row_index, 0 AS sequence_index, 'a' AS rollout_id, ['zz'] AS call_ids",
    "the run has no call zz"
)]
#[case::other_rollout(
    "SELECT 0 AS row_index, 0 AS sequence_index, 'b' AS rollout_id, ['a0'] AS call_ids",
    "call a0 belongs to rollout a, not to b"
)]
#[case::twice(
    "SELECT * FROM (VALUES (0, 0, 'a', ['a0']), (0, 1, 'a', ['a0'])) AS t(row_index, sequence_index, rollout_id, call_ids)",
    "call a0 is there twice"
)]
#[case::gap(
    "SELECT 0 AS row_index, 1 AS sequence_index, 'a' AS rollout_id, ['a0'] AS call_ids",
    "sequence_index 1 where 0 is due"
)]
#[case::no_extension(
    "SELECT 0 AS row_index, 0 AS sequence_index, 'b' AS rollout_id, ['b1', 'b2'] AS call_ids",
    "the prompt of call b2 does not extend call b1"
)]
#[case::siblings(
    "SELECT 0 AS row_index, 0 AS sequence_index, 'a' AS rollout_id, ['a2', 'a1'] AS call_ids",
    "the prompt of call a1 does not extend call a2"
)]
#[case::too_long(
    "SELECT * FROM (VALUES (0, 0, 'b', ['b0', 'b1']), (0, 1, 'a', ['a0', 'a1'])) AS t(row_index, sequence_index, rollout_id, call_ids)",
    "row 0 holds 11 tokens"
)]
#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_plan_is_named(#[case] sql: &str, #[case] expected: &str) {
    let scratch = scratch(vec![calls()]).await;
    let text = format!("-- @kind build\nSELECT 3 AS optimizer_step, * FROM ({sql})");
    let recipe = Recipe::parse("mine", &text).unwrap();
    let session = scratch.session().await;
    let message = run_build(&session, &recipe, "dr_grpo", &BuildOptions::new(10)).await.unwrap_err().to_string();
    assert!(message.contains(expected), "{message}");
    assert_eq!(scratch.lake.snapshot().await.unwrap().n, session.snapshot().n);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_outside_the_plan_is_left_out_with_a_reason() {
    let scratch = scratch(vec![calls()]).await;
    let text = "-- @kind build\nSELECT 3 AS optimizer_step, 0 AS row_index, 0 AS sequence_index, 'a' AS rollout_id, ['a0', 'a1'] AS call_ids";
    let recipe = Recipe::parse("mine", text).unwrap();
    run_build(&scratch.session().await, &recipe, "dr_grpo", &BuildOptions::new(10)).await.unwrap();
    let session = scratch.session().await;
    let sql = "SELECT call_id || ' ' || length || ' ' || reason FROM exclusions ORDER BY call_id";
    let expected = ["a2 1 not_planned", "b0 3 not_planned", "b1 1 not_planned", "b2 1 not_planned"];
    assert_eq!(texts(&session, sql).await, expected);
    let rows = session.collect("SELECT rollout_id, micro_batch, rank FROM samples").await.unwrap();
    assert_eq!(text_column(&rows, 0).unwrap(), ["a"]);
    assert_eq!(rows[0].column(2).as_primitive::<Int32Type>().value(0), 0);
}
