//! The operator against the same windows group by group.

use datafusion::arrow::util::pretty::pretty_format_batches;

use crate::fixture::Scratch;
use crate::session::{Session, SessionOptions};

/// Rows of two runs with groups of 1 to 7 rollouts, some of them twice, some without a value, some without a group.
const ROWS: &str = "SELECT
        concat('r', value % 2) AS run_id,
        CASE WHEN value % 11 = 0 THEN NULL ELSE concat('g', value % 13) END AS group_id,
        concat('rollout', value % 120) AS rollout_id,
        CASE WHEN value % 120 % 17 = 0 THEN NULL ELSE CAST(value % 120 % 5 AS DOUBLE) / 4 END AS value
    FROM generate_series(0, 239) AS t(value)";

async fn text(session: &Session, sql: &str) -> String {
    pretty_format_batches(&session.collect(sql).await.unwrap()).unwrap().to_string()
}

/// The same windows in two forms: alone, and beside a function that keeps `DataFusion`'s operator.
fn query(more: &str) -> String {
    format!(
        "SELECT run_id, group_id, rollout_id, value, grpo, loo, n FROM (
            SELECT *,
                grpo(value, rollout_id) OVER (PARTITION BY run_id, group_id) AS grpo,
                rloo(value, rollout_id, singleton => 'null') OVER (PARTITION BY run_id, group_id) AS loo,
                rollout_count(value, rollout_id) OVER (PARTITION BY run_id, group_id) AS n{more}
            FROM ({ROWS})
        ) ORDER BY run_id, group_id, rollout_id, value"
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn all_groups_at_once_give_what_group_by_group_gives() {
    let scratch = Scratch::new().await;
    let alone = query("");
    let beside =
        query(", count(*) OVER (PARTITION BY run_id, group_id) AS rows").replace("loo, n FROM", "loo, n, rows FROM");
    let session = scratch.session().await;
    let plan = text(&session, &format!("EXPLAIN {alone}")).await;
    assert!(plan.contains("GroupedWindowExec: by=[run_id") && !plan.contains("WindowAggExec: wdw"), "{plan}");
    let other = text(&session, &format!("EXPLAIN {beside}")).await;
    assert!(!other.contains("GroupedWindowExec"), "{other}");
    let expected = text(&session, &beside.replace("n, rows FROM", "n FROM")).await;
    for threads in [1, 2, 5] {
        let options = SessionOptions { threads, ..SessionOptions::default() };
        let session = Session::open(&scratch.lake, None, options).await.unwrap();
        assert_eq!(text(&session, &alone).await, expected);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn only_columns_that_are_asked_for_are_held() {
    let scratch = Scratch::new().await;
    let session = scratch.session().await;
    let asked = |columns: &str, more: &str| {
        format!(
            "SELECT {columns} FROM (SELECT *,
                rollout_count(value, rollout_id) OVER (PARTITION BY run_id, group_id) AS n,
                grpo(value, rollout_id) OVER (PARTITION BY run_id, group_id) AS grpo{more} FROM ({ROWS}))"
        )
    };
    let beside = ", count(*) OVER (PARTITION BY run_id, group_id) AS rows";
    let kept = "kept=[rollout_id, grpo(";
    let plan = text(&session, &format!("EXPLAIN {}", asked("grpo + 1.0 AS g, rollout_id", ""))).await;
    assert!(plan.contains(kept), "{plan}");
    for columns in [
        "grpo + 1.0 AS g, rollout_id",
        "n, upper(rollout_id) AS r, n AS again",
        "grpo",
        "value, n, grpo",
        "count(*) AS c",
    ] {
        let order = if columns.starts_with("count") { "" } else { " ORDER BY ALL" };
        let order = order
            .replace("ALL", &(1..=columns.split(',').count()).map(|n| n.to_string()).collect::<Vec<_>>().join(", "));
        let [alone, other] = ["", beside].map(|more| asked(columns, more) + &order);
        assert_eq!(text(&session, &alone).await, text(&session, &other).await, "{columns}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn windows_without_a_partition_and_over_no_rows() {
    let scratch = Scratch::new().await;
    let session = scratch.session().await;
    let one = "SELECT sum(credit), count(credit) FROM (SELECT dr_grpo(value, concat('r', value)) OVER () AS credit FROM generate_series(1, 5) AS t(value) WHERE value < LIMIT)";
    assert!(text(&session, &one.replace("LIMIT", "9")).await.contains("| 0.0 "));
    let none = text(&session, &one.replace("LIMIT", "0")).await;
    assert!(none.contains("| 0 "), "{none}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fault_names_the_rollout_and_memory_has_an_end() {
    let scratch = Scratch::new().await;
    let session = scratch.session().await;
    let fault = "SELECT grpo(value, rollout_id) OVER (PARTITION BY g) FROM (VALUES ('g', 'a', 1.0), ('g', 'a', 0.5)) AS t(g, rollout_id, value)";
    let message = session.collect(fault).await.unwrap_err().to_string();
    assert!(message.contains("rollout \"a\" has two values in one group: 0.5 and 1.0"), "{message}");
    let options = SessionOptions { memory_limit: 1 << 20, threads: 1, spill_dir: None };
    let small = Session::open(&scratch.lake, None, options).await.unwrap();
    let large = "SELECT count(c) FROM (SELECT grpo(value, CAST(value AS VARCHAR)) OVER (PARTITION BY value % 100) AS c FROM generate_series(1, 300000) AS t(value))";
    let message = small.collect(large).await.unwrap_err().to_string();
    assert!(message.contains("GroupedWindowExec"), "{message}");
}
