//! One's own recipes: tested, run for several values, built under every objective and compared.

use rollbook_testing::calculator_run;
use rollbook_tests::Scratch;
use serde_json::{Value, json};

/// A credit whose tokens count up: the reward times 1, 2, 3 … over the call's tokens.
const RAMP: &str = "\
-- @kind credit
-- @doc The reward, growing over the output tokens of each call.
-- @formula A_t = scale * r * (t + 1)
-- @param scale double = 1
-- @test two tokens
--   reward {\"rollout_id\": \"a\", \"value\": 3}
--   calls {\"rollout_id\": \"a\", \"call_id\": \"a0\", \"output_len\": 2}
--   param scale=0.5
--   expect {\"rollout_id\": \"a\", \"call_id\": \"a0\", \"token_values\": [1.5, 3]}
SELECT
    reward.run_id,
    reward.rollout_id,
    token.call_id,
    'token' AS level,
    NULL AS value,
    array_agg($scale * reward.value * (token.position + 1) ORDER BY token.position) AS token_values
FROM reward
JOIN (SELECT run_id, rollout_id, call_id, position FROM tokens) AS token
    ON token.run_id = reward.run_id AND token.rollout_id = reward.rollout_id
GROUP BY reward.run_id, reward.rollout_id, token.call_id
";

#[test]
fn a_recipe_tests_itself_and_the_exit_status_says_how() {
    let scratch = Scratch::new();
    scratch.write("ramp.sql", RAMP);
    let told = scratch.ok(&["recipes", "test", "ramp.sql"]).text();
    assert!(told.contains("pass  ramp, line 5: two tokens") && told.contains("1 passed, 0 failed"), "{told}");
    scratch.write("wrong.sql", RAMP.replace("[1.5, 3]", "[1.5, 4]"));
    let ran = scratch.run(&["recipes", "test", "ramp.sql", "wrong.sql", "--format", "json"]).ended(1).json();
    let passed: Vec<&Value> = ran.as_array().unwrap().iter().map(|test| &test["passed"]).collect();
    assert_eq!(passed, [&json!(true), &json!(false)]);
    let failure = ran[1]["failures"][0].as_str().unwrap();
    assert_eq!(failure, "line 9: rollout a, call a0, column token_values is [1.5,3.0], expected [1.5,4]");
    scratch.write("untested.sql", "-- @kind reward\nSELECT 1");
    scratch.run(&["recipes", "test", "untested.sql"]).ended(2).saying(&["recipe untested has no test", "@test"]);
    scratch.write("typo.sql", RAMP.replace("reward.value *", "reward.valeu *"));
    let typo = "recipe typo, line 16, column 24: there is no column reward.valeu; did you mean value?";
    let told = scratch.run(&["recipes", "test", "typo.sql"]).ended(1).text();
    assert!(told.contains(typo), "{told}");
}

#[test]
fn own_credits_are_built_under_every_objective_and_compared() {
    let scratch = Scratch::new();
    calculator_run::write_tables(&scratch.path("run")).unwrap();
    scratch.write("ramp.sql", RAMP);
    scratch.ok(&["init", "lake"]);
    scratch.ok(&["import", "tables", "run", "--lake", "lake"]);
    scratch.ok(&["reward", "verifier_value", "--lake", "lake"]);
    let lists = ["credit", "ramp.sql", "--reward", "verifier_value", "--param", "scale=1,-1", "--lake", "lake"];
    let told = scratch.ok(&lists).text();
    assert!(told.contains("ramp:scale=1") && told.contains("ramp:scale=-1"), "{told}");
    scratch.ok(&["credit", "grpo", "--reward", "verifier_value", "--lake", "lake"]);
    for (unit, scope) in [("token", "step"), ("row", "micro_batch"), ("rollout", "rank"), ("group", "step")] {
        let arguments = ["build", "merged", "--credit", "ramp:scale=1", "--max-tokens", "2048", "--accept-assumed"];
        let objective = ["--objective", unit, "--objective-scope", scope, "--name", unit, "--lake", "lake"];
        scratch.ok(&[&arguments[..], &objective[..]].concat());
    }
    let report = scratch
        .ok(&["audit", "--check", "pack/*", "--check", "token/coverage", "--lake", "lake", "--format", "json"])
        .json();
    assert_eq!(report["findings"], json!([]));
    token_values_are_where_they_belong(&scratch);

    let mirrored =
        scratch.ok(&["compare", "ramp:scale=1", "ramp:scale=-1", "--lake", "lake", "--format", "json"]).json();
    let measure = &mirrored["measures"][0];
    let tokens =
        scratch.number("lake", "SELECT sum(cardinality(token_values)) FROM credits WHERE name = 'ramp:scale=1'");
    assert_eq!((measure["both"].as_i64(), measure["only_a"].as_i64()), (Some(tokens), Some(0)));
    // Rewards are 0 or above: what is not zero flips, and the order is turned round.
    let zeros = scratch.number(
        "lake",
        "SELECT count(*) FROM (SELECT unnest(token_values) AS v FROM credits WHERE name = 'ramp:scale=1') WHERE v = 0",
    );
    assert_eq!(measure["sign_flips"].as_i64(), Some(tokens - zeros));
    assert_eq!((measure["spearman"].as_f64(), measure["kendall"].as_f64()), (Some(-1.0), Some(-1.0)));
    assert_eq!(mirrored["settings"], json!([{"setting": "parameter scale", "a": "1.0", "b": "-1.0"}]));
    let builds = scratch.ok(&["compare", "token", "rollout", "--lake", "lake"]).text();
    assert!(builds.contains("loss_weight") && builds.contains("objective_unit"), "{builds}");
    scratch.run(&["compare", "grpo", "verifier_value", "--lake", "lake"]).ended(2).saying(&["is a credit", "a reward"]);
}

/// Each trained token of a row has the value that the credit gives to its call and output offset.
fn token_values_are_where_they_belong(scratch: &Scratch) {
    let sql = "SELECT count(*) AS tokens, count(*) FILTER (WHERE s.advantage <> c.v) AS wrong
        FROM (
            SELECT call_id, source_start + o AS position, advantages[start + o + 1] AS advantage
            FROM (
                SELECT s['call_id'] AS call_id, s['source_start'] AS source_start, s['start'] AS start, advantages,
                    unnest(range(0, s['length'])) AS o
                FROM (SELECT unnest(segments) AS s, advantages FROM samples JOIN builds USING (build_id)
                    WHERE objective_unit = 'token')
                WHERE s['trained']
            )
        ) AS s
        JOIN (
            SELECT call_id, unnest(token_values) AS v, unnest(range(0, cardinality(token_values))) AS position
            FROM credits WHERE name = 'ramp:scale=1'
        ) AS c ON c.call_id = s.call_id AND c.position = s.position";
    let row = scratch.row("lake", sql);
    assert!(row[0].as_i64().unwrap() > 10_000, "{row:?}");
    assert_eq!(row[1], json!(0));
}
