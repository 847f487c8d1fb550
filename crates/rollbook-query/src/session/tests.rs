//! What a session reads, what it refuses, and that reading gives back what was written.

use std::collections::BTreeMap;

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::{Int32Type, Int64Type};
use arrow::util::pretty::pretty_format_batches;
use datafusion::common::ScalarValue;
use datafusion_proto::bytes::{
    physical_plan_from_bytes_with_extension_codec, physical_plan_to_bytes_with_extension_codec,
};
use rstest::rstest;
use serde_json::{Value, json};

use super::{PlanOptions, Session, parse};
use crate::fixture::Scratch;
use crate::provider::PlanCodec;

fn call(rollout: &str, index: i32, prompt: &[i32], output: &[i32]) -> Value {
    json!({
        "run_id": "r", "step": 1, "group_id": "g", "rollout_id": rollout, "call_id": format!("{rollout}-{index}"),
        "call_index": index, "turn_index": index,
        "parent_call_id": (index > 0).then(|| format!("{rollout}-{}", index - 1)),
        "prompt_token_ids": prompt, "output_token_ids": output,
        "output_logprobs": output.iter().map(|id| -0.5 * f64::from(*id)).collect::<Vec<_>>(),
        "prompt_exactness": "engine", "output_exactness": "engine", "logprobs_source": "engine", "policy_version": 7,
        "request": json!({"model": "m", "messages": [{"role": "user", "content": format!("hi {index}")}]}).to_string(),
    })
}

fn rollout(id: &str, revision: i64, status: &str) -> Value {
    json!({"run_id": "r", "rollout_id": id, "step": 1, "group_id": "g", "status": status, "revision": revision})
}

