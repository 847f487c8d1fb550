//! verl's own numbers: what its functions gave for a batch of seven rows, from the functions of SQL and from stored
//! credits. The file lies beside the repository or where `ROLLBOOK_SHARED` says; without it the tests say that they skip.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use rollbook_tests::Scratch;
use serde_json::{Value, json};

const LAKE: &str = "lake";
/// Functions and values of calls.
const EXACT: f64 = 1e-9;
/// Stored token values, which are floats.
const STORED: f64 = 1e-6;

#[expect(clippy::print_stderr, reason = "a test that is skipped says so")]
fn golden() -> Option<Value> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared");
    let shared = std::env::var_os("ROLLBOOK_SHARED").map_or(beside, PathBuf::from);
    let text = std::fs::read_to_string(shared.join("data/verl/generated_golden.json")).ok();
    if text.is_none() {
        eprintln!("skipped: no verl golden file beside the repository; set ROLLBOOK_SHARED");
    }
    text.map(|text| serde_json::from_str(&text).unwrap())
}

fn rows(value: &Value) -> Vec<Vec<f64>> {
    let row = |row: &Value| row.as_array().unwrap().iter().map(number).collect();
    value.as_array().unwrap().iter().map(row).collect()
}

fn number(value: &Value) -> f64 {
    value.as_bool().map_or_else(|| value.as_f64().unwrap(), f64::from)
}

/// The batch as a table of SQL: id, group, rewards, mask, values, train and rollout logprobs, squares, baseline.
fn batch(golden: &Value) -> String {
    let inputs = &golden["inputs"];
    let list = |name: &str, row: usize, kind: &str| {
        let items: Vec<String> = rows(&inputs[name])[row].iter().map(|value| format!("{value:?}")).collect();
        format!("CAST([{}] AS {kind}[])", items.join(", "))
    };
    let count = inputs["index"].as_array().unwrap().len();
    let row = |row: usize| {
        let mask: Vec<&str> =
            rows(&inputs["response_mask"])[row].iter().map(|item| if *item > 0.0 { "true" } else { "false" }).collect();
        format!(
            "('r{row}', {}, {}, CAST([{}] AS BOOLEAN[]), {}, {}, {}, {}, {:?})",
            inputs["index"][row].to_string().replace('"', "'"),
            list("token_level_rewards", row, "DOUBLE"),
            mask.join(", "),
            list("values", row, "DOUBLE"),
            list("old_log_probs", row, "DOUBLE"),
            list("rollout_log_probs", row, "DOUBLE"),
            list("sum_pi_squared", row, "DOUBLE"),
            number(&inputs["reward_baselines"][row]),
        )
    };
    let rows: Vec<String> = (0..count).map(row).collect();
    format!("(VALUES {}) AS t(id, g, r, m, v, o, q, s, b)", rows.join(", "))
}

/// Fails unless a query's column `x`, one list a row, is what verl gave.
fn assert_lists(scratch: &Scratch, name: &str, sql: &str, expected: &Value) {
    let found = scratch.rows(LAKE, &format!("SELECT x FROM ({sql}) ORDER BY id"));
    let expected = rows(expected);
    assert_eq!(found.len(), expected.len(), "{name}");
    for (found, expected) in found.iter().zip(expected) {
        let found: Vec<f64> = found["x"].as_array().unwrap().iter().map(number).collect();
        assert_eq!(found.len(), expected.len(), "{name}");
        for (one, other) in found.iter().zip(&expected) {
            assert!((one - other).abs() <= EXACT, "{name}: {found:?} is not {expected:?}");
        }
    }
}

fn open() -> Option<(Value, Scratch)> {
    let golden = golden()?;
    let scratch = Scratch::new();
    scratch.ok(&["init", LAKE]);
    Some((golden, scratch))
}

const BY_ROW: &str = "OVER (PARTITION BY id ORDER BY id)";

