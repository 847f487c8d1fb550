//! Every shipped reward and credit gives the same bits on one thread or eight, in batches of 3 rows or of thousands, however the rows
//! lie in the lake.

use serde_json::{Value, json};

use super::tests::options;
use super::*;
use crate::fixture::Scratch;
use crate::session::{Session, SessionOptions};

const ROLLOUTS: usize = 24;

/// Numbers that look random and are the same in every run.
struct Numbers(u64);

impl Numbers {
    fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }

    #[expect(clippy::cast_precision_loss, reason = "31 bits")]
    fn unit(&mut self) -> f64 {
        self.draw() as f64 / f64::from(1u32 << 31)
    }
}

/// The rows of one rollout, by table: two calls that extend each other, and a third that leaves the first elsewhere.
fn rows(rollout: usize) -> Vec<(&'static str, Vec<Value>)> {
    let mut numbers = Numbers(rollout as u64 + 1);
    let id = format!("r{rollout:02}");
    // Steps, and ragged groups within them: ties and one singleton included.
    let (step, group) = (rollout % 2, rollout % 5 + 10 * (rollout % 2));
    let group = if rollout == 9 { "alone".to_owned() } else { format!("g{group}") };
    let with = |more: Value| {
        let mut row =
            json!({"run_id": "run", "rollout_id": id, "step": step, "group_id": group}).as_object().unwrap().clone();
        row.extend(more.as_object().unwrap().clone());
        Value::Object(row)
    };
    let reward = match rollout % 6 {
        0 => 1.0,
        1 => 0.1,
        _ => numbers.unit() - 0.3,
    };
    let mut tables = vec![
        (
            "rollouts",
            vec![with(
                json!({"status": if rollout.is_multiple_of(7) { "truncated" } else { "completed" }, "revision": 0,
                "harness": format!("h{}", rollout % 2), "finished_at": 1_795_910_400_000_000_u64 + rollout as u64}),
            )],
        ),
        ("scores", vec![]),
        ("rewards", vec![with(json!({"name": "given", "value": reward}))]),
        ("calls", vec![]),
        ("token_signals", vec![]),
        ("environment_records", vec![]),
    ];
    for verifier in ["v", "w"] {
        let value = numbers.unit();
        tables[1].1.push(with(json!({"score_id": format!("{id}-{verifier}"), "verifier": verifier, "value": value})));
    }
    let mut context = vec![1];
    for (at, (name, parent)) in [("a", None), ("b", Some("a")), ("c", Some("a"))].into_iter().enumerate() {
        let tokens = 1 + usize::try_from(numbers.draw() % 5).unwrap();
        if name == "c" {
            context = vec![1, 2];
        }
        context.extend([3, 4]);
        let mut list = |low: f64| (0..tokens).map(|_| low * numbers.unit()).collect::<Vec<_>>();
        let call = format!("{id}-{name}");
        let logprobs = list(-2.0);
        let output: Vec<usize> = (0..tokens).map(|token| 100 + token).collect();
        tables[3].1.push(with(json!({
            "call_id": call, "call_index": at, "parent_call_id": parent.map(|parent| format!("{id}-{parent}")),
            "prompt_token_ids": context, "output_token_ids": output, "output_logprobs": logprobs,
            "prompt_exactness": "engine", "output_exactness": "engine", "logprobs_source": "engine",
        })));
        context.extend(output);
        for (signal, low) in [
            ("value", 1.0),
            ("trainer_logprob", -2.0),
            ("reference_logprob", -2.0),
            ("teacher_logprob", -2.0),
            ("sum_pi_squared", 1.0),
            ("token_reward", 0.2),
        ] {
            tables[4].1.push(with(json!({"call_id": call, "name": signal, "values": list(low)})));
        }
        if at > 0 {
            tables[2].1.push(with(json!({"name": "given", "call_id": call, "value": numbers.unit()})));
        }
        tables[5].1.push(with(json!({"record_id": call, "delivered_call_id": call, "call_index": at,
            "kind": "state", "state_digest": format!("s{}", rollout % 3 + at % 2), "content": "seen"})));
    }
    tables
}

