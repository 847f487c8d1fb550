//! Recipes run over small lakes; expected values are worked out by hand or taken from the published formulas.

use std::collections::BTreeMap;

use arrow::array::{Array, AsArray};
use arrow::datatypes::Float64Type;
use rstest::rstest;
use serde_json::{Value, json};

use super::*;
use crate::error::ErrorKind;
use crate::fixture::Scratch;
use crate::session::{Session, SessionOptions};

/// Four training rollouts of one group, scored 1, 0, 0, 0, and one for evaluation.
async fn scratch() -> Scratch {
    let scratch = Scratch::new().await;
    let rollout = |id: &str, purpose: Value| json!({"run_id": "r", "rollout_id": id, "step": 3, "group_id": "g", "task_id": "t", "purpose": purpose, "revision": 0});
    let rollouts: Vec<Value> =
        ["a", "b", "c", "d"].iter().map(|id| rollout(id, Value::Null)).chain([rollout("e", json!("eval"))]).collect();
    scratch.add("rollouts", json!(rollouts)).await;
    let score = |id: &str, verifier: &str, value: Value, valid: bool| {
        json!({"run_id": "r", "step": 3, "group_id": "g", "rollout_id": id, "score_id": format!("{id}-{verifier}"),
               "verifier": verifier, "value": value, "is_valid": valid})
    };
    let scores = json!([
        score("a", "v", json!(1.0), true),
        score("b", "v", json!(0.0), true),
        score("c", "v", json!(0.0), true),
        score("d", "v", json!(0.0), true),
        score("e", "v", json!(1.0), true),
    ]);
    scratch.add("scores", scores).await;
    scratch
}

pub(super) fn options(parameters: &[(&str, &str)]) -> DeriveOptions {
    let parameters = parameters.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    DeriveOptions { parameters, ..DeriveOptions::default() }
}

async fn reward(session: &Session, name: &str, parameters: &[(&str, &str)]) -> Result<Derived> {
    run_reward(session, &find_recipe(name).unwrap(), &options(parameters)).await
}

