//! Credit recipes by system, against what those systems compute of the same rewards.

use std::collections::BTreeMap;
use std::path::PathBuf;

use rstest::rstest;
use serde_json::{Value, json};

use super::tests::{options, values};
use super::*;
use crate::fixture::Scratch;

/// A rollout with what a credit is computed from.
#[derive(Debug, Clone)]
struct Given {
    group: &'static str,
    value: Option<f64>,
    tokens: usize,
    rows: usize,
}

fn given(group: &'static str, value: f64) -> Given {
    Given { group, value: Some(value), tokens: 10, rows: 1 }
}

/// Makes a lake in which rollout r0, r1, … has the reward `r`, and as many calls that no other extends as it has rows; the first holds the tokens
/// that the others do not.
async fn lake(rollouts: &[Given]) -> Scratch {
    let scratch = Scratch::new().await;
    let mut sorted: Vec<(String, &Given)> =
        rollouts.iter().enumerate().map(|(at, given)| (format!("r{at}"), given)).collect();
    sorted.sort_by(|(a, x), (b, y)| (x.group, a).cmp(&(y.group, b)));
    let each = || sorted.iter().map(|(id, given)| (id.clone(), *given));
    let base = |id: &str, given: &Given| json!({"run_id": "r", "rollout_id": id, "step": 3, "group_id": given.group});
    let with = |mut row: Value, more: Value| {
        row.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        row
    };
    let rows: Vec<Value> = each().map(|(id, given)| with(base(&id, given), json!({"revision": 0}))).collect();
    scratch.add("rollouts", json!(rows)).await;
    let rewards = each().map(|(id, given)| with(base(&id, given), json!({"name": "r", "value": given.value})));
    scratch.add("rewards", json!(rewards.collect::<Vec<_>>())).await;
    let calls = each().flat_map(|(id, given)| {
        let row = base(&id, given);
        (0..given.rows).map(move |at| {
            let tokens = if at == 0 { given.tokens + 1 - given.rows } else { 1 };
            let call = json!({"call_id": format!("{id}-{at}"), "call_index": at, "prompt_token_ids": [at],
                              "output_token_ids": vec![7; tokens]});
            with(row.clone(), call)
        })
    });
    let calls: Vec<Value> = calls.collect();
    scratch.add("calls", json!(calls)).await;
    scratch
}

async fn credits(scratch: &Scratch, recipe: &str, parameters: &[(&str, &str)]) -> Vec<Option<f64>> {
    try_credits(scratch, recipe, parameters).await.unwrap()
}

async fn try_credits(scratch: &Scratch, recipe: &str, parameters: &[(&str, &str)]) -> Result<Vec<Option<f64>>> {
    let session = scratch.session().await;
    let derived = run_credit(&session, &find_recipe(recipe)?, "r", &options(parameters)).await?;
    let sql =
        format!("SELECT rollout_id, value FROM credits_history WHERE derivation_id = '{}'", derived.derivation_id);
    let mut rows = values(&scratch.session().await, &sql).await;
    rows.sort_by_key(|(id, _)| id[1..].parse::<usize>().unwrap());
    Ok(rows.into_iter().map(|(_, value)| value).collect())
}

fn assert_near(found: &[Option<f64>], expected: &[Option<f64>], tolerance: f64) {
    let near = |(found, expected): (&Option<f64>, &Option<f64>)| match (found, expected) {
        (Some(found), Some(expected)) => (found - expected).abs() <= tolerance * expected.abs().max(1.0),
        (found, expected) => found.is_none() && expected.is_none(),
    };
    assert_eq!(found.len(), expected.len());
    assert!(found.iter().zip(expected).all(near), "{found:?} is not {expected:?}");
}

/// Rewards 1, 0, 0, 0 in one group; 0.5 alone in another; 0.3 twice in a third. Lengths 200, 400, 100, 300 of the first.
fn table() -> Vec<Given> {
    let first = [(1.0, 200), (0.0, 400), (0.0, 100), (0.0, 300)];
    let mut rollouts: Vec<Given> = first.map(|(value, tokens)| Given { tokens, ..given("g", value) }).to_vec();
    rollouts.push(given("h", 0.5));
    rollouts.extend([given("i", 0.3), given("i", 0.3)]);
    rollouts
}