/// A lake whose rows were added in that many parts, the last first.
async fn lake(parts: usize) -> Scratch {
    let scratch = Scratch::new().await;
    for part in (0..parts).rev() {
        let mut members: Vec<usize> = (0..ROLLOUTS).filter(|rollout| rollout % parts == part).collect();
        // The order of a file.
        members.sort_by_key(|rollout| {
            let row = rows(*rollout)[0].1[0].clone();
            (row["step"].as_u64(), row["group_id"].to_string(), *rollout)
        });
        for table in 0..6 {
            let name = rows(0)[table].0;
            let of_table = members.iter().flat_map(|rollout| rows(*rollout)[table].1.clone()).collect::<Vec<_>>();
            scratch.add(name, json!(of_table)).await;
        }
    }
    scratch
}

async fn session(scratch: &Scratch, threads: usize, batch_size: usize) -> Session {
    let options = SessionOptions { threads, ..SessionOptions::default() };
    let session = Session::open(&scratch.lake, None, options).await.unwrap();
    let state = session.context().state_ref();
    let config = state.read().config().clone().with_batch_size(batch_size);
    *state.write().config_mut() = config;
    session
}

/// What a recipe cannot do without, or what makes it do more.
fn parameters(recipe: &str) -> Vec<(&'static str, &'static str)> {
    match recipe {
        "weighted_sum" => vec![("weights", r#"{"v": 1, "w": 0.3}"#), ("length_penalty", "0.01")],
        "verifier_value" => vec![("verifier", "v")],
        "format_gate" => vec![("verifier", "w"), ("threshold", "0.5")],
        "range_map" => vec![("source_low", "0"), ("source_high", "1")],
        "soft_overlong" => vec![("max_length", "9"), ("buffer", "5")],
        "stop_properly" => vec![("coef", "0.5")],
        "remax" | "verl/remax" => vec![("is_greedy", "rollout_id IN ('r00', 'r01')")],
        "prime-rl/rae" => vec![("environment", "'e'")],
        "off_policy_mask" => vec![("threshold", "0.1")],
        "trl/off_policy_mask" => vec![("off_policy_mask_threshold", "0.1")],
        "advantage_clip" => vec![("low", "-0.2"), ("high", "0.4")],
        "advantage_balance" => vec![("advantage_balance", "0.3")],
        "verl/grpo_passk" => vec![("singleton", "null")],
        "verl-agent/gigpo" => vec![("enable_similarity", "true"), ("gamma", "0.9")],
        "returns" | "gae" => vec![("gamma", "0.97"), ("token_rewards", "token_reward")],
        "openrlhf/rloo" | "openrlhf/reinforce_baseline" => vec![("init_kl_coef", "0.1")],
        "slime/ppo" | "slime/reinforce_plus_plus_baseline" => {
            vec![("kl_coef", "0.1"), ("normalize_advantages", "true")]
        }
        "verl/gae" => vec![("gamma", "0.97"), ("lam", "0.9"), ("kl_coef", "0.1")],
        _ => vec![],
    }
}

async fn digest(session: &Session, recipe: &Recipe) -> Result<String> {
    let mut options = options(&parameters(recipe.name()));
    let derived = if recipe.kind() == Kind::Reward {
        options.reward = recipe.reads("reward").then(|| "given".to_owned());
        run_reward(session, recipe, &options).await?
    } else if recipe.reads("credit") {
        options.credit = Some("whole".to_owned());
        run_credit(session, recipe, None::<&str>, &options).await?
    } else {
        run_credit(session, recipe, "given", &options).await?
    };
    Ok(derived.content_digest)
}

#[tokio::test(flavor = "multi_thread")]
async fn every_recipe_gives_the_same_bits_whatever_runs_it() {
    let (one, many) = (lake(1).await, lake(4).await);
    for scratch in [&one, &many] {
        let grpo = find_recipe("grpo").unwrap();
        let named = DeriveOptions { name: Some("whole".to_owned()), ..DeriveOptions::default() };
        run_credit(&session(scratch, 1, 8192).await, &grpo, "given", &named).await.unwrap();
    }
    let sessions = [session(&one, 1, 8192).await, session(&many, 8, 3).await];
    let mut different = Vec::new();
    for recipe in catalog().unwrap().iter().filter(|recipe| recipe.kind() != Kind::Build) {
        let mut found = Vec::new();
        for session in &sessions {
            match digest(session, recipe).await {
                Ok(digest) => found.push(digest),
                Err(error) => different.push(format!("{}: {error}", recipe.name())),
            }
        }
        if found.windows(2).any(|pair| pair[0] != pair[1]) {
            different.push(format!("{}: {found:?}", recipe.name()));
        }
    }
    assert!(different.is_empty(), "{}", different.join("\n"));
}
