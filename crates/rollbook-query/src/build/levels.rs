//! Builds from credits of calls and of single tokens, and under every objective, over the run of [`super::tests`].

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{Float32Type, Float64Type};
use rstest::rstest;
use serde_json::{Value, json};

use crate::build::tests::{calls, scratch, texts};
use crate::build::{BuildOptions, Objective, Scope, Unit, run_build};
use crate::fixture::Scratch;
use crate::recipe::{DeriveOptions, Derived, Recipe, find_recipe, run_credit};

/// A credit recipe over the calls of the rewarded rollouts.
fn recipe(level: &str, columns: &str) -> Recipe {
    let text = format!(
        "-- @kind credit\nSELECT call.run_id, call.rollout_id, call.call_id, '{level}' AS level, {columns}\n\
         FROM calls AS call JOIN reward ON reward.run_id = call.run_id AND reward.rollout_id = call.rollout_id"
    );
    Recipe::parse("own", &text).unwrap()
}

const TOKENS: &str = "CAST(NULL AS DOUBLE) AS value, CASE call.call_id \
    WHEN 'a0' THEN [0.25] WHEN 'a1' THEN [0.5] WHEN 'a2' THEN [-1.0] \
    WHEN 'b0' THEN [1.0, NULL, -2.0] WHEN 'b1' THEN [0.0] END AS token_values";

async fn credited(recipe: &Recipe) -> (Scratch, crate::Result<Derived>) {
    let scratch = scratch(vec![calls()]).await;
    let session = scratch.session().await;
    let derived = run_credit(&session, recipe, "verifier_value", &DeriveOptions::default()).await;
    (scratch, derived)
}

async fn build(scratch: &Scratch, credit: &str, options: &BuildOptions) -> crate::Result<Derived> {
    run_build(&scratch.session().await, &find_recipe("merged").unwrap(), credit, options).await
}

async fn samples(scratch: &Scratch) -> Vec<RecordBatch> {
    let sql = "SELECT advantages, loss_weights FROM samples ORDER BY row_index";
    scratch.session().await.collect(sql).await.unwrap()
}

fn advantages(rows: &[RecordBatch]) -> Vec<f32> {
    rows[0].column(0).as_list::<i32>().value(0).as_primitive::<Float32Type>().values().to_vec()
}

fn weights(rows: &[RecordBatch]) -> Vec<f64> {
    let lists = |batch: &RecordBatch| batch.column(1).as_list::<i32>().clone();
    let items = |list: &arrow::array::ListArray| {
        (0..list.len())
            .flat_map(|row| list.value(row).as_primitive::<Float64Type>().values().to_vec())
            .collect::<Vec<_>>()
    };
    rows.iter().map(lists).flat_map(|list| items(&list)).collect()
}

/// The row is a0 a1, a2, b0 b1, b2; of b0 the middle token has no value, b2 has none at all.
#[tokio::test(flavor = "multi_thread")]
async fn each_token_gets_the_value_at_its_output_offset() {
    let (scratch, derived) = credited(&recipe("token", TOKENS)).await;
    assert_eq!(derived.unwrap().notes, ["1 of 6 rows have no value"]);
    build(&scratch, "own", &BuildOptions::new(64)).await.unwrap();
    let rows = samples(&scratch).await;
    let expected = [0.0, 0.0, 0.25, 0.0, 0.5, 0.0, 0.0, 0.0, -1.0, 0.0, 1.0, 0.0, -2.0, 0.0, 0.0, 0.0, 0.0];
    let given = advantages(&rows);
    assert_eq!(given, expected);
    let sixth = 1.0 / 6.0;
    let trained = [2, 4, 8, 10, 12, 14];
    let due: Vec<f64> = (0..given.len()).map(|at| if trained.contains(&at) { sixth } else { 0.0 }).collect();
    assert_eq!(weights(&rows), due);
    let session = scratch.session().await;
    let sql = "SELECT call_id || ' ' || position || '+' || length || ' ' || reason FROM exclusions ORDER BY call_id, position";
    assert_eq!(texts(&session, sql).await, ["b0 1+1 no_credit", "b2 0+1 no_credit"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_gets_its_own_value_and_one_without_trains_nothing() {
    let columns = "CASE WHEN call.call_id <> 'a1' THEN call.call_index + 0.5 END AS value";
    let (scratch, derived) = credited(&recipe("call", columns)).await;
    derived.unwrap();
    build(&scratch, "own", &BuildOptions::new(64)).await.unwrap();
    let rows = samples(&scratch).await;
    let given = advantages(&rows);
    assert_eq!((given[2], given[8], given[10], given[11]), (0.5, 2.5, 0.5, 0.5));
    let session = scratch.session().await;
    let sql = "SELECT call_id || ' ' || length || ' ' || reason FROM exclusions ORDER BY call_id";
    assert_eq!(texts(&session, sql).await, ["a1 1 no_credit"]);
}

#[rstest]
#[case::too_many("token", "NULL AS value, [0.5, 0.5] AS token_values", "rollout a, call a0, which has 1 output tokens")]
#[case::empty(
    "token",
    "NULL AS value, CASE WHEN call.call_id = 'b1' THEN arrow_cast([], 'List(Float64)') END AS token_values",
    "returns 0 token_values for rollout b, call b1, which has 1 output tokens"
)]
#[case::other_level("call", "0.5 AS value, [0.5] AS token_values", "token_values of level call")]
#[case::none("token", "0.5 AS value", "level token without the column token_values")]
#[case::too_large(
    "token",
    "NULL AS value, CASE WHEN call.call_id = 'a1' THEN [1e300] END AS token_values",
    "too large to be stored as float, for rollout a, call a1"
)]
#[tokio::test(flavor = "multi_thread")]
async fn token_values_that_do_not_fit_their_call_are_refused(
    #[case] level: &str,
    #[case] columns: &str,
    #[case] expected: &str,
) {
    let (scratch, derived) = credited(&recipe(level, columns)).await;
    let message = derived.unwrap_err().to_string();
    assert!(message.contains(expected), "{message}");
    let kept = scratch.session().await.collect("SELECT 1 FROM credits WHERE name = 'own'").await.unwrap();
    assert!(kept.iter().all(|batch| batch.num_rows() == 0));
}

