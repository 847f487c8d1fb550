//! Comparisons over a hand-made run; expected figures are worked out by hand.

use serde_json::{Value, json};

use super::*;
use crate::build::{BuildOptions, run_build};
use crate::fixture::Scratch;
use crate::recipe::{DeriveOptions, Recipe, find_recipe, run_credit, run_reward};

/// Five rollouts of one group, scored 0, 1, 2, 3, 4; each has a call of two output tokens.
async fn scratch() -> Scratch {
    let scratch = Scratch::new().await;
    let ids = ["a", "b", "c", "d", "e"];
    let rollouts: Vec<Value> = ids
        .iter()
        .map(|id| json!({"run_id": "r", "rollout_id": id, "step": 1, "group_id": "g", "revision": 0}))
        .collect();
    scratch.add("rollouts", json!(rollouts)).await;
    let scores: Vec<Value> = ids
        .iter()
        .enumerate()
        .map(|(value, id)| {
            json!({"run_id": "r", "step": 1, "group_id": "g", "rollout_id": id, "score_id": id, "verifier": "v", "value": value})
        })
        .collect();
    scratch.add("scores", json!(scores)).await;
    let calls: Vec<Value> = ids
        .iter()
        .map(|id| {
            json!({"run_id": "r", "step": 1, "group_id": "g", "rollout_id": id, "call_id": format!("{id}0"), "call_index": 0,
                   "kind": "act", "prompt_token_ids": [1], "output_token_ids": [2, 3], "output_logprobs": [-0.5, -0.25],
                   "prompt_exactness": "engine", "output_exactness": "engine", "logprobs_source": "engine"})
        })
        .collect();
    scratch.add("calls", json!(calls)).await;
    run_reward(&scratch.session().await, &find_recipe("verifier_value").unwrap(), &DeriveOptions::default())
        .await
        .unwrap();
    scratch
}

async fn credit(scratch: &Scratch, name: &str, recipe: &str) {
    let recipe = Recipe::parse(name, &format!("-- @kind credit\n-- @param shift double = 0\n{recipe}")).unwrap();
    run_credit(&scratch.session().await, &recipe, "verifier_value", &DeriveOptions::default()).await.unwrap();
}

const OWN: &str = "SELECT run_id, rollout_id, ";

async fn compared(scratch: &Scratch, a: &str, b: &str) -> Comparison {
    compare(&scratch.session().await, a, b, &CompareOptions::default()).await.unwrap()
}

/// A: -2 -1 0 1 2. B: none -1 1 -1 4 for a to e.
#[tokio::test(flavor = "multi_thread")]
async fn credits_of_rollouts_are_paired_and_counted() {
    let scratch = scratch().await;
    credit(&scratch, "one", &format!("{OWN} value - 2 AS value FROM reward")).await;
    credit(
        &scratch,
        "two",
        &format!("{OWN} CASE rollout_id WHEN 'b' THEN -1.0 WHEN 'c' THEN 1.0 WHEN 'd' THEN -1.0 WHEN 'e' THEN 4.0 END AS value FROM reward"),
    )
    .await;
    let found = compared(&scratch, "one", "two").await;
    assert_eq!((found.kind, found.level), ("credit", "rollout"));
    let measure = &found.measures[0];
    assert_eq!((measure.both, measure.only_a, measure.only_b), (4, 1, 0));
    assert_eq!((measure.equal, measure.sign_flips, measure.one_is_zero), (1, 1, 1));
    assert_eq!(measure.mean, Some((0.5, 0.75)));
    assert_eq!((measure.mean_difference, measure.max_difference), (Some(1.25), Some(2.0)));
    // Couples (b c) (b e) (c e) (d e) agree, (c d) disagrees, (b d) is tied in B: 3 / sqrt(6 · 5).
    assert!((measure.kendall.unwrap() - 3.0 / 30.0_f64.sqrt()).abs() < 1e-12, "{measure:?}");
    // Ranks 1 2 3 4 against 1.5 3 1.5 4.
    assert!((measure.spearman.unwrap() - 3.0 / 22.5_f64.sqrt()).abs() < 1e-12, "{measure:?}");
    let ids: Vec<(&str, f64, f64)> =
        measure.rollouts.iter().map(|one| (one.rollout_id.as_deref().unwrap(), one.a, one.b)).collect();
    assert_eq!(ids.len(), 3);
    let mut largest = ids[..2].to_vec();
    largest.sort_by(|x, y| x.0.cmp(y.0));
    assert_eq!(largest, [("d", 1.0, -1.0), ("e", 2.0, 4.0)]);
    assert_eq!(ids[2], ("c", 0.0, 1.0));
    let names: Vec<&str> = found.settings.iter().map(|setting| setting.name.as_str()).collect();
    assert_eq!(names, ["recipe", "snapshot"]);
}

