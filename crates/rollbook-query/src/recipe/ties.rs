//! What a recipe may make of the order of rows: nothing that ties leave open.

use rstest::rstest;
use serde_json::{Value, json};

use crate::fixture::Scratch;
use crate::recipe::derive::rows_of;
use crate::recipe::{DeriveOptions, Recipe, run_reward};
use crate::session::{Session, SessionOptions};

/// Rollouts a to d; b and c have the same value. Files come in the order given.
async fn scratch(order: &[&str]) -> Scratch {
    let scratch = Scratch::new().await;
    for id in order {
        let value = match *id {
            "a" => 1,
            "b" | "c" => 2,
            _ => 3,
        };
        scratch.add("rollouts", json!([{"run_id": "r", "rollout_id": id, "step": 1, "revision": 0}])).await;
        let score = json!([{"run_id": "r", "rollout_id": id, "score_id": id, "verifier": "v", "value": value}]);
        scratch.add("scores", score).await;
    }
    scratch
}

fn recipe(sql: &str) -> Recipe {
    Recipe::parse("mine", &format!("-- @kind reward\n{sql}")).unwrap()
}

/// A function over an order that does not tell b and c apart, and over one that does.
#[rstest]
#[case("row_number()", "value", "row_number() needs an ORDER BY that tells all rows apart: 2 rows have (2.0)")]
#[case("lag(value)", "value", "lag() needs an ORDER BY")]
#[case("first_value(rollout_id)", "value", "first_value() needs an ORDER BY")]
#[case("pack(1, 10)", "value DESC", "pack() needs an ORDER BY")]
#[case("sum(value)", "value ROWS UNBOUNDED PRECEDING", "sum() needs an ORDER BY")]
#[case("array_agg(rollout_id)", "value", "array_agg() needs an ORDER BY")]
#[tokio::test(flavor = "multi_thread")]
async fn a_window_that_splits_ties_is_refused(#[case] function: &str, #[case] order: &str, #[case] expected: &str) {
    let scratch = scratch(&["a", "b", "c", "d"]).await;
    let with = |order: &str| {
        recipe(&format!(
            "SELECT rollout_id, CASE WHEN x IS NOT NULL THEN 1.0 END AS value\nFROM (SELECT *, {function} OVER (ORDER BY {order}) AS x FROM scores)"
        ))
    };
    let error = run_reward(&scratch.session().await, &with(order), &DeriveOptions::default()).await.unwrap_err();
    let message = error.to_string();
    assert!(message.contains("mine, line 3, column") && message.contains(expected), "{message}");
    let unique = match order.split_once(' ') {
        Some((first, rest)) if rest.starts_with("ROWS") => format!("{first}, rollout_id {rest}"),
        _ => format!("{order}, rollout_id"),
    };
    run_reward(&scratch.session().await, &with(&unique), &DeriveOptions::default()).await.unwrap();
}

/// Without any order.
#[rstest]
#[case("SELECT rollout_id, row_number() OVER () AS value FROM scores", "row_number() needs an ORDER BY here")]
#[case(
    "SELECT rollout_id, pack(1, 2) OVER (PARTITION BY run_id) AS value FROM scores",
    "pack() needs an ORDER BY here"
)]
#[case("SELECT rollout_id, value FROM scores LIMIT 2", "LIMIT needs an ORDER BY here")]
#[case("SELECT rollout_id, value FROM (SELECT * FROM scores ORDER BY value) LIMIT 2", "LIMIT needs an ORDER BY here")]
#[case(
    "SELECT min(rollout_id) AS rollout_id, array_agg(value)[1] AS value FROM scores",
    "array_agg()[n] or nth_value() needs an ORDER BY here"
)]
#[case(
    "SELECT min(rollout_id) AS rollout_id, array_length(array_agg(value)) AS value FROM scores",
    "array_agg() needs an ORDER BY here"
)]
#[case("SELECT DISTINCT ON (value) rollout_id, value FROM scores", "DISTINCT ON needs an ORDER BY here")]
#[case("SELECT rollout_id, (SELECT value FROM scores LIMIT 1) AS value FROM scores", "LIMIT needs an ORDER BY here")]
#[tokio::test(flavor = "multi_thread")]
async fn what_has_no_order_is_refused_when_it_is_planned(#[case] sql: &str, #[case] expected: &str) {
    let scratch = scratch(&["a", "b"]).await;
    let error = run_reward(&scratch.session().await, &recipe(sql), &DeriveOptions::default()).await.unwrap_err();
    let message = error.to_string();
    assert!(message.contains("recipe mine") && message.contains(expected), "{message}");
}

/// What ties is decided by the rows' content, so the order of files changes nothing.
#[rstest]
#[case("SELECT rollout_id, value FROM scores ORDER BY value LIMIT 2", &["a", "b"])]
#[case("SELECT rollout_id, value FROM scores ORDER BY value DESC LIMIT 2", &["d", "b"])]
#[case("SELECT first_value(rollout_id ORDER BY value DESC) AS rollout_id, 1.0 AS value FROM scores WHERE value < 3", &["b"])]
#[case("SELECT array_agg(rollout_id ORDER BY value)[3] AS rollout_id, 1.0 AS value FROM scores", &["c"])]
#[case("SELECT DISTINCT ON (value) rollout_id, value FROM scores ORDER BY value", &["a", "b", "d"])]
#[tokio::test(flavor = "multi_thread")]
async fn ties_are_settled_by_content(#[case] sql: &str, #[case] expected: &[&str]) {
    for order in [["a", "b", "c", "d"], ["d", "c", "b", "a"], ["c", "a", "d", "b"]] {
        let scratch = scratch(&order).await;
        for threads in [1, 4] {
            let options = SessionOptions { threads, ..SessionOptions::default() };
            let session = Session::open(&scratch.lake, None, options).await.unwrap();
            let batches = rows_of(&session, &recipe(sql), None, &DeriveOptions::default()).await.unwrap();
            let mut ids = crate::recipe::text_column(
                &batches
                    .iter()
                    .map(|batch| batch.project(&[batch.schema().index_of("rollout_id").unwrap()]).unwrap())
                    .collect::<Vec<_>>(),
                0,
            )
            .unwrap();
            ids.sort();
            let mut expected = expected.to_vec();
            expected.sort_unstable();
            assert_eq!(ids, expected, "{order:?}");
        }
    }
}

/// The shipped views pick one of several rows themselves; doubled ids in the record are not a recipe's fault.
#[tokio::test(flavor = "multi_thread")]
async fn a_view_over_doubled_rows_is_no_tie() {
    let scratch = Scratch::new().await;
    let rollout = json!({"run_id": "r", "rollout_id": "a", "step": 1, "revision": 0});
    scratch.add("rollouts", json!([rollout, rollout])).await;
    let score: Value = json!({"run_id": "r", "rollout_id": "a", "score_id": "s", "verifier": "v", "value": 1});
    scratch.add("scores", json!([score, score])).await;
    let recipe = recipe(
        "SELECT DISTINCT s.rollout_id, s.value FROM scores AS s JOIN rollouts AS r ON r.rollout_id = s.rollout_id",
    );
    let rows = rows_of(&scratch.session().await, &recipe, None, &DeriveOptions::default()).await;
    // Two equal rollouts are two rows of the join that the engine makes; what matters is that no tie is reported.
    if let Err(error) = rows {
        assert!(!error.to_string().contains("ORDER BY"), "{error}");
    }
}