fn imported(call: &str, values: Value) -> Value {
    json!({"run_id": "r", "step": 3, "group_id": "g", "rollout_id": call[..1], "call_id": call, "name": "theirs",
           "token_values": values})
}

#[rstest]
#[case::long(json!([0.5, 0.5]), Some("credit theirs has 2 values for rollout a, call a1, which has 1 output tokens"))]
#[case::infinite(json!([1e300]), Some("credit theirs of rollout a, call a1 is no finite number at output token 0"))]
#[case::fits(json!([0.5]), None)]
#[tokio::test(flavor = "multi_thread")]
async fn imported_token_values_are_checked_when_they_are_built(#[case] values: Value, #[case] expected: Option<&str>) {
    let scratch = scratch(vec![calls()]).await;
    scratch
        .add("credits", json!([imported("a0", json!([0.25])), imported("a1", values), imported("b0", Value::Null)]))
        .await;
    let built = build(&scratch, "theirs", &BuildOptions::new(64)).await;
    match expected {
        Some(expected) => assert!(built.as_ref().is_err_and(|error| error.to_string().contains(expected)), "{built:?}"),
        None => {
            built.unwrap();
            assert_eq!(advantages(&samples(&scratch).await)[2..5], [0.25, 0.0, 0.5]);
        }
    }
}

/// Rows of at most six tokens: {a0 a1}, {a2, b2}, {b0 b1}; trained tokens 2, 2 and 4; rollouts a 3, b 5.
#[rstest]
#[case(Unit::Token, Scope::Step, [8.0, 8.0, 8.0, 8.0])]
#[case(Unit::Token, Scope::MicroBatch, [6.0, 6.0, 6.0, 12.0])]
#[case(Unit::Row, Scope::Step, [6.0, 6.0, 6.0, 12.0])]
#[case(Unit::Rollout, Scope::Step, [6.0, 6.0, 10.0, 10.0])]
#[case(Unit::Rollout, Scope::MicroBatch, [6.0, 6.0, 6.0, 12.0])]
#[case(Unit::Group, Scope::Step, [8.0, 8.0, 8.0, 8.0])]
#[tokio::test(flavor = "multi_thread")]
async fn weights_follow_the_objective(#[case] unit: Unit, #[case] scope: Scope, #[case] expected: [f64; 4]) {
    let scratch = scratch(vec![calls()]).await;
    let objective = Objective::new(unit, scope, None).unwrap();
    build(&scratch, "dr_grpo", &BuildOptions { objective, ..BuildOptions::new(6) }).await.unwrap();
    let session = scratch.session().await;
    let sql = "SELECT s['call_id'] || ' ' || CAST(loss_weights[s['start'] + 1] AS VARCHAR) FROM \
               (SELECT unnest(segments) AS s, loss_weights FROM samples) WHERE s['source'] = 'output' ORDER BY 1";
    let given = texts(&session, sql).await;
    let [a0, a2, b2, b0] = expected.map(|denominator| 1.0 / denominator);
    let due = [("a0", a0), ("a1", a0), ("a2", a2), ("b0", b0), ("b1", b0), ("b2", b2)];
    for (given, (call, weight)) in given.iter().zip(due) {
        let (id, value) = given.split_once(' ').unwrap();
        assert_eq!(id, call);
        assert!((value.parse::<f64>().unwrap() - weight).abs() < 1e-12, "{given}, not {weight}");
    }
    let declared = texts(&session, "SELECT objective_unit || ' ' || objective_scope FROM builds").await;
    assert_eq!(declared, [format!("{} {}", unit.as_str(), scope.as_str())]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_constant_is_the_denominator_of_every_token() {
    let scratch = scratch(vec![calls()]).await;
    let objective = Objective::new(Unit::Constant, Scope::Step, Some(256.0)).unwrap();
    build(&scratch, "dr_grpo", &BuildOptions { objective, ..BuildOptions::new(64) }).await.unwrap();
    let given = weights(&samples(&scratch).await);
    assert_eq!(given.iter().filter(|weight| **weight != 0.0).copied().collect::<Vec<_>>(), [1.0 / 256.0; 8]);
    let kept = texts(&scratch.session().await, "SELECT CAST(objective_constant AS VARCHAR) FROM builds").await;
    assert_eq!(kept, ["256.0"]);
}