/// What each system makes of the table: winner, loser, singleton, equal rewards; figures from the systems' published formulas.
#[rstest]
#[case::verl("verl/grpo", 1.5, -0.5, Some(0.5))]
#[case::verl_vectorized("verl/grpo_vectorized", 1.5, -0.5, Some(0.5))]
#[case::verl_rloo("verl/rloo", 1.0, -1.0 / 3.0, Some(0.5))]
#[case::verl_rloo_vectorized("verl/rloo_vectorized", 1.0, -1.0 / 3.0, Some(0.0))]
#[case::verl_opo("verl/opo", 0.8, -0.2, Some(0.5))]
#[case::trl("trl/grpo", 1.4997, -0.4999, Some(0.0))]
#[case::trl_async("trl/async_grpo", 1.73205, -0.57735, Some(0.0))]
#[case::trl_rloo("trl/rloo", 1.0, -1.0 / 3.0, Some(0.0))]
#[case::skyrl("skyrl/grpo", 1.5, -0.5, Some(0.5))]
#[case::skyrl_rloo("skyrl/rloo", 1.0, -1.0 / 3.0, Some(0.0))]
#[case::skyrl_maxrl("skyrl/maxrl", 2.999_988, -0.999_996, Some(0.5))]
#[case::slime("slime/grpo", 1.5, -0.5, None)]
#[case::slime_baseline("slime/reinforce_plus_plus_baseline", 0.75, -0.25, Some(0.0))]
#[case::roll("roll/grpo", 1.5, -0.5, Some(0.0))]
#[case::openrlhf("openrlhf/group_norm", 1.5, -0.5, None)]
#[case::openrlhf_dr_grpo("openrlhf/dr_grpo", 0.75, -0.25, Some(0.0))]
#[case::openrlhf_rloo("openrlhf/rloo", 1.0, -1.0 / 3.0, None)]
#[case::areal("areal/grpo", 1.49997, -0.49999, Some(0.0))]
#[case::rllm("rllm/grpo", 1.73205, -0.57735, Some(0.5))]
#[case::rllm_rloo("rllm/rloo", 1.0, -1.0 / 3.0, Some(0.5))]
#[case::nemo("nemo-rl/grpo", 1.0, -0.57735, Some(0.0))]
#[case::prime_rl("prime-rl/grpo", 0.75, -0.25, Some(0.0))]
#[case::prime_rl_maxrl("prime-rl/maxrl", 3.0, -1.0, Some(0.0))]
#[case::ragen("ragen/mean_std", 1.5, -0.5, Some(0.0))]
#[case::ragen_mean("ragen/mean", 0.75, -0.25, Some(0.0))]
#[case::ragen_clip("ragen/asym_clip", 1.5, -0.5, Some(0.0))]
#[tokio::test(flavor = "multi_thread")]
async fn one_winner_of_four(
    #[case] recipe: &str,
    #[case] winner: f64,
    #[case] loser: f64,
    #[case] singleton: Option<f64>,
) {
    let scratch = lake(&table()).await;
    let found = credits(&scratch, recipe, &[]).await;
    let equal = Some(0.0);
    // The table has four to six digits.
    assert_near(&found, &[Some(winner), Some(loser), Some(loser), Some(loser), singleton, equal, equal], 6e-5);
}

