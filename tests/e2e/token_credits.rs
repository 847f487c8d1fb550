//! Credits of calls and tokens over rollouts made up here; what they must be is worked out by hand beside each.

use rollbook_tests::Scratch;
use serde_json::{Value, json};

const LAKE: &str = "lake";

/// A lake whose tables have these rows; keys that all rows share are added.
fn lake(tables: &[(&str, Vec<Value>)]) -> Scratch {
    let scratch = Scratch::new();
    for (table, rows) in tables {
        let complete = |row: &Value| {
            let mut row = row.as_object().unwrap().clone();
            row.entry("run_id").or_insert(json!("run"));
            Value::Object(row).to_string()
        };
        scratch.write(&format!("source/{table}.jsonl"), rows.iter().map(complete).collect::<Vec<_>>().join("\n"));
    }
    scratch.ok(&["init", LAKE]);
    scratch.ok(&["import", "tables", "source", "--lake", LAKE]);
    scratch
}

fn rollout(id: &str, group: &str) -> Value {
    json!({"rollout_id": id, "group_id": group, "step": 1, "status": "completed"})
}

/// A call with as many tokens as asked for, after its parent.
fn call(id: &str, rollout: &str, index: usize, parent: Option<&str>, tokens: usize) -> Value {
    json!({
        "call_id": id, "rollout_id": rollout, "call_index": index, "parent_call_id": parent,
        "prompt_token_ids": [1], "output_token_ids": vec![7; tokens],
    })
}

/// Rewards of a group as a trainer's dump gives them: rollout, call or none, value.
fn rewards(group: &str, rows: &[(&str, Option<&str>, f64)]) -> Vec<Value> {
    let row = |(rollout, call, value): &(&str, Option<&str>, f64)| json!({"name": "given", "rollout_id": rollout, "group_id": group, "call_id": call, "value": value, "derivation_id": "given"});
    rows.iter().map(row).collect()
}

/// The values of a credit's rows, by call, or by rollout where the credit is the rollout's.
fn credit(scratch: &Scratch, recipe: &str, parameters: &[&str]) -> Vec<(String, Value)> {
    let name = format!("{recipe} {}", parameters.join(" "));
    let mut command = vec!["credit", recipe, "--reward", "given", "--name", name.as_str(), "--lake", LAKE];
    parameters.iter().for_each(|parameter| command.extend(["--param", *parameter]));
    scratch.ok(&command);
    let sql = format!(
        "SELECT COALESCE(call_id, rollout_id) AS call_id, value, token_values FROM credits WHERE name = '{name}' ORDER BY 1"
    );
    let rows = scratch.rows(LAKE, &sql).into_iter();
    rows.map(|mut row| {
        let value = if row["token_values"].is_null() { row["value"].take() } else { row["token_values"].take() };
        (row["call_id"].as_str().unwrap().to_owned(), value)
    })
    .collect()
}

fn assert_credit(scratch: &Scratch, recipe: &str, parameters: &[&str], expected: &[(&str, Value)]) {
    let found = credit(scratch, recipe, parameters);
    let ids = |rows: &[(String, Value)]| rows.iter().map(|row| row.0.clone()).collect::<Vec<_>>();
    assert_eq!(ids(&found), expected.iter().map(|row| row.0.to_owned()).collect::<Vec<_>>(), "{recipe}");
    for ((id, found), (_, expected)) in found.iter().zip(expected) {
        let numbers = |value: &Value| match value {
            Value::Array(items) => items.iter().map(Value::as_f64).collect::<Vec<_>>(),
            other => vec![other.as_f64()],
        };
        let (one, other) = (numbers(found), numbers(expected));
        assert_eq!(one.len(), other.len(), "{recipe} {id}: {found} is not {expected}");
        for (a, b) in one.iter().zip(&other) {
            let near = match (a, b) {
                (Some(a), Some(b)) => (a - b).abs() <= 1e-6,
                (a, b) => a == b,
            };
            assert!(near, "{recipe} {parameters:?} {id}: {found} is not {expected}");
        }
    }
}