/// The rollout's value stands against each of its tokens: -2 against -2 and 0, and so on.
#[tokio::test(flavor = "multi_thread")]
async fn a_credit_of_rollouts_is_spread_over_the_tokens_of_another() {
    let scratch = scratch().await;
    credit(&scratch, "one", &format!("{OWN} value - 2 AS value FROM reward")).await;
    credit(
        &scratch,
        "two",
        "SELECT r.run_id, r.rollout_id, c.call_id, 'token' AS level, NULL AS value, [r.value - 2, CASE WHEN r.value > 0 THEN 0.0 END] AS token_values \
         FROM reward AS r JOIN calls AS c ON c.run_id = r.run_id AND c.rollout_id = r.rollout_id",
    )
    .await;
    let found = compared(&scratch, "one", "two").await;
    assert_eq!((found.level, found.notes.len()), ("token", 1));
    let measure = &found.measures[0];
    assert_eq!((measure.both, measure.only_a, measure.equal), (9, 1, 6));
    assert_eq!(measure.one_is_zero, 3);
    let item = &measure.items[0];
    assert_eq!((item.rollout_id.as_deref(), item.call_id.as_deref(), item.position), (Some("e"), Some("e0"), Some(1)));
    assert_eq!((item.a, item.b), (2.0, 0.0));
    assert_eq!(measure.rollouts[0].rollout_id.as_deref(), Some("e"));
    assert_eq!((measure.rollouts[0].a, measure.rollouts[0].b), (2.0, 1.0));
}

#[tokio::test(flavor = "multi_thread")]
async fn builds_are_paired_by_trained_token_with_their_weights() {
    let scratch = scratch().await;
    credit(&scratch, "one", &format!("{OWN} value - 2 AS value FROM reward")).await;
    credit(&scratch, "half", &format!("{OWN} CASE WHEN rollout_id <> 'a' THEN value - 2 END AS value FROM reward"))
        .await;
    let merged = find_recipe("merged").unwrap();
    for (credit, name) in [("one", "all"), ("half", "fewer")] {
        let options = BuildOptions { name: Some(name.to_owned()), ..BuildOptions::new(4) };
        run_build(&scratch.session().await, &merged, credit, &options).await.unwrap();
    }
    let found = compared(&scratch, "all", "fewer").await;
    assert_eq!((found.kind, found.level), ("build", "token"));
    let [advantage, weight] = found.measures.as_slice() else { panic!("two measures") };
    assert_eq!((advantage.both, advantage.only_a, advantage.equal), (8, 2, 8));
    // 1 / (5 · 2) against 1 / (4 · 2); by rollout 1/5 against 1/4, and a's 1/5 against nothing.
    assert_eq!((weight.name, weight.equal), ("loss_weight", 0));
    let first = &weight.rollouts[0];
    assert_eq!(first.rollout_id.as_deref(), Some("a"));
    assert!((first.a - 0.2).abs() < 1e-12 && first.b == 0.0);
    assert!((weight.rollouts[1].b - 0.25).abs() < 1e-12);
    assert!(found.settings.iter().any(|setting| setting.name == "from: recipe"), "{:?}", found.settings);
}

#[tokio::test(flavor = "multi_thread")]
async fn names_that_do_not_fit_are_told_apart() {
    let scratch = scratch().await;
    credit(&scratch, "verifier_value", &format!("{OWN} value AS value FROM reward")).await;
    let session = scratch.session().await;
    let message = |a: &'static str, b: &'static str, kind: Option<&str>| {
        let options = CompareOptions { kind: kind.map(str::to_owned), ..CompareOptions::default() };
        let session = session.clone();
        async move { compare(&session, a, b, &options).await.unwrap_err().to_string() }
    };
    assert!(message("verifier_value", "verifier_value", None).await.contains("say which with --kind"));
    assert!(
        message("nope", "verifier_value", Some("credit")).await.contains("there are credit verifier_value, reward")
    );
    assert!(message("x", "y", Some("rewards")).await.contains("there is no kind rewards"));
    let options = CompareOptions { kind: Some("reward".to_owned()), ..CompareOptions::default() };
    let same = compare(&session, "verifier_value", "verifier_value", &options).await.unwrap();
    assert_eq!((same.measures[0].equal, same.measures[0].kendall, same.settings.len()), (5, Some(1.0), 0));
    assert!(same.measures[0].rollouts.is_empty());
}