pub(super) async fn values(session: &Session, sql: &str) -> Vec<(String, Option<f64>)> {
    let mut rows = Vec::new();
    for batch in session.collect(sql).await.unwrap() {
        let ids = batch.column(0).as_string::<i32>().clone();
        let values = batch.column(1).as_primitive::<Float64Type>();
        rows.extend(
            (0..batch.num_rows())
                .map(|row| (ids.value(row).to_owned(), values.is_valid(row).then(|| values.value(row)))),
        );
    }
    rows
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reward_covers_every_rollout_and_is_recorded() {
    let scratch = scratch().await;
    let derived = reward(&scratch.session().await, "verifier_value", &[]).await.unwrap();
    assert_eq!(derived.row_count, 5);
    let session = scratch.session().await;
    assert_eq!(session.snapshot().n, derived.n);
    let rows = values(&session, "SELECT rollout_id, value FROM rewards ORDER BY 1").await;
    assert_eq!(rows[0], ("a".to_owned(), Some(1.0)));
    assert_eq!(rows[3], ("d".to_owned(), Some(0.0)));
    let recorded = session
        .collect(&format!(
            "SELECT kind || ' ' || name || ' ' || group_key || ' ' || row_count || ' ' || snapshot || ' ' || parameters \
             FROM derivations WHERE derivation_id = '{}'",
            derived.derivation_id
        ))
        .await
        .unwrap();
    let snapshot = derived.n - 1;
    let expected = format!("reward verifier_value group_id 5 {snapshot} {{\"verifier\":null}}");
    assert_eq!(text_column(&recorded, 0).unwrap(), [expected]);
}

/// The table of the three published forms for rewards 1, 0, 0, 0.
#[rstest]
#[case("grpo", 0.75 / (0.5 + 1e-6), -0.25 / (0.5 + 1e-6))]
#[case("dr_grpo", 0.75, -0.25)]
#[case("rloo", 1.0, -1.0 / 3.0)]
#[tokio::test(flavor = "multi_thread")]
async fn a_credit_compares_the_training_rollouts_of_a_group(
    #[case] name: &str,
    #[case] winner: f64,
    #[case] loser: f64,
) {
    let scratch = scratch().await;
    reward(&scratch.session().await, "verifier_value", &[]).await.unwrap();
    let session = scratch.session().await;
    let credit = find_recipe(name).unwrap();
    let derived = run_credit(&session, &credit, "verifier_value", &options(&[])).await.unwrap();
    assert_eq!(derived.row_count, 4);
    let session = scratch.session().await;
    for (id, value) in values(&session, "SELECT rollout_id, value FROM credits ORDER BY 1").await {
        let expected = if id == "a" { winner } else { loser };
        assert!((value.unwrap() - expected).abs() < 1e-12, "{id}: {value:?}, not {expected}");
    }
    let baseline = session
        .collect("SELECT DISTINCT baseline_scope || ' ' || baseline_key || ' ' || baseline_count || ' ' || level FROM credits")
        .await
        .unwrap();
    assert_eq!(text_column(&baseline, 0).unwrap(), ["group g 4 rollout"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_weighted_sum_names_what_is_missing_and_takes_long_outputs_down() {
    let scratch = scratch().await;
    let second = |id: &str, value: f64, valid: bool| {
        json!({"run_id": "r", "step": 3, "group_id": "g", "rollout_id": id, "score_id": format!("{id}-w"),
               "verifier": "w", "value": value, "is_valid": valid})
    };
    scratch
        .add(
            "scores",
            json!([second("a", 0.5, true), second("b", 0.5, false), second("d", -2.0, true), second("e", 1.0, true)]),
        )
        .await;
    let call = |id: &str, call: &str, kind: &str, output: &[i32]| {
        json!({"run_id": "r", "step": 3, "group_id": "g", "rollout_id": id, "call_id": call, "call_index": 0, "kind": kind,
               "prompt_token_ids": [1], "output_token_ids": output})
    };
    scratch
        .add(
            "calls",
            json!([
                call("a", "a0", "act", &[1, 2, 3]),
                call("d", "d0", "act", &[1]),
                call("d", "d1", "judge", &[1, 2, 3, 4])
            ]),
        )
        .await;
    let parameters = [("weights", r#"{"v": 1, "w": 0.5}"#), ("length_penalty", "0.25"), ("free_tokens", "1")];
    let session = scratch.session().await;
    let derived = reward(&session, "weighted_sum", &parameters).await.unwrap();
    assert_eq!(derived.notes, ["2 of 5 rows have no value (invalid_score:w: 1, no_score:w: 1)"]);
    let session = scratch.session().await;
    let rows = values(&session, "SELECT rollout_id, value FROM rewards ORDER BY 1").await;
    // a: 1 + 0.5 * 0.5 - 0.25 * 2; d: 0 - 0.5 * 2, its judge's tokens are not the policy's; e: 1 + 0.5.
    let expected = [("a", Some(0.75)), ("b", None), ("c", None), ("d", Some(-1.0)), ("e", Some(1.5))];
    assert_eq!(rows, expected.map(|(id, value)| (id.to_owned(), value)));
    let parts = session
        .collect("SELECT CAST(map_extract(components, 'w')[1] AS VARCHAR), CAST(map_extract(components, 'length_penalty')[1] AS VARCHAR), array_to_string(score_ids, ' ') FROM rewards WHERE rollout_id = 'a'")
        .await
        .unwrap();
    let texts: Vec<_> = (0..3).flat_map(|column| text_column(&parts, column).unwrap()).collect();
    assert_eq!(texts, ["0.25", "-0.5", "a-v a-w"]);
}

/// Makes a session work in batches of so many rows.
fn set_batch_size(session: &Session, rows: usize) {
    let state = session.context().state_ref();
    let mut state = state.write();
    let config = state.config().clone().with_batch_size(rows);
    *state.config_mut() = config;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_digest_is_the_same_for_any_threads_and_batch_sizes() {
    let scratch = scratch().await;
    reward(&scratch.session().await, "verifier_value", &[]).await.unwrap();
    let n = scratch.session().await.snapshot().n;
    let mut digests = Vec::new();
    for (threads, rows) in [(1, 8192), (4, 1), (3, 2)] {
        let options = SessionOptions { threads, ..SessionOptions::default() };
        let session = Session::open(&scratch.lake, Some(n), options).await.unwrap();
        set_batch_size(&session, rows);
        let credit = find_recipe("grpo").unwrap();
        let derived = run_credit(&session, &credit, "verifier_value", &DeriveOptions::default()).await.unwrap();
        digests.push(derived.content_digest);
    }
    digests.dedup();
    assert_eq!(digests.len(), 1, "{digests:?}");
    let all = scratch.session().await;
    let counts = values(&all, "SELECT name, CAST(count(*) AS DOUBLE) FROM credits_history GROUP BY name").await;
    assert_eq!(counts, [("grpo".to_owned(), Some(12.0))]);
}

#[tokio::test(flavor = "multi_thread")]
async fn several_verifiers_are_named_with_the_rollout() {
    let scratch = scratch().await;
    let other = json!([{"run_id": "r", "rollout_id": "c", "score_id": "x", "verifier": "u", "value": 1.0}]);
    scratch.add("scores", other).await;
    let session = scratch.session().await;
    let message = reward(&session, "verifier_value", &[]).await.unwrap_err().to_string();
    assert!(message.contains("rollout c of run r was scored by several verifiers (u, v)"), "{message}");
    assert_eq!(reward(&session, "verifier_value", &[("verifier", "v")]).await.unwrap().row_count, 5);
    let unknown = reward(&session, "verifier_value", &[("verifier", "x")]).await.unwrap_err().to_string();
    assert!(unknown.contains("the verifiers are u, v"), "{unknown}");
}

/// Each recipe is wrong in one way; nothing may be written for it.
#[rstest]
#[case::syntax("SELECT rollout_id,\n  1.0 AS\nFROM rollouts", "recipe mine, line 4, column")]
#[case::missing_column("SELECT rollout_id FROM rollouts", "column value is not returned; expected double")]
#[case::wrong_type(
    "SELECT rollout_id, 'x' AS value FROM rollouts",
    "column value is returned as string; expected double"
)]
#[case::unknown_column("SELECT rollout_id, nonsense AS value FROM rollouts", "nonsense")]
#[case::random("SELECT rollout_id, random() AS value FROM rollouts", "random")]
#[case::clock("SELECT rollout_id, CAST(now() AS DOUBLE) AS value FROM rollouts", "now")]
#[case::file("SELECT rollout_id, 1.0 AS value FROM '/etc/passwd'", "files and URLs")]
#[case::twice("SELECT 'a' AS rollout_id, 1.0 AS value FROM rollouts", "two rows for rollout a")]
#[case::unbound("SELECT rollout_id, $x AS value FROM rollouts", "$x")]
#[case::empty("SELECT rollout_id, 1.0 AS value FROM rollouts WHERE false", "no rows")]
#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_recipe_is_an_error_and_writes_nothing(#[case] sql: &str, #[case] expected: &str) {
    let scratch = scratch().await;
    let session = scratch.session().await;
    let text = format!("-- @kind reward\n{sql}");
    let outcome = match Recipe::parse("mine", &text) {
        Ok(recipe) => run_reward(&session, &recipe, &DeriveOptions::default()).await.map(|_| ()),
        Err(error) => Err(error),
    };
    let message = outcome.unwrap_err().to_string();
    assert!(message.contains(expected), "{message}");
    assert_eq!(scratch.lake.snapshot().await.unwrap().n, session.snapshot().n);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recipe_of_another_kind_an_unknown_run_and_an_unknown_reward_are_refused() {
    let scratch = scratch().await;
    let session = scratch.session().await;
    let kind = reward(&session, "grpo", &[]).await.unwrap_err().to_string();
    assert_eq!(kind, "recipe grpo makes a credit, not a reward; run it with `rollbook credit`");
    let run = DeriveOptions { run: Some("q".to_owned()), ..DeriveOptions::default() };
    let error = run_reward(&session, &find_recipe("verifier_value").unwrap(), &run).await.unwrap_err();
    assert_eq!(
        (error.kind(), error.to_string()),
        (ErrorKind::NotFound, "the lake has no run q; its runs are r".to_owned())
    );
    let grpo = find_recipe("grpo").unwrap();
    let error = run_credit(&session, &grpo, "verifier_value", &DeriveOptions::default()).await.unwrap_err();
    assert!(error.to_string().contains("no rewards yet"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_key_is_any_expression_over_rollouts() {
    let scratch = scratch().await;
    let key = [("group_key", "CASE WHEN rollout_id < 'c' THEN 'low' ELSE task_id END")];
    reward(&scratch.session().await, "verifier_value", &key).await.unwrap();
    let session = scratch.session().await;
    let groups = session.collect("SELECT DISTINCT group_id FROM rewards ORDER BY 1").await.unwrap();
    assert_eq!(text_column(&groups, 0).unwrap(), ["low", "t"]);
    // The credit compares within the reward's groups: 1 and 0 in `low`, 0 and 0 in `t`.
    run_credit(&session, &find_recipe("dr_grpo").unwrap(), "verifier_value", &options(&[])).await.unwrap();
    let rows = values(&scratch.session().await, "SELECT rollout_id, value FROM credits ORDER BY 1").await;
    let expected = [("a", 0.5), ("b", -0.5), ("c", 0.0), ("d", 0.0)];
    assert_eq!(rows, expected.map(|(id, value)| (id.to_owned(), Some(value))));
    let parameters: BTreeMap<_, _> = [("group_key".to_owned(), "rollout_id; x".to_owned())].into();
    let wrong = DeriveOptions { parameters, ..DeriveOptions::default() };
    assert!(run_reward(&session, &find_recipe("verifier_value").unwrap(), &wrong).await.is_err());
}