/// Two rollouts of two calls, in a group; "a" was rewarded 1 in the end, its first call 2, the second call of "b" 4.
fn two_by_two() -> Vec<(&'static str, Vec<Value>)> {
    vec![
        ("rollouts", vec![rollout("a", "g"), rollout("b", "g")]),
        (
            "calls",
            vec![
                call("a0", "a", 0, None, 2),
                call("a1", "a", 1, Some("a0"), 1),
                call("b0", "b", 0, None, 1),
                call("b1", "b", 1, Some("b0"), 2),
            ],
        ),
        (
            "rewards",
            rewards("g", &[("a", None, 1.0), ("a", Some("a0"), 2.0), ("b", None, 0.0), ("b", Some("b1"), 4.0)]),
        ),
    ]
}

#[test]
fn turn_credits() {
    let scratch = lake(&two_by_two());
    // Rewards of calls: a 2, 1; b 0, 4.
    let expected = [("a0", json!(2.5)), ("a1", json!(1.0)), ("b0", json!(2.0)), ("b1", json!(4.0))];
    assert_credit(&scratch, "turn_returns", &["gamma=0.5"], &expected);
    assert_credit(&scratch, "roll/agentic_reinforce", &["gamma=0.5"], &expected);
    assert_credit(&scratch, "roll/step_reinforce", &["step_reward_gamma=0.5", "method=none"], &expected);
    // Their mean is 2.375.
    let centered = [("a0", json!(0.125)), ("a1", json!(-1.375)), ("b0", json!(-0.375)), ("b1", json!(1.625))];
    assert_credit(&scratch, "roll/step_reinforce", &["step_reward_gamma=0.5", "method=mean"], &centered);
    // Sample deviation sqrt((1.375^2 + 0.125^2 + 0.375^2 + 1.625^2) / 3) = 1.25: over 1.25001.
    let scaled = centered.clone().map(|(id, value)| (id, json!(value.as_f64().unwrap() / 1.250_01)));
    assert_credit(&scratch, "areal/turn_discount", &["turn_discount=0.5"], &scaled);
    // Rewards 2, 1, 0, 4: mean 1.75, sample deviation sqrt(8.75 / 3).
    let deviation = (8.75_f64 / 3.0).sqrt() + 1e-6;
    let expected = [("a0", -0.5), ("a1", -0.75), ("b0", 0.5), ("b1", 2.25)];
    assert_credit(&scratch, "process_rewards", &[], &expected.map(|(id, sum)| (id, json!(sum / deviation))));
    // Outcomes 1 and 0: plus and minus sqrt(1/2) over sqrt(1/2) + 1e-6; first calls 2 and 0: plus and minus 1 over sqrt(2) + 1e-6.
    let (outcome, turn) = (0.5 / (0.5_f64.sqrt() + 1e-6), 1.0 / (2.0_f64.sqrt() + 1e-6));
    let expected = [
        ("a0", json!(turn + 0.5 * outcome)),
        ("a1", json!(outcome)),
        ("b0", json!(-turn - 0.5 * outcome)),
        ("b1", json!(-outcome)),
    ];
    assert_credit(&scratch, "mt_grpo", &["outcome_weight=0.5"], &expected);
}

#[test]
fn rewards_fall_due_at_the_last_token() {
    let scratch = lake(&two_by_two());
    // gamma 0.5 a token: a0 has tokens 1, 2 with reward 2 at the second, a1 one with 1.
    let expected = [("a0", json!([1.25, 2.5])), ("a1", json!([1.0])), ("b0", json!([1.0])), ("b1", json!([2.0, 4.0]))];
    assert_credit(&scratch, "returns", &["gamma=0.5"], &expected);
    assert_credit(&scratch, "slime/reinforce_plus_plus", &["gamma=0.5", "votes=rollout"], &expected);
}