#[test]
fn token_advantages_are_those_of_verl() {
    let Some((golden, scratch)) = open() else { return };
    let batch = batch(&golden);
    let advantages = &golden["advantages"];
    let whitened = |inner: &str, unselected: &str| {
        format!(
            "SELECT id, whiten(a, m, moments, id, count_eps => 1e-8, unselected => '{unselected}') AS x \
             FROM (SELECT *, token_moments(a, m, id) OVER () AS moments FROM ({inner}))"
        )
    };
    let gae = |output: &str| {
        format!(
            "SELECT id, m, gae(r, v, m, id, gamma => 0.95, lam => 0.9, output => '{output}', unselected => 'carry') {BY_ROW} AS a \
             FROM {batch}"
        )
    };
    let expected = &advantages["gae(gamma=0.95,lam=0.9)"];
    assert_lists(&scratch, "gae", &whitened(&gae("advantage"), "whitened"), &expected["advantages"]);
    let returns = format!("SELECT id, a AS x FROM ({})", gae("return"));
    assert_lists(&scratch, "gae returns", &returns, &expected["returns"]);

    let returns = format!(
        "SELECT id, m, token_returns(r, m, id, gamma => 0.95, unselected => 'zero') {BY_ROW} AS a FROM {batch}"
    );
    let expected = &advantages["reinforce_plus_plus(gamma=0.95)"];
    assert_lists(&scratch, "reinforce++", &whitened(&returns, "zero"), &expected["advantages"]);
    let plain = format!("SELECT id, a AS x FROM ({returns})");
    assert_lists(&scratch, "reinforce++ returns", &plain, &expected["returns"]);

    let baseline = format!(
        "SELECT id, m, token_fill(c, m) AS a FROM \
         (SELECT id, m, dr_grpo(array_sum(r), id, singleton => 'value') OVER (PARTITION BY g) AS c FROM {batch})"
    );
    let expected = &advantages["reinforce_plus_plus_baseline"]["advantages"];
    assert_lists(&scratch, "reinforce++-baseline", &whitened(&baseline, "zero"), expected);

    let carried = format!("token_returns(r, m, id, unselected => 'carry') {BY_ROW}");
    let remax = format!(
        "SELECT id, token_sum(a, token_fill(b, m, unselected => 'zero'), id, weight => -1) AS x FROM (SELECT *, {carried} AS a FROM {batch})"
    );
    assert_lists(&scratch, "remax", &remax, &advantages["remax"]["advantages"]);
    for (name, align) in [("optimal_token_baseline", "position"), ("tir_optimal_token_baseline", "selected")] {
        let baseline = format!(
            "SELECT id, optimal_token_baseline(r, m, o, s, id, id, align => '{align}', unselected => 'zero') \
             OVER (PARTITION BY g ORDER BY id) AS x FROM {batch}"
        );
        assert_lists(&scratch, name, &baseline, &advantages[name]["advantages"]);
        let returns = format!("SELECT id, {carried} AS x FROM {batch}");
        assert_lists(&scratch, name, &returns, &advantages[name]["returns"]);
    }
    for (estimator, expected) in golden["kl_penalty"].as_object().unwrap() {
        let kl = format!("SELECT id, token_kl(o, q, NULL, id, estimator => '{estimator}') AS x FROM {batch}");
        assert_lists(&scratch, estimator, &kl, expected);
    }
}

#[test]
fn rollout_correction_is_that_of_verl() {
    let Some((golden, scratch)) = open() else { return };
    let batch = batch(&golden);
    for (name, case) in golden["rollout_correction"].as_object().unwrap() {
        let arguments = case["args"].as_object().unwrap();
        let text = |key: &str, or: &str| {
            arguments.get(key).map_or_else(|| or.to_owned(), |value| value.as_str().unwrap_or_default().to_owned())
        };
        let given: String = arguments
            .iter()
            .map(|(key, value)| format!(", {key} => {}", value.to_string().replace('"', "'")))
            .collect();
        let sql = format!(
            "SELECT map_keys(m) AS names, map_values(m) AS numbers \
             FROM (SELECT rollout_correction_metrics(o, q, m, id, id{given}) AS m FROM {batch})"
        );
        let row = scratch.row(LAKE, &sql);
        let names = row[0].as_array().unwrap().iter().map(|name| name.as_str().unwrap().to_owned());
        let found: BTreeMap<String, f64> = names.zip(row[1].as_array().unwrap().iter().map(number)).collect();
        let expected = case["metrics"].as_object().unwrap();
        assert_eq!(
            found.keys().collect::<Vec<_>>(),
            expected.keys().collect::<std::collections::BTreeSet<_>>().into_iter().collect::<Vec<_>>(),
            "{name}"
        );
        for (metric, expected) in expected {
            assert!((found[metric] - number(expected)).abs() <= EXACT, "{name}: {metric} is {}", found[metric]);
        }
        if !case["weights"].is_null() {
            let threshold = text("rollout_is_threshold", "2.0");
            let bounds = match threshold.split_once('_') {
                Some((lower, upper)) => format!("mode => 'mask', lower => {lower}, upper => {upper}"),
                None => format!("upper => {threshold}"),
            };
            let factor = found.get("rollout_corr/rollout_is_batch_norm_factor").copied().unwrap_or(1.0);
            let sql = format!(
                "SELECT id, array_scale(w, 1.0 / CAST({factor:?} AS DOUBLE)) AS x FROM (SELECT id, importance_weights(o, q, m, id, \
                 level => '{}', {bounds}, unselected => 'zero') {BY_ROW} AS w FROM {batch})",
                text("rollout_is", "token")
            );
            assert_lists(&scratch, name, &sql, &case["weights"]);
        }
        if arguments.contains_key("rollout_rs") {
            let sql = format!(
                "SELECT id, rejection_mask(o, q, m, id, rollout_rs => '{}', rollout_rs_threshold => '{}') {BY_ROW} AS x FROM {batch}",
                text("rollout_rs", ""),
                text("rollout_rs_threshold", "")
            );
            assert_lists(&scratch, name, &sql, &case["mask"]);
        }
    }
}