async fn rows(session: &Session, sql: &str) -> Vec<RecordBatch> {
    session.collect(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"))
}

async fn table(session: &Session, sql: &str) -> String {
    pretty_format_batches(&rows(session, sql).await).unwrap().to_string()
}

async fn number(session: &Session, sql: &str) -> i64 {
    rows(session, sql).await[0].column(0).as_primitive::<Int64Type>().value(0)
}

async fn chains() -> Scratch {
    let scratch = Scratch::new().await;
    scratch
        .add(
            "calls",
            json!([
                call("a", 0, &[1, 2, 3], &[4, 5]),
                call("a", 1, &[1, 2, 3, 4, 5, 6], &[7]),
                call("a", 2, &[1, 2, 9], &[8, 8, 8]),
                call("b", 0, &[1], &[2]),
            ]),
        )
        .await;
    scratch
}

#[rstest]
#[case("INSERT INTO calls SELECT * FROM calls")]
#[case("DELETE FROM calls")]
#[case("UPDATE calls SET step = 1")]
#[case("CREATE TABLE t AS SELECT 1")]
#[case("CREATE VIEW v AS SELECT 1")]
#[case("CREATE EXTERNAL TABLE t STORED AS CSV LOCATION '/etc/passwd'")]
#[case("DROP TABLE calls")]
#[case("COPY (SELECT 1) TO '/data/rollbook-copy.parquet'")]
#[case("COPY calls TO '/data/rollbook-copy.csv'")]
#[case("SET datafusion.execution.batch_size = 1")]
#[case("RESET datafusion.execution.batch_size")]
#[case("PREPARE p AS SELECT 1")]
#[case("BEGIN TRANSACTION")]
#[case("COMMIT")]
#[case("TRUNCATE TABLE calls")]
#[case("EXPLAIN INSERT INTO calls SELECT * FROM calls")]
#[case("EXPLAIN ANALYZE INSERT INTO calls SELECT * FROM calls")]
#[case("EXPLAIN CREATE TABLE t AS SELECT 1")]
#[case("SELECT * INTO t FROM calls")]
#[case("WITH x AS (INSERT INTO calls SELECT * FROM calls) SELECT 1")]
#[case("SELECT * FROM '/etc/passwd'")]
#[case("SELECT * FROM \"/etc/passwd\"")]
#[case("SELECT * FROM 's3://bucket/key.parquet'")]
#[case("SELECT * FROM read_csv('/etc/passwd')")]
#[case("SELECT * FROM parquet_metadata('/etc/passwd')")]
#[case("SELECT 1; SELECT 2")]
#[case("")]
#[tokio::test]
async fn anything_but_one_query_is_refused(#[case] sql: &str) {
    let scratch = chains().await;
    let session = scratch.session().await;
    let outcome = session.collect(sql).await;
    assert!(outcome.is_err(), "{sql} ran");
    assert_eq!(number(&session, "SELECT count(*) FROM calls").await, 4);
    assert!(!std::path::Path::new("/data/rollbook-copy.parquet").exists());
}

#[rstest]
#[case("SHOW TABLES")]
#[case("DESCRIBE calls")]
#[case("EXPLAIN SELECT * FROM calls")]
#[case("FROM calls SELECT call_id")]
#[case("WITH t AS (SELECT 1 AS x) SELECT * FROM t")]
#[case("VALUES (1), (2)")]
#[case("SELECT * FROM range(3)")]
#[case("SELECT request -> 'model', request ->> 'model' FROM calls")]
#[case("SELECT * EXCLUDE (request) FROM calls")]
#[case("SELECT * FROM calls WHERE call_id IS NOT DISTINCT FROM 'a' AND step IS DISTINCT FROM 1 OR step = 2")]
#[tokio::test]
async fn queries_and_questions_run(#[case] sql: &str) {
    let scratch = chains().await;
    let session = scratch.session().await;
    session.collect(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
}

#[tokio::test]
async fn prompts_and_requests_come_back_as_they_went_in() {
    let scratch = chains().await;
    let session = scratch.session().await;
    let found = table(
        &session,
        "SELECT call_id, prompt_token_ids, request ->> 'messages' AS messages FROM calls ORDER BY call_id",
    )
    .await;
    assert_eq!(
        found,
        "\
+---------+--------------------+------------------------------------+
| call_id | prompt_token_ids   | messages                           |
+---------+--------------------+------------------------------------+
| a-0     | [1, 2, 3]          | [{\"role\":\"user\",\"content\":\"hi 0\"}] |
| a-1     | [1, 2, 3, 4, 5, 6] | [{\"role\":\"user\",\"content\":\"hi 1\"}] |
| a-2     | [1, 2, 9]          | [{\"role\":\"user\",\"content\":\"hi 2\"}] |
| b-0     | [1]                | [{\"role\":\"user\",\"content\":\"hi 0\"}] |
+---------+--------------------+------------------------------------+"
    );
}

#[tokio::test]
async fn a_filter_on_a_call_still_finds_its_base() {
    let scratch = chains().await;
    let session = scratch.session().await;
    let batches = rows(&session, "SELECT prompt_token_ids FROM calls WHERE call_id = 'a-1' AND step = 1").await;
    let prompt = batches[0].column(0).as_list::<i32>().value(0);
    assert_eq!(prompt.as_primitive::<Int32Type>().values(), &[1, 2, 3, 4, 5, 6]);
}

#[tokio::test]
async fn the_plan_shows_that_prompts_cost_nothing_unless_asked_for() {
    let scratch = chains().await;
    let session = scratch.session().await;
    let without = table(&session, "EXPLAIN SELECT call_id, prompt_len FROM calls WHERE step = 1").await;
    assert!(!without.contains("DecodeExec") && !without.contains("prompt_suffix"), "{without}");
    let with = table(&session, "EXPLAIN SELECT prompt_token_ids FROM calls WHERE step = 1 AND call_id = 'x'").await;
    assert!(with.contains("DecodeExec: columns="), "{with}");
    let scan = with.lines().find(|line| line.contains("DataSourceExec")).unwrap();
    assert!(scan.contains("predicate=step"), "the rollout's keys go below: {scan}");
    assert!(!scan.contains("call_id@") || !scan.contains("call_id = x"), "a call's key does not: {scan}");
}

#[tokio::test]
async fn a_plan_with_decoding_survives_being_sent() {
    let scratch = chains().await;
    let session = scratch.session().await;
    for sql in [
        "SELECT call_id, prompt_token_ids FROM calls ORDER BY call_id",
        "SELECT call_id, position, token_id FROM tokens ORDER BY call_id, position",
        "SELECT call_id, grpo(prompt_len, call_id, eps => 0.5) OVER (PARTITION BY run_id) FROM calls ORDER BY call_id",
    ] {
        let frame = session.sql(sql).await.unwrap();
        let context = frame.task_ctx();
        let plan = frame.create_physical_plan().await.unwrap();
        let bytes = physical_plan_to_bytes_with_extension_codec(plan, &PlanCodec).unwrap();
        let plan = physical_plan_from_bytes_with_extension_codec(&bytes, &context, &PlanCodec).unwrap();
        let found = datafusion::physical_plan::collect(plan, context.into()).await.unwrap();
        let expected = rows(&session, sql).await;
        let text = |batches: &[RecordBatch]| pretty_format_batches(batches).unwrap().to_string();
        assert_eq!(text(&found), text(&expected));
    }
}

#[tokio::test]
async fn files_of_other_runs_are_not_opened() {
    let scratch = chains().await;
    let mut other = call("z", 0, &[1], &[2]);
    other["run_id"] = json!("other");
    scratch.add("calls", json!([other])).await;
    let session = scratch.session().await;
    let plan = table(&session, "EXPLAIN SELECT call_id FROM calls WHERE run_id = 'other'").await;
    let scan = plan.lines().find(|line| line.contains("DataSourceExec")).unwrap();
    assert_eq!(scan.matches(".parquet").count(), 1, "{scan}");
    assert_eq!(number(&session, "SELECT count(*) FROM calls WHERE run_id = 'other'").await, 1);
}

#[tokio::test]
async fn a_keyed_table_shows_the_highest_revision_and_its_history_all() {
    let scratch = Scratch::new().await;
    scratch.add("rollouts", json!([rollout("a", 0, "running"), rollout("b", 0, "completed")])).await;
    let session = scratch.session().await;
    let plan = table(&session, "EXPLAIN SELECT status FROM rollouts").await;
    assert!(!plan.contains("Window"), "one revision needs no window: {plan}");
    scratch.add("rollouts", json!([rollout("a", 1, "completed")])).await;
    let session = scratch.session().await;
    let found = table(&session, "SELECT rollout_id, revision, status FROM rollouts ORDER BY rollout_id").await;
    assert_eq!(
        found,
        "\
+------------+----------+-----------+
| rollout_id | revision | status    |
+------------+----------+-----------+
| a          | 1        | completed |
| b          | 0        | completed |
+------------+----------+-----------+"
    );
    assert_eq!(number(&session, "SELECT count(*) FROM rollouts_history").await, 3);
}

#[tokio::test]
async fn the_newest_score_and_derivation_are_shown() {
    let scratch = Scratch::new().await;
    let score = |id: &str, at: &str, value: f64| json!({"run_id": "r", "rollout_id": "a", "score_id": id, "verifier": "v", "value": value, "scored_at": at});
    scratch
        .add("scores", json!([score("2", "2026-02-01T00:00:00Z", 2.0), score("1", "2026-01-01T00:00:00Z", 1.0)]))
        .await;
    let reward = |derivation: &str, at: &str, value: f64| json!({"run_id": "r", "name": "n", "rollout_id": "a", "derivation_id": derivation, "created_at": at, "value": value});
    scratch.add("rewards", json!([reward("new", "2026-02-01T00:00:00Z", 2.0)])).await;
    scratch.add("rewards", json!([reward("old", "2026-01-01T00:00:00Z", 1.0)])).await;
    let session = scratch.session().await;
    let values = |batches: &[RecordBatch]| -> Vec<f64> {
        batches
            .iter()
            .flat_map(|batch| batch.column(0).as_primitive::<arrow::datatypes::Float64Type>().values().to_vec())
            .collect()
    };
    assert_eq!(values(&rows(&session, "SELECT value FROM scores").await), [2.0]);
    assert_eq!(values(&rows(&session, "SELECT value FROM rewards").await), [2.0]);
    assert_eq!(number(&session, "SELECT count(*) FROM scores_history").await, 2);
    assert_eq!(number(&session, "SELECT count(*) FROM rewards_history").await, 2);
}

#[tokio::test]
async fn step_and_group_of_early_rows_come_from_their_rollout() {
    let scratch = Scratch::new().await;
    let mut early = call("a", 0, &[1], &[2]);
    early["step"] = Value::Null;
    early["group_id"] = Value::Null;
    scratch.add_unresolved("calls", json!([early])).await;
    scratch.add("calls", json!([call("b", 0, &[1, 2], &[2])])).await;
    scratch.add("rollouts", json!([rollout("a", 0, "running")])).await;
    let session = scratch.session().await;
    assert_eq!(number(&session, "SELECT count(*) FROM calls WHERE step = 1 AND group_id = 'g'").await, 2);
    let found =
        table(&session, "SELECT rollout_id, step, group_id, prompt_token_ids FROM calls ORDER BY rollout_id").await;
    assert_eq!(
        found,
        "\
+------------+------+----------+------------------+
| rollout_id | step | group_id | prompt_token_ids |
+------------+------+----------+------------------+
| a          | 1    | g        | [1]              |
| b          | 1    | g        | [1, 2]           |
+------------+------+----------+------------------+"
    );
}

#[tokio::test]
async fn every_table_and_view_of_an_empty_lake_can_be_read() {
    let session = Scratch::new().await.session().await;
    let names = session.schema_provider().unwrap().table_names();
    assert!(names.len() > 25, "{names:?}");
    for name in names {
        let found = rows(&session, &format!("SELECT * FROM {name}")).await;
        assert_eq!(found.iter().map(RecordBatch::num_rows).sum::<usize>(), 0, "{name}");
    }
}

#[tokio::test]
async fn parameters_are_typed_and_missing_ones_named() {
    let session = Scratch::new().await.session().await;
    let params = BTreeMap::from([("n".to_owned(), ScalarValue::from(3_i64))]);
    let found = session.sql_with("SELECT $n + 1 AS m", &params).await.unwrap().collect().await.unwrap();
    assert_eq!(found[0].column(0).as_primitive::<Int64Type>().value(0), 4);
    let error = session.sql("SELECT $n").await.unwrap_err();
    assert!(error.to_string().contains("$n"), "{error}");
}

#[rstest]
#[case("SELECT random()")]
#[case("SELECT uuid()")]
#[case("SELECT now()")]
#[case("SELECT current_date")]
#[case("SELECT * FROM calls WHERE random() > 0.5")]
#[case("SELECT (SELECT random())")]
#[case("SELECT stddev(policy_version) FROM calls")]
#[case("SELECT array_agg(call_id) FROM calls")]
#[tokio::test]
async fn a_recipe_may_not_depend_on_chance_time_or_order(#[case] sql: &str) {
    let session = Scratch::new().await.session().await;
    let options = PlanOptions { deterministic: true, ..PlanOptions::default() };
    assert!(session.plan(parse(sql).unwrap(), &options).await.is_err(), "{sql} was planned");
}

#[tokio::test]
async fn float_sums_of_a_recipe_are_exact() {
    let session = Scratch::new().await.session().await;
    let options = PlanOptions { deterministic: true, ..PlanOptions::default() };
    let sql = "SELECT sum(x) AS s, avg(x) AS a, sum(n) AS i FROM (VALUES (1e16, 1), (1.0, 2), (-1e16, 3)) AS t(x, n)";
    let plan = session.plan(parse(sql).unwrap(), &options).await.unwrap();
    let text = plan.display_indent().to_string();
    assert!(text.contains("exact_sum") && text.contains("exact_avg") && text.contains("sum(t.n)"), "{text}");
    let found = session.frame(plan).unwrap().collect().await.unwrap();
    assert!((found[0].column(0).as_primitive::<arrow::datatypes::Float64Type>().value(0) - 1.0).abs() < f64::EPSILON);
}

#[tokio::test]
async fn a_recipe_sees_its_upstream_as_a_view() {
    let scratch = chains().await;
    let session = scratch.session().await;
    let plan = session.plan(parse("SELECT 1 AS value").unwrap(), &PlanOptions::default()).await.unwrap();
    let inside = session.with_view("reward", plan).unwrap();
    assert_eq!(number(&inside, "SELECT value + count(*) AS n FROM reward, calls GROUP BY value").await, 5);
    assert!(session.sql("SELECT * FROM reward").await.is_err(), "the outer session stays as it was");
}

#[tokio::test]
async fn tokens_have_one_row_for_each_output_token() {
    let scratch = Scratch::new().await;
    let mut first = call("a", 0, &[1, 2], &[4, 5, 6]);
    first["sampled_mask"] = json!([true, false, true]);
    first["policy_spans"] = json!([{"start": 0, "policy_version": 7}, {"start": 2, "policy_version": 8}]);
    let mut silent = call("a", 1, &[1, 2], &[]);
    silent["output_token_ids"] = Value::Null;
    silent["output_logprobs"] = Value::Null;
    scratch.add("calls", json!([first, silent, call("b", 0, &[1], &[9])])).await;
    let signal =
        json!({"run_id": "r", "rollout_id": "a", "call_id": "a-0", "name": "value", "values": [0.5, null, 1.5]});
    scratch.add("token_signals", json!([signal])).await;
    scratch.add("builds", json!([{"build_id": "B", "run_id": "r"}])).await;
    let segment = json!({"start": 2, "length": 3, "sequence_index": 0, "rollout_id": "a", "call_id": "a-0",
        "source": "output", "source_start": 0, "trained": true});
    scratch
        .add(
            "samples",
            json!([{"build_id": "B", "run_id": "r", "row_index": 0, "token_ids": [1, 2, 4, 5, 6],
                "action_mask": [false, false, true, false, true], "advantages": [0, 0, 0.5, 0.5, 0.5],
                "loss_weights": [0, 0, 0.25, 0, 0.25], "segments": [segment]}]),
        )
        .await;
    let session = scratch.session().await;
    let found = table(
        &session,
        "SELECT call_id, position, token_id, logprob, is_sampled, policy_version, signals, \
        advantage, loss_weight, trained FROM tokens ORDER BY call_id, position",
    )
    .await;
    assert_eq!(
        found,
        "\
+---------+----------+----------+---------+------------+----------------+--------------+-----------+-------------+---------+
| call_id | position | token_id | logprob | is_sampled | policy_version | signals      | advantage | loss_weight | trained |
+---------+----------+----------+---------+------------+----------------+--------------+-----------+-------------+---------+
| a-0     | 0        | 4        | -2.0    | true       | 7              | {value: 0.5} | 0.5       | 0.25        | true    |
| a-0     | 1        | 5        | -2.5    | false      | 7              | {value: }    | 0.5       | 0.0         | false   |
| a-0     | 2        | 6        | -3.0    | true       | 8              | {value: 1.5} | 0.5       | 0.25        | true    |
| b-0     | 0        | 9        | -4.5    | true       | 7              |              |           |             | false   |
+---------+----------+----------+---------+------------+----------------+--------------+-----------+-------------+---------+"
    );
    let plan = table(&session, "EXPLAIN SELECT logprob FROM tokens WHERE run_id = 'r'").await;
    assert!(!plan.contains("samples") && !plan.contains("output_token_ids") && plan.contains("TokensExec"), "{plan}");
    assert_eq!(number(&session, "SELECT count(*) FROM tokens WHERE rollout_id = 'a' AND trained").await, 2);
}

#[tokio::test]
async fn transitions_tell_extensions_from_rewrites_without_reading_tokens() {
    let scratch = chains().await;
    let session = scratch.session().await;
    let sql = "SELECT call_id, parent_call_id, token_relation, first_difference, tokens_lost FROM transitions ORDER BY call_id";
    assert_eq!(
        table(&session, sql).await,
        "\
+---------+----------------+----------------+------------------+-------------+
| call_id | parent_call_id | token_relation | first_difference | tokens_lost |
+---------+----------------+----------------+------------------+-------------+
| a-0     |                |                |                  |             |
| a-1     | a-0            | extends        |                  | 0           |
| a-2     | a-1            | rewrites       | 2                | 5           |
| b-0     |                |                |                  |             |
+---------+----------------+----------------+------------------+-------------+"
    );
    assert!(!table(&session, &format!("EXPLAIN {sql}")).await.contains("DecodeExec"));
    let observed = "SELECT observed_break FROM transitions WHERE call_id = 'a-2'";
    assert!(table(&session, observed).await.contains("harness"), "its messages start anew");
    assert!(table(&session, &format!("EXPLAIN {observed}")).await.contains("DecodeExec: columns="));
}

#[tokio::test]
async fn contexts_join_prompt_and_output() {
    let scratch = chains().await;
    let session = scratch.session().await;
    let batches = rows(&session, "SELECT context_token_ids FROM contexts WHERE call_id = 'a-1'").await;
    let context = batches[0].column(0).as_list::<i32>().value(0);
    assert_eq!(context.as_primitive::<Int32Type>().values(), &[1, 2, 3, 4, 5, 6, 7]);
}

#[tokio::test]
async fn the_contract_says_what_a_rollout_is_good_for_and_why_not_more() {
    let scratch = chains().await;
    let mut bare = call("c", 0, &[1], &[2]);
    bare["logprobs_source"] = Value::Null;
    scratch.add("calls", json!([bare])).await;
    scratch
        .add("rollouts", json!([rollout("a", 0, "completed"), rollout("c", 0, "completed"), rollout("d", 0, "failed")]))
        .await;
    let session = scratch.session().await;
    let sql = "SELECT rollout_id, call_count, sampled_token_count AS tokens, engine_logprob_token_share AS share, verdict, why FROM contract ORDER BY rollout_id";
    assert_eq!(
        table(&session, sql).await,
        "\
+------------+------------+--------+-------+---------+--------------------------------------------------------------------+
| rollout_id | call_count | tokens | share | verdict | why                                                                |
+------------+------------+--------+-------+---------+--------------------------------------------------------------------+
| a          | 3          | 6      | 1.0   | train   |                                                                    |
| c          | 1          | 1      | 0.0   | score   | 1 trainable calls without an engine logprob on every sampled token |
| d          | 0          | 0      |       | read    | it has no call                                                     |
+------------+------------+--------+-------+---------+--------------------------------------------------------------------+"
    );
}