/// What trainers make of the rewards 1, 0, 0, 0 and 200, 400, 100, 300 tokens.
#[test]
fn whitening_weighs_by_tokens() {
    let ids = ["a", "b", "c", "d"];
    let scratch = lake(&[
        ("rollouts", ids.iter().map(|id| rollout(id, "g")).collect()),
        ("calls", ids.iter().zip([200, 400, 100, 300]).map(|(id, tokens)| call(id, id, 0, None, tokens)).collect()),
        ("rewards", rewards("g", &[("a", None, 1.0), ("b", None, 0.0), ("c", None, 0.0), ("d", None, 0.0)])),
    ]);
    // Differences 0.75 and -0.25 have the mean -0.05 and the population variance 0.16 over 1,000 tokens.
    let expected = |deviation: f64| ids.map(|id| (id, json!(if id == "a" { 0.8 } else { -0.2 } / deviation)));
    assert_credit(&scratch, "nemo-rl/reinforce_plus_plus", &[], &expected(0.4));
    assert_credit(&scratch, "openrlhf/reinforce_baseline", &[], &expected(0.4));
    assert_credit(&scratch, "verl/reinforce_plus_plus_baseline", &[], &expected((160.0_f64 / 999.0).sqrt()));
    assert_credit(&scratch, "reinforce_plus_plus_baseline", &[], &expected((160.0_f64 / 999.0).sqrt()));
}

/// Logprobs of another policy: ratios 2 and 1 in the first call, 1/4 in the second.
#[test]
fn weights_of_another_policy() {
    let mut tables = two_by_two();
    for (call, logprobs) in [(0, json!([-1.0, -1.0])), (1, json!([-1.0])), (2, json!([-1.0])), (3, json!([-1.0, -1.0]))]
    {
        tables[1].1[call]["output_logprobs"] = logprobs;
    }
    let signal = |name: &str, call: &str, values: Value| json!({"rollout_id": call[..1], "call_id": call, "name": name, "values": values});
    let two = 2.0_f64.ln();
    let train = |name: &'static str| {
        vec![
            signal(name, "a0", json!([two - 1.0, -1.0])),
            signal(name, "a1", json!([-1.0 - 2.0 * two])),
            signal(name, "b0", json!([-1.0])),
            signal(name, "b1", json!([null, -1.0])),
        ]
    };
    let calls = [("a0", 2), ("a1", 1), ("b0", 1), ("b1", 2)];
    let reference = calls.iter().map(|(call, n)| signal("reference_logprob", call, json!(vec![-1.0; *n]))).collect();
    tables.push(("token_signals", [train("trainer_logprob"), train("teacher_logprob"), reference].concat()));
    let scratch = lake(&tables);
    let expected = |a0: Value, a1: Value, b0: Value, b1: Value| [("a0", a0), ("a1", a1), ("b0", b0), ("b1", b1)];
    let token = expected(json!([1.5, 1.0]), json!([0.25]), json!([1.0]), json!([null, 1.0]));
    assert_credit(&scratch, "importance_weights", &["upper=1.5"], &token);
    assert_credit(&scratch, "verl/rollout_is", &["rollout_is_threshold=1.5"], &token);
    let icepop = expected(json!([0.0, 1.0]), json!([0.0]), json!([1.0]), json!([null, 1.0]));
    assert_credit(&scratch, "importance_weights", &["mode=mask", "lower=0.5", "upper=1.5"], &icepop);
    assert_credit(&scratch, "verl/rollout_is", &["rollout_is_threshold=0.5_1.5"], &icepop);
    // The trajectories' ratios are 1/2 and, with an unknown token, unknown.
    let sequence = expected(json!([0.5, 0.5]), json!([0.5]), json!([null]), json!([null, null]));
    assert_credit(&scratch, "importance_weights", &["level=sequence"], &sequence);
    let veto = expected(json!([0.0, 0.0]), json!([0.0]), json!([null]), json!([null, null]));
    assert_credit(&scratch, "importance_weights", &["veto=0.5"], &veto);
    let kept = expected(json!([0.0, 1.0]), json!([0.0]), json!([1.0]), json!([null, 1.0]));
    assert_credit(
        &scratch,
        "verl/rollout_rs",
        &["rollout_rs_threshold=0.3_3"],
        &expected(json!([1.0, 1.0]), json!([0.0]), json!([1.0]), json!([null, 1.0])),
    );
    assert_credit(&scratch, "verl/rollout_rs", &["rollout_rs_threshold=0.8_1.25"], &kept);
    let differences = expected(json!([two, 0.0]), json!([-2.0 * two]), json!([0.0]), json!([null, 0.0]));
    assert_credit(&scratch, "on_policy_distillation", &[], &differences);
    // Against a reference with logprob -1 everywhere, k1 costs half of ln 2 at the first token and gives ln 2 at the third.
    let returns = expected(json!([3.0 + 0.5 * two, 3.0 + two]), json!([1.0 + two]), json!([null]), json!([null, 4.0]));
    assert_credit(&scratch, "slime/reinforce_plus_plus", &["kl_coef=0.5", "votes=rollout"], &returns);
}