#[test]
fn losses_and_partitions_are_those_of_verl() {
    let Some((golden, scratch)) = open() else { return };
    let lists = |name: &str| {
        let lists = rows(&golden["inputs"][name]);
        lists.into_iter().map(|list| format!("{list:?}")).collect::<Vec<_>>()
    };
    let batch: Vec<String> = lists("loss")
        .iter()
        .zip(lists("loss_mask"))
        .map(|(loss, mask)| format!("({loss}, CAST({mask} AS BIGINT[]))"))
        .collect();
    let batch = format!("(VALUES {}) AS t(loss_mat, loss_mask)", batch.join(", "));
    for (mode, expected) in golden["agg_loss"].as_object().unwrap() {
        let sql = format!("SELECT agg_loss(loss_mat, loss_mask, loss_agg_mode => '{mode}') FROM {batch}");
        let found = number(&scratch.row(LAKE, &sql)[0]);
        assert!((found - number(expected)).abs() <= EXACT, "{mode}: {found} is not {expected}");
    }
    let balancing = &golden["seqlen_balancing"];
    let numbers = |name: &str| -> Vec<i64> {
        balancing[name].as_array().unwrap().iter().map(|number| number.as_i64().unwrap()).collect()
    };
    let table: Vec<String> =
        numbers("seqlens").iter().enumerate().map(|(item, seqlen)| format!("({item}, {seqlen})")).collect();
    let table = format!("(VALUES {}) AS t(item, seqlen)", table.join(", "));
    let column = |expression: &str| -> Vec<i64> {
        let found = scratch.rows(LAKE, &format!("SELECT {expression} AS x FROM {table} ORDER BY item"));
        found.iter().map(|row| row["x"].as_i64().unwrap()).collect()
    };
    let workload = "24576 * seqlen + seqlen * seqlen";
    assert_eq!(column(workload), numbers("workloads"));
    for (entry, call) in [
        ("kk_k4_unequal", "karmarkar_karp(seqlen, 4)".to_owned()),
        ("kk_k4_equal", "karmarkar_karp(seqlen, 4, equal_size => true)".to_owned()),
        ("kk_workload_k3_unequal", format!("karmarkar_karp({workload}, k_partitions => 3, equal_size => false)")),
    ] {
        let partition_of = column(&format!("{call} OVER (ORDER BY item)"));
        let expected = balancing[entry].as_array().unwrap();
        for (partition, items) in expected.iter().enumerate() {
            let found: Vec<usize> =
                (0..partition_of.len()).filter(|item| usize::try_from(partition_of[*item]) == Ok(partition)).collect();
            assert_eq!(json!(found), *items, "{entry}");
        }
        assert_eq!(expected.iter().map(|items| items.as_array().unwrap().len()).sum::<usize>(), partition_of.len());
    }
}

/// Where the tokens of a call stand in verl's row.
type Places = BTreeMap<String, (usize, usize, usize)>;