/// The winner's group alone: what depends on the batch.
#[rstest]
#[case::gpg("verl/gpg", &[], 3.0, -1.0)]
#[case::passk("verl/grpo_passk", &[], 2.0, 0.0)]
#[case::passk_plain("verl/grpo_passk", &[("norm_adv_by_std_in_grpo", "false")], 1.0, 0.0)]
#[case::nemo("nemo-rl/reinforce_plus_plus", &[], 2.0, -0.5)]
#[case::openrlhf("openrlhf/reinforce_baseline", &[], 2.0, -0.5)]
#[case::verl("verl/reinforce_plus_plus_baseline", &[], 1.999, -0.49975)]
#[case::rllm("rllm/reinforce_plus_plus_baseline", &[], 1.73205, -0.57735)]
#[case::prpo("rllm/prpo", &[], 1.73205, -0.57735)]
#[case::trl_batch("trl/grpo", &[("scale_rewards", "batch")], 1.4997, -0.4999)]
#[case::trl_none("trl/grpo", &[("scale_rewards", "none")], 0.75, -0.25)]
#[case::areal_batch("areal/grpo", &[("mean_level", "batch"), ("std_level", "batch")], 1.49997, -0.49999)]
#[case::areal_mixed("areal/grpo", &[("std_level", "batch")], 1.49997, -0.49999)]
#[case::areal_none("areal/grpo", &[("std_level", "null"), ("reward_clip", "0.5")], 0.375, -0.125)]
#[case::roll_batch("roll/grpo", &[("norm_mean_type", "batch"), ("norm_std_type", "batch")], 1.5, -0.5)]
#[case::roll_running("roll/grpo", &[("norm_mean_type", "running"), ("norm_std_type", "running")], 1.5, -0.5)]
#[case::roll_mixed("roll/grpo", &[("norm_std_type", "batch"), ("reward_clip", "0.75")], 0.75, -0.5)]
#[case::roll_none("roll/grpo", &[("norm_mean_type", "null"), ("norm_std_type", "null")], 1.0, 0.0)]
#[case::reinforce("rllm/reinforce", &[], 1.0, 0.0)]
#[case::trl_rloo("trl/rloo", &[("normalize_advantages", "true"), ("reward_clip_range_high", "0.5")], 1.4996, -0.49985)]
#[tokio::test(flavor = "multi_thread")]
async fn one_winner_of_four_alone_in_its_batch(
    #[case] recipe: &str,
    #[case] parameters: &[(&str, &str)],
    #[case] winner: f64,
    #[case] loser: f64,
) {
    let scratch = lake(&table()[..4]).await;
    let found = credits(&scratch, recipe, parameters).await;
    let loser = Some(loser);
    assert_near(&found, &[Some(winner), loser, loser, loser], 1.1e-4);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_of_one_fails_where_verl_raises() {
    let scratch = lake(&table()).await;
    let error = try_credits(&scratch, "verl/grpo_passk", &[]).await.unwrap_err().to_string();
    assert!(error.contains("rollout \"r4\" is the only member of its group"), "{error}");
    let found = credits(&scratch, "verl/grpo_passk", &[("singleton", "null")]).await;
    assert_near(&found[4..], &[None, Some(0.0), Some(0.0)], 0.0);
}

/// Rows 1, 1, 1, 0, three of them of one rollout: the mean is 0.75 over rows, 0.5 over rollouts.
#[rstest]
#[case("verl/grpo_vectorized", &[("norm_adv_by_std_in_grpo", "false")])]
#[case("slime/grpo", &[("grpo_std_normalization", "false")])]
#[case("slime/reinforce_plus_plus_baseline", &[])]
#[case("areal/grpo", &[("std_level", "null")])]
#[tokio::test(flavor = "multi_thread")]
async fn rows_vote_where_the_system_counts_them(#[case] recipe: &str, #[case] parameters: &[(&str, &str)]) {
    let scratch = lake(&[Given { rows: 3, ..given("g", 1.0) }, given("g", 0.0)]).await;
    assert_near(&credits(&scratch, recipe, parameters).await, &[Some(0.25), Some(-0.75)], 1e-12);
    let corrected = [parameters, &[("votes", "rollout")]].concat();
    assert_near(&credits(&scratch, recipe, &corrected).await, &[Some(0.5), Some(-0.5)], 1e-12);
    let wrong = try_credits(&scratch, recipe, &[("votes", "token")]).await.unwrap_err().to_string();
    assert!(wrong.contains("votes is token: it must be row or rollout"), "{wrong}");
}

/// Groups of 4, 3 and 4 rows, all rewards of the second 5: its credits are 0, but -1.0909 where the whole batch is one group (mean 67 / 11).
#[tokio::test(flavor = "multi_thread")]
async fn slime_takes_a_ragged_batch_for_one_group() {
    let mut rollouts: Vec<Given> = [6.0, 6.0, 7.0, 7.0].map(|value| given("a", value)).to_vec();
    rollouts.extend([5.0; 3].map(|value| given("b", value)));
    rollouts.extend([6.0, 6.0, 7.0, 7.0].map(|value| given("c", value)));
    let scratch = lake(&rollouts).await;
    let fixed = [("grpo_std_normalization", "false"), ("n_samples_per_prompt", "4"), ("rollout_batch_size", "3")];
    assert_near(&credits(&scratch, "slime/grpo", &fixed).await[4..7], &[Some(5.0 - 67.0 / 11.0); 3], 1e-12);
    let corrected = [&fixed[..], &[("votes", "rollout")]].concat();
    for parameters in [&corrected[..], &fixed[..1]] {
        assert_near(&credits(&scratch, "slime/grpo", parameters).await[4..7], &[Some(0.0); 3], 0.0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollout_without_a_reward_has_no_credit_but_zero_in_trl() {
    let scratch = lake(&[given("g", 1.0), Given { value: None, ..given("g", 0.0) }, given("g", 0.0)]).await;
    for recipe in catalog().unwrap() {
        let needs_more =
            ["remax", "verl/remax", "prime-rl/rae"].contains(&recipe.name()) || recipe.name().contains("gdpo");
        let of_rollouts = recipe.text().contains("'rollout' AS level") && recipe.name() != "trl/normalize_then_sum";
        if recipe.kind() == Kind::Credit && of_rollouts && !needs_more && recipe.name().contains('/') {
            let found = credits(&scratch, recipe.name(), &[]).await;
            let is_trl = ["trl/grpo", "trl/async_grpo", "trl/rloo"].contains(&recipe.name());
            let expected = if is_trl { Some(0.0) } else { None };
            assert_eq!(found[1], expected, "{}", recipe.name());
            assert!(found[0] > found[2], "{}: {found:?}", recipe.name());
        }
    }
    let corrected = credits(&scratch, "trl/grpo", &[("unscored", "null")]).await;
    assert_eq!(corrected[1], None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_greedy_rollout_an_order_and_an_episode() {
    let scratch = lake(&[given("g", 1.0), given("g", 0.25), given("g", 0.5), given("h", 0.5)]).await;
    let greedy = [("is_greedy", "rollout_id = 'r2'")];
    assert_near(&credits(&scratch, "remax", &greedy).await, &[Some(0.5), Some(-0.25), None, None], 1e-12);
    // In the order of ids by 100 - their number: 0.5, 0.5, 0.25, 1; the average moves half way each time.
    let order = [
        ("decay", "0.5"),
        ("environment", "'e'"),
        ("agent", "'a'"),
        ("position", "100 - CAST(substr(rollout_id, 2) AS BIGINT)"),
    ];
    let expected = [Some(1.0 - 0.3125), Some(0.25 - 0.375), Some(0.5 - 0.25), Some(0.5)];
    assert_near(&credits(&scratch, "prime-rl/rae", &order).await, &expected, 1e-12);
    let error = try_credits(&scratch, "prime-rl/rae", &[]).await.unwrap_err().to_string();
    assert!(error.contains("rollout r0 of run r has a reward and no position"), "{error}");
    // r1 and r2 work in one episode, r0 and r3 plan in group g.
    let episodes = [
        ("group_key", "'g'"),
        ("agent", "CASE WHEN rollout_id IN ('r1', 'r2') THEN 'worker' ELSE 'planner' END"),
        ("episode", "'one'"),
        ("episode_agents", "[\"worker\"]"),
    ];
    let expected = [Some(0.25), Some(-0.125), Some(0.125), Some(-0.25)];
    assert_near(&credits(&scratch, "prime-rl/hierarchical", &episodes).await, &expected, 1e-12);
}

/// Two verifiers, two groups of two, one member each: every z is plus or minus one over the square root of two, or 0 where the scores agree.
#[tokio::test(flavor = "multi_thread")]
async fn several_scores_are_normalized_one_by_one() {
    let scratch = lake(&[given("g", 1.0), given("g", 0.0), given("h", 1.0), given("h", 1.0)]).await;
    let score = |id: &str, verifier: &str, value: f64| json!({"run_id": "r", "rollout_id": id, "score_id": format!("{id}-{verifier}"), "verifier": verifier, "value": value});
    let scores = [("r0", 1.0, 0.0), ("r1", 0.0, 5.0), ("r2", 1.0, 1.0), ("r3", 1.0, 3.0)];
    let scores = scores.iter().flat_map(|(id, a, b)| [score(id, "a", *a), score(id, "b", *b)]);
    scratch.add("scores", json!(scores.collect::<Vec<_>>())).await;
    // z_a = s, -s, 0, 0 and z_b = -s, s, -s, s with s = 1 / sqrt(2): weighted 1 and 0.5 their sums are s * (0.5, -0.5, -0.5, 0.5), of mean 0 and
    // sample standard deviation s * sqrt(1 / 3).
    let weights = r#"{"a": 1, "b": 0.5}"#;
    let root = 3f64.sqrt() / 2.0;
    let expected = [Some(root), Some(-root), Some(-root), Some(root)];
    let found = credits(&scratch, "trl/normalize_then_sum", &[("reward_weights", weights)]).await;
    assert_near(&found, &expected, 1e-3);
    // Over 40 tokens the sample variance is s^2 * 10 / 39.
    let root = (39f64 / 40.0).sqrt();
    let found = credits(&scratch, "verl/gdpo", &[("gdpo_reward_weights", weights)]).await;
    assert_near(&found, &[Some(root), Some(-root), Some(-root), Some(root)], 1e-5);
    // Without weights and left out one by one: of two members the other has no spread, so z = r - the other.
    // a: 1, -1, 0, 0; b: -5, 5, -2, 2; sums -4, 4, -2, 2 of sample standard deviation sqrt(40 / 3).
    let std = (40f64 / 3.0).sqrt();
    let found = credits(&scratch, "nemo-rl/gdpo", &[]).await;
    assert_near(&found, &[-4.0, 4.0, -2.0, 2.0].map(|sum| Some(sum / std)), 1e-9);
    let unknown = try_credits(&scratch, "verl/gdpo", &[("gdpo_reward_weights", r#"{"c": 1}"#)]).await.unwrap_err();
    assert!(unknown.to_string().contains("no score comes from verifier c"), "{unknown}");
}

/// A file of the shared data, where it lies beside the repository or where `ROLLBOOK_SHARED` says.
fn shared(path: &str) -> Option<Value> {
    let beside = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared"));
    let root = std::env::var_os("ROLLBOOK_SHARED").map_or(beside, PathBuf::from);
    let text = std::fs::read_to_string(root.join("data").join(path)).ok()?;
    Some(serde_json::from_str(&text).unwrap())
}

/// What verl's own functions gave, at the first trained token of each row.
#[tokio::test(flavor = "multi_thread")]
async fn verl_gives_the_same() {
    let Some(golden) = shared("verl/generated_golden.json") else {
        println!("skipped: no shared data beside the repository; set ROLLBOOK_SHARED");
        return;
    };
    let rows = |name: &str| golden["inputs"][name].as_array().unwrap().clone();
    let numbers = |row: &Value| row.as_array().unwrap().iter().map(|n| n.as_f64().unwrap()).collect::<Vec<_>>();
    let masks: Vec<Vec<f64>> = rows("response_mask").iter().map(numbers).collect();
    let rewards: Vec<f64> = rows("token_level_rewards").iter().map(|row| numbers(row).iter().sum()).collect();
    let groups = rows("index");
    let rollouts: Vec<Given> = groups
        .iter()
        .zip(rewards.iter().zip(&masks))
        .map(|(group, (value, mask))| Given {
            group: ["g0", "g1", "g2"].into_iter().find(|known| group == known).unwrap(),
            value: Some(*value),
            tokens: mask.iter().filter(|m| **m == 1.0).count(),
            rows: 1,
        })
        .collect();
    let scratch = lake(&rollouts).await;
    let plain: &[(&str, &str)] = &[("norm_adv_by_std_in_grpo", "false")];
    let cases = [
        ("grpo", "verl/grpo", &[][..]),
        ("grpo(norm_adv_by_std=False)", "verl/grpo", plain),
        ("grpo_vectorized", "verl/grpo_vectorized", &[]),
        ("rloo", "verl/rloo", &[]),
        ("rloo_vectorized", "verl/rloo_vectorized", &[]),
        ("opo", "verl/opo", &[]),
        ("gpg", "verl/gpg", &[]),
        ("reinforce_plus_plus_baseline", "verl/reinforce_plus_plus_baseline", &[]),
        ("grpo_passk(without g2)", "verl/grpo_passk", &[("singleton", "null")]),
    ];
    for (entry, recipe, parameters) in cases {
        let expected = golden["advantages"][entry]["advantages"].as_array().unwrap().iter().map(numbers);
        let mut expected: Vec<Vec<f64>> = expected.collect();
        let mut found = credits(&scratch, recipe, parameters).await;
        let mut masks = masks.clone();
        if entry.contains("without g2") {
            let alone = rollouts.iter().position(|rollout| rollout.group == "g2").unwrap();
            found.remove(alone);
            masks.remove(alone);
        }
        assert_eq!(expected.len(), found.len(), "{entry}");
        for (row, (credit, mask)) in expected.drain(..).zip(found.iter().zip(&masks)) {
            for (token, _) in row.iter().zip(mask).filter(|(_, mask)| **mask == 1.0) {
                let near = credit.is_some_and(|credit| (credit - token).abs() <= 1e-9);
                assert!(near, "{entry}: {credit:?} is not {token}");
            }
        }
    }
}

/// What ART gave: advantages of the trajectories that were kept, and those of the packed batch in single precision.
#[tokio::test(flavor = "multi_thread")]
async fn art_gives_the_same() {
    let Some(golden) = shared("art/tokenize_pack_expected.json") else {
        println!("skipped: no shared data beside the repository; set ROLLBOOK_SHARED");
        return;
    };
    for (name, case) in golden.as_object().unwrap().iter().filter(|(_, case)| case["rewards"].is_array()) {
        let mut rollouts = Vec::new();
        for (group, rewards) in ["g", "h"].into_iter().zip(case["rewards"].as_array().unwrap()) {
            rollouts.extend(rewards.as_array().unwrap().iter().map(|value| Given {
                tokens: 6,
                // A row fewer would not change the credit: its histories share it.
                rows: 1,
                ..given(group, value.as_f64().unwrap())
            }));
        }
        let scratch = lake(&rollouts).await;
        let scale = case["scale_rewards"].to_string();
        let found = credits(&scratch, "art/grpo", &[("scale_rewards", scale.as_str())]).await;
        let mut kept: Vec<f64> = found.into_iter().flatten().collect();
        let mut expected =
            distinct(case["tokenized"].as_array().unwrap().iter().map(|one| one["advantage"].as_f64().unwrap()));
        kept.sort_by(f64::total_cmp);
        kept.dedup();
        assert_close(name, &kept, &expected, 1e-12);
        let balance = case["kwargs"]["advantage_balance"].as_f64().unwrap_or(0.0).to_string();
        let packed = [("scale_rewards", scale.as_str()), ("packed", "true"), ("advantage_balance", balance.as_str())];
        let found = distinct(credits(&scratch, "art/grpo", &packed).await.into_iter().flatten());
        let packed =
            case["packed"]["advantages"].as_array().unwrap().iter().flat_map(|row| row.as_array().unwrap().clone());
        let packed = packed.map(|advantage| advantage.as_f64().unwrap()).filter(|advantage| *advantage != 0.0);
        expected = distinct(packed);
        assert_close(name, &found, &expected, 1e-6);
    }
}

fn distinct(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.dedup_by(|a, b| (*a - *b).abs() < 1e-9);
    values
}

fn assert_close(name: &str, found: &[f64], expected: &[f64], tolerance: f64) {
    assert_eq!(found.len(), expected.len(), "{name}: {found:?} is not {expected:?}");
    let near =
        found.iter().zip(expected).all(|(found, expected)| (found - expected).abs() <= tolerance * expected.abs());
    assert!(near, "{name}: {found:?} is not {expected:?}");
}

/// The table of the catalog names every preset with formula, source and difference.
#[test]
fn every_preset_says_where_it_comes_from_and_how_it_differs() {
    let mut names: BTreeMap<String, usize> = BTreeMap::new();
    for recipe in catalog().unwrap() {
        if recipe.name().contains('/') && presets::PRESETS.iter().any(|(name, _)| *name == recipe.name()) {
            let said = [recipe.formula(), recipe.source(), recipe.differs()];
            assert!(said.iter().all(Option::is_some), "{} leaves something unsaid: {said:?}", recipe.name());
        }
        *names.entry(recipe.name().to_owned()).or_default() += 1;
    }
    assert!(names.values().all(|count| *count == 1), "{names:?}");
}