#[test]
fn rewards_of_tokens_come_as_signals() {
    let mut tables = two_by_two();
    let signal = |call: &str, values: Value| json!({"rollout_id": "a", "call_id": call, "name": "token_reward", "values": values});
    tables.push(("token_signals", vec![signal("a0", json!([0.5, 0.0])), signal("a1", json!([1.0]))]));
    let scratch = lake(&tables);
    // Alone, and beside the rewards 2 and 1 of the calls. Calls without the signal are unknown.
    let alone = [("a0", json!([0.75, 0.5])), ("a1", json!([1.0])), ("b0", json!([null])), ("b1", json!([null, null]))];
    let parameters = ["gamma=0.5", "token_rewards=token_reward", "outcome_weight=0"];
    assert_credit(&scratch, "returns", &parameters, &alone);
    let of_rollouts = [&parameters[..], &["votes=rollout"]].concat();
    assert_credit(&scratch, "slime/reinforce_plus_plus", &of_rollouts, &alone);
    let both = [("a0", json!([2.0, 3.0])), ("a1", json!([2.0])), ("b0", json!([null])), ("b1", json!([null, null]))];
    assert_credit(&scratch, "returns", &parameters[..2], &both);
}

#[test]
fn calls_that_saw_one_state_are_compared() {
    let mut tables = two_by_two();
    // Both first calls saw "s", the second ones different states.
    tables.push((
        "environment_records",
        vec![
            json!({"record_id": "1", "rollout_id": "a", "delivered_call_id": "a0", "state_digest": "s"}),
            json!({"record_id": "2", "rollout_id": "b", "delivered_call_id": "b0", "state_digest": "s"}),
            json!({"record_id": "3", "rollout_id": "a", "call_id": "a0", "state_digest": "t"}),
            json!({"record_id": "4", "rollout_id": "b", "delivered_call_id": "b1", "state_digest": "u"}),
        ],
    ));
    tables[0].1.push(rollout("c", "h"));
    tables[1].1.push(call("c0", "c", 0, None, 1));
    tables[2].1.extend(rewards("h", &[("c", None, 5.0)]));
    let scratch = lake(&tables);
    // Episodes 3 and 4: minus and plus 0.5. Step returns with gamma 0.5 in state s: 2.5 and 2, plus and minus 0.25.
    let expected = |alone: f64| {
        [
            ("a0", json!(-0.5 + 0.25)),
            ("a1", json!(-0.5)),
            ("b0", json!(0.5 - 0.25)),
            ("b1", json!(0.5)),
            ("c0", json!(alone)),
        ]
    };
    assert_credit(&scratch, "gigpo", &["gamma=0.5"], &expected(0.0));
    assert_credit(&scratch, "verl-agent/gigpo", &["gamma=0.5"], &expected(5.0));
    let scaled = |difference: f64, deviation: f64| difference / (deviation + 1e-6);
    let (episode, step) = (scaled(0.5, 0.5_f64.sqrt()), scaled(0.25, 0.125_f64.sqrt()));
    let expected = [
        ("a0", json!(-episode + 2.0 * step)),
        ("a1", json!(-episode)),
        ("b0", json!(episode - 2.0 * step)),
        ("b1", json!(episode)),
        ("c0", json!(0.0)),
    ];
    assert_credit(&scratch, "gigpo", &["gamma=0.5", "mode=mean_std_norm", "step_advantage_w=2"], &expected);
    // ROLL compares the episodes by call: 3, 3, 4, 4 have the sample deviation sqrt(1/3).
    let episode = scaled(0.5, (1.0_f64 / 3.0).sqrt());
    let expected = [
        ("a0", json!(-episode + step)),
        ("a1", json!(-episode)),
        ("b0", json!(episode - step)),
        ("b1", json!(episode)),
        ("c0", json!(0.0)),
    ];
    assert_credit(&scratch, "roll/gigpo", &["step_reward_gamma=0.5"], &expected);
}