/// The batch as rollouts: each run of response tokens is a call, each run of observations goes into the next prompt.
fn write_rollouts(scratch: &Scratch, golden: &Value) -> Places {
    let inputs = &golden["inputs"];
    let mut tables: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
    let mut places = Places::new();
    for (row, mask) in rows(&inputs["response_mask"]).iter().enumerate() {
        let rollout = format!("r{row}");
        let keys = json!({"run_id": "run", "rollout_id": rollout});
        let with = |more: Value| {
            let mut all = keys.as_object().unwrap().clone();
            all.extend(more.as_object().unwrap().clone());
            Value::Object(all)
        };
        let reward: f64 = rows(&inputs["token_level_rewards"])[row].iter().sum();
        tables
            .entry("rollouts")
            .or_default()
            .push(with(json!({"group_id": inputs["index"][row], "step": 1, "status": "completed"})));
        tables
            .entry("scores")
            .or_default()
            .push(with(json!({"score_id": format!("s{row}"), "verifier": "v", "value": reward, "is_valid": true})));
        let mut context = vec![1000 + row];
        let (mut at, mut parent) = (0, Value::Null);
        while at < mask.len() && mask[at..].iter().any(|selected| *selected > 0.0) {
            while mask[at] == 0.0 {
                context.push(500 + at);
                at += 1;
            }
            let start = at;
            at += mask[at..].iter().take_while(|selected| **selected > 0.0).count();
            let call = format!("{rollout}-{start}");
            let output: Vec<usize> = (start..at).map(|position| 100 + position).collect();
            let slice = |name: &str| json!(rows(&inputs[name])[row][start..at]);
            tables.entry("calls").or_default().push(with(json!({
                "call_id": call, "call_index": start, "parent_call_id": parent,
                "prompt_token_ids": context, "output_token_ids": output, "output_logprobs": slice("rollout_log_probs"),
                "prompt_exactness": "engine", "output_exactness": "engine", "logprobs_source": "engine",
            })));
            for (signal, name) in
                [("value", "values"), ("trainer_logprob", "old_log_probs"), ("sum_pi_squared", "sum_pi_squared")]
            {
                tables
                    .entry("token_signals")
                    .or_default()
                    .push(with(json!({"call_id": call, "name": signal, "values": slice(name)})));
            }
            places.insert(call.clone(), (row, start, at));
            context.extend(output);
            parent = json!(call);
        }
    }
    for (table, rows) in tables {
        scratch
            .write(&format!("source/{table}.jsonl"), rows.iter().map(Value::to_string).collect::<Vec<_>>().join("\n"));
    }
    places
}

#[test]
fn stored_token_credits_are_those_of_verl() {
    let Some((golden, scratch)) = open() else { return };
    let places = write_rollouts(&scratch, &golden);
    scratch.ok(&["import", "tables", "source", "--lake", LAKE]);
    scratch.ok(&["reward", "verifier_value", "--lake", LAKE]);
    let advantages = &golden["advantages"];
    let mut cases: Vec<(&str, Vec<String>, &Value)> = vec![
        ("verl/gae", vec!["gamma=0.95".into(), "lam=0.9".into()], &advantages["gae(gamma=0.95,lam=0.9)"]["advantages"]),
        (
            "verl/reinforce_plus_plus",
            vec!["gamma=0.95".into()],
            &advantages["reinforce_plus_plus(gamma=0.95)"]["advantages"],
        ),
        ("returns", vec!["gamma=0.95".into()], &advantages["reinforce_plus_plus(gamma=0.95)"]["returns"]),
        ("verl/optimal_token_baseline", vec![], &advantages["optimal_token_baseline"]["advantages"]),
        ("verl/tir_optimal_token_baseline", vec![], &advantages["tir_optimal_token_baseline"]["advantages"]),
    ];
    for case in golden["rollout_correction"].as_object().unwrap().values() {
        // A comma would make two runs of it; in quotes it is part of the value.
        let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), |text| format!("'{text}'"));
        let given =
            case["args"].as_object().unwrap().iter().map(|(key, value)| format!("{key}={}", text(value))).collect();
        if !case["weights"].is_null() {
            cases.push(("verl/rollout_is", given, &case["weights"]));
        } else if !case["args"]["rollout_rs"].is_null() {
            cases.push(("verl/rollout_rs", given, &case["mask"]));
        }
    }
    for (at, (recipe, parameters, expected)) in cases.into_iter().enumerate() {
        let name = format!("case{at}");
        let mut command = vec!["credit", recipe, "--reward", "verifier_value", "--name", name.as_str(), "--lake", LAKE];
        parameters.iter().for_each(|parameter| command.extend(["--param", parameter.as_str()]));
        scratch.ok(&command);
        let stored = scratch.rows(LAKE, &format!("SELECT call_id, token_values FROM credits WHERE name = '{name}'"));
        assert_eq!(stored.len(), places.len(), "{recipe}");
        let expected = rows(expected);
        for row in &stored {
            let (line, start, end) = places[row["call_id"].as_str().unwrap()];
            let found: Vec<f64> = row["token_values"].as_array().unwrap().iter().map(number).collect();
            assert_eq!(found.len(), end - start, "{recipe}");
            for (one, other) in found.iter().zip(&expected[line][start..end]) {
                assert!((one - other).abs() <= STORED, "{recipe} {parameters:?}: {found:?} is not {expected:?}");
            }
        }
    }
}
