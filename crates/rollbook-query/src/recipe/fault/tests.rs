//! Errors of recipes, and where they point.

use rstest::rstest;
use serde_json::json;

use crate::fixture::Scratch;
use crate::recipe::{DeriveOptions, Recipe, run_reward};

async fn message(text: &str, group_key: Option<&str>) -> String {
    let scratch = Scratch::new().await;
    scratch.add("rollouts", json!([{"run_id": "r", "rollout_id": "a", "step": 1, "revision": 0}])).await;
    scratch
        .add("scores", json!([{"run_id": "r", "rollout_id": "a", "score_id": "s", "verifier": "v", "value": 1}]))
        .await;
    let recipe = match Recipe::parse("mine", text) {
        Ok(recipe) => recipe,
        Err(error) => return error.to_string(),
    };
    let parameters = group_key.map(|key| ("group_key".to_owned(), key.to_owned())).into_iter().collect();
    let options = DeriveOptions { parameters, ..DeriveOptions::default() };
    run_reward(&scratch.session().await, &recipe, &options).await.unwrap_err().to_string()
}

/// Line 1 is the header; the SELECT begins on line 2.
#[rstest]
#[case::column(
    "SELECT rollout_id,\n  valeu AS value\nFROM scores",
    "line 3, column 3: there is no column valeu; did you mean value?"
)]
#[case::of_a_table(
    "SELECT s.rollout_id,\n  s.valeu AS value\nFROM scores AS s",
    "line 3, column 3: there is no column s.valeu; did you mean value?"
)]
#[case::table("SELECT rollout_id, value\nFROM socres", "line 3, column 6: there is no table socres")]
#[case::function(
    "SELECT rollout_id,\n  sqaure(value) AS value FROM scores",
    "line 3, column 3: there is no function sqaure"
)]
#[case::types("SELECT rollout_id,\n  value + score_id AS value FROM scores", "double + string cannot be computed")]
#[case::argument(
    "SELECT rollout_id,\n  abs(verifier) AS value FROM scores",
    "line 3, column 3: abs does not take (string)"
)]
#[case::own_function(
    "SELECT rollout_id,\n  grpo(verifier, rollout_id) OVER () AS value FROM scores",
    "line 3, column 3: grpo: value must be a number"
)]
#[case::named_argument(
    "SELECT rollout_id,\n  grpo(value, rollout_id, epsilon => 1) OVER () AS value FROM scores",
    "line 3, column 3: grpo has no argument epsilon"
)]
#[case::type_name(
    "SELECT rollout_id, CAST(value AS\n  FLAOT) AS value FROM scores",
    "line 3, column 3: there is no type FLAOT"
)]
#[case::group(
    "SELECT rollout_id,\n  value FROM scores GROUP BY rollout_id",
    "line 3, column 3: column value stands neither in GROUP BY nor"
)]
#[case::ambiguous(
    "SELECT a.rollout_id,\n  value FROM scores AS a JOIN scores AS b ON a.score_id = b.score_id",
    "line 3, column 3: column value stands in several tables"
)]
#[case::parameter(
    "SELECT rollout_id,\n  $scale * value AS value FROM scores",
    "line 3, column 3: parameter $scale has no value"
)]
#[case::volatile("SELECT rollout_id,\n  random() AS value FROM scores", "line 3, column 3: random() is refused here")]
#[case::syntax("SELECT rollout_id,\n  value value value FROM scores", "line 3, column 15: ")]
#[case::returned_type(
    "SELECT rollout_id,\n  verifier AS value FROM scores",
    "line 3, column 15: column value is returned as string; expected double"
)]
#[case::returned_name(
    "SELECT rollout_id, value,\n  1 AS valeu FROM scores",
    "line 3, column 8: a reward has no column valeu"
)]
#[case::not_returned(
    "\nSELECT rollout_id FROM scores",
    "line 3, column 1: column value is not returned; expected double"
)]
#[tokio::test(flavor = "multi_thread")]
async fn an_error_points_at_line_and_column(#[case] sql: &str, #[case] expected: &str) {
    let found = message(&format!("-- @kind reward\n{sql}"), None).await;
    assert!(found.starts_with("recipe mine") && found.contains(expected), "{found}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_in_a_check_points_into_the_comment() {
    let text = "-- @kind reward\n-- @check too few\n--   SELECT 1 FROM scores\n--   WHERE valeu > 1\nSELECT rollout_id, value FROM scores";
    let found = message(text, None).await;
    assert!(found.starts_with("recipe mine, line 4, column 12: there is no column valeu"), "{found}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_in_a_parameters_expression_names_the_parameter() {
    let found = message("-- @kind reward\nSELECT rollout_id, value FROM scores", Some("tsak_id")).await;
    assert!(
        found.starts_with("recipe mine, parameter `group_key`: there is no column tsak_id; did you mean task_id?"),
        "{found}"
    );
}