#[test]
fn continuations_give_the_values_of_states() {
    let continuation = |id: &str, call: &str, position: usize| {
        let mut row = rollout(id, "g");
        let more = json!({"relation": "continuation", "origin_rollout_id": "a", "origin_call_id": call, "origin_position": position});
        row.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        row
    };
    let mut tables = two_by_two();
    tables[1].1[0] = call("a0", "a", 0, None, 4);
    tables[0].1.extend([
        continuation("k1", "a0", 1),
        continuation("k2", "a0", 1),
        continuation("k3", "a0", 3),
        continuation("k4", "a1", 0),
    ]);
    tables[2].1 = rewards(
        "g",
        &[
            ("a", None, 1.0),
            ("b", None, 0.0),
            ("k1", None, 1.0),
            ("k2", None, 0.0),
            ("k3", None, 0.25),
            ("k4", None, 0.75),
        ],
    );
    let scratch = lake(&tables);
    // Values 0.5 from token 1 on, 0.25 from token 3 on, 0.75 from the second call on; then the reward 1.
    let expected = [
        ("a0", json!([null, -0.25, -0.25, 0.5])),
        ("a1", json!([0.25])),
        ("b0", json!([null])),
        ("b1", json!([null, null])),
    ];
    assert_credit(&scratch, "vineppo", &[], &expected);
    // Without a state at the second call, its step is the last of the first call: from 0.25 to the reward.
    tables[0].1.truncate(5);
    tables[2].1.truncate(5);
    let scratch = lake(&tables);
    let expected = [
        ("a0", json!([null, -0.25, -0.25, 0.75])),
        ("a1", json!([0.75])),
        ("b0", json!([null])),
        ("b1", json!([null, null])),
    ];
    assert_credit(&scratch, "vineppo", &[], &expected);
}

#[test]
fn a_branch_is_a_trajectory_of_its_own() {
    let mut tables = two_by_two();
    // "ax" was tried after a0 and given up; a1 followed. Another run has the same ids.
    tables[1].1.insert(1, call("ax", "a", 1, Some("a0"), 1));
    tables[1].1[2] = call("a1", "a", 2, Some("a0"), 1);
    tables[2].1 = rewards("g", &[("a", None, 1.0), ("b", None, 0.0)]);
    for table in &mut tables {
        let twins: Vec<Value> = table
            .1
            .iter()
            .map(|row| {
                let mut row = row.clone();
                row["run_id"] = json!("twin");
                row
            })
            .collect();
        table.1.extend(twins);
    }
    let scratch = lake(&tables);
    let twice = |rows: &[(&'static str, Value)]| -> Vec<(&'static str, Value)> {
        rows.iter().flat_map(|row| [row.clone(), row.clone()]).collect()
    };
    let expected = twice(&[
        ("a0", json!([0.25, 0.5])),
        ("a1", json!([1.0])),
        ("ax", json!([1.0])),
        ("b0", json!([0.0])),
        ("b1", json!([0.0, 0.0])),
    ]);
    assert_credit(&scratch, "returns", &["gamma=0.5"], &expected);
}

#[test]
fn signals_must_be_there_once_and_fit() {
    let mut tables = two_by_two();
    let scratch = lake(&tables);
    let given = ["credit", "gae", "--reward", "given", "--lake", LAKE];
    scratch.run(&given).ended(2).saying(&["there is no signal value: import it into token_signals"]);
    let signal = |producer: &str, values: Value| json!({"rollout_id": "a", "call_id": "a0", "name": "value", "producer": producer, "values": values});
    tables.push(("token_signals", vec![signal("one", json!([0.5, 0.5])), signal("two", json!([0.5]))]));
    let scratch = lake(&tables);
    scratch.run(&given).ended(2).saying(&["call a0 has several signals value: name one with the parameter producer"]);
    // Calls without a value are unknown, and so is what comes before them.
    let expected =
        [("a0", json!([null, null])), ("a1", json!([null])), ("b0", json!([null])), ("b1", json!([null, null]))];
    assert_credit(&scratch, "gae", &["producer=one"], &expected);
    let wrong = scratch.run(&[&given[..], &["--param", "producer=two"]].concat());
    wrong.ended(2).saying(&["gae: the lists of call \"a0\" differ in length: mask has 2 items, state_values has 1"]);
}

/// A window over lists may hold one trajectory, never its whole input.
#[test]
fn windows_over_lists_hold_one_partition() {
    let scratch = lake(&two_by_two());
    let over = "OVER (PARTITION BY run_id, rollout_id, trajectory_id ORDER BY call_index, call_id)";
    let sql = format!(
        "EXPLAIN SELECT gae(r, r, token_mask, call_id) {over} FROM (SELECT *, place_reward(1, token_mask, call_id) {over} AS r FROM trajectories)"
    );
    let plan = scratch.rows(LAKE, &sql).iter().map(Value::to_string).collect::<String>();
    for function in ["gae", "place_reward", "trajectory_id"] {
        assert!(plan.contains(&format!("BoundedWindowAggExec: wdw=[{function}(")), "{plan}");
        assert!(!plan.contains(&format!(" WindowAggExec: wdw=[{function}(")), "{plan}");
    }
}

/// A clip after a credit: derived, built from and recomputed like any other.
#[test]
fn a_credit_is_made_of_a_credit() {
    let scratch = lake(&two_by_two());
    scratch.ok(&["credit", "dr_grpo", "--reward", "given", "--name", "whole", "--lake", LAKE]);
    let clip = ["credit", "advantage_clip", "--param", "low=-0.25", "--name", "clipped", "--lake", LAKE];
    scratch.ok(&[&clip[..], &["--credit", "whole"]].concat());
    let sql = "SELECT w.value AS w, c.value AS c FROM credits AS w JOIN credits AS c ON w.rollout_id = c.rollout_id \
               WHERE w.name = 'whole' AND c.name = 'clipped' ORDER BY w.rollout_id";
    let rows = scratch.rows(LAKE, sql);
    assert_eq!(rows.len(), 2);
    for row in rows {
        let [whole, clipped] = ["w", "c"].map(|name| row[name].as_f64().unwrap());
        assert!((clipped - whole.max(-0.25)).abs() < 1e-15 && whole.abs() > 0.25, "{row}");
    }
    scratch.run(&clip).ended(2).saying(&["starts from another credit: name it with --credit"]);
    let both = [&clip[..], &["--credit", "whole", "--reward", "given"]].concat();
    scratch.run(&both).ended(2).saying(&["reads no reward: leave --reward away"]);
    scratch.ok(&["audit", "--check", "score/derive", "--lake", LAKE, "--no-record"]);
}

#[test]
fn long_calls_and_little_memory_change_nothing() {
    const TOKENS: usize = 200_000;
    let mut tables = two_by_two();
    tables[1].1[3] = call("b1", "b", 1, Some("b0"), TOKENS);
    let values = |call: &str, rollout: &str, tokens: usize| {
        let values: Vec<f64> = (0..tokens).map(|at| f64::from(u32::try_from(at % 8).unwrap()) / 8.0).collect();
        json!({"rollout_id": rollout, "call_id": call, "name": "value", "values": values})
    };
    tables.push((
        "token_signals",
        vec![values("a0", "a", 2), values("a1", "a", 1), values("b0", "b", 1), values("b1", "b", TOKENS)],
    ));
    let scratch = lake(&tables);
    let digest = |memory: &str| {
        let command =
            ["credit", "verl/gae", "--reward", "given", "--param", "lam=0.95", "--lake", LAKE, "--format", "json"];
        scratch.ok(&[&command[..], &["--memory-limit", memory]].concat()).json()["content_digest"].clone()
    };
    assert_eq!(digest("512"), digest("96"));
    // Whitened: mean 0 and variance 1 over all tokens of the step, as far as floats add up.
    let sql = "SELECT count(*) AS n, avg(CAST(t AS DOUBLE)) AS mean, var_samp(CAST(t AS DOUBLE)) AS var \
               FROM (SELECT unnest(token_values) AS t FROM credits WHERE name = 'verl/gae')";
    let row = scratch.row(LAKE, sql);
    assert_eq!(row[0], json!(TOKENS + 4));
    assert!(row[1].as_f64().unwrap().abs() < 1e-6 && (row[2].as_f64().unwrap() - 1.0).abs() < 1e-4, "{row:?}");
}
