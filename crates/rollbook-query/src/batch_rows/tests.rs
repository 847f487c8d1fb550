//! Where the operator stands, and that the rows stay the same.

use std::sync::Arc;

use datafusion::arrow::array::{AsArray, RecordBatch};
use datafusion::arrow::datatypes::Int64Type;
use datafusion::execution::SessionStateBuilder;
use datafusion::physical_plan::{collect, displayable};
use datafusion::prelude::{SessionConfig, SessionContext};

use super::BatchRows;

/// Runs a query whose long rows come 2 a batch, and gives the plan and what came.
async fn run(sql: &str, short: usize) -> (String, Vec<RecordBatch>) {
    let state = SessionStateBuilder::new()
        .with_config(SessionConfig::new().with_batch_size(2).with_target_partitions(1))
        .with_default_features()
        .with_physical_optimizer_rule(Arc::new(BatchRows { long: 2, short }));
    let context = SessionContext::new_with_state(state.build());
    let plan = context.sql(sql).await.unwrap().create_physical_plan().await.unwrap();
    let shown = displayable(plan.as_ref()).indent(false).to_string();
    (shown, collect(plan, context.task_ctx()).await.unwrap())
}

fn numbers(batches: &[RecordBatch]) -> Vec<i64> {
    batches.iter().flat_map(|batch| batch.column(0).as_primitive::<Int64Type>().values().to_vec()).collect()
}

/// The numbers below each of 0 to 8 as lists, cut open again: 5 comes of 6, 7 and 8, 6 of 7 and 8, 7 of 8.
const OPENED: &str =
    "SELECT n FROM (SELECT unnest(range(0, value)) AS n FROM range(0, 9)) WHERE n > 4 AND n < 8 ORDER BY n";

#[tokio::test]
async fn what_comes_out_of_long_rows_comes_in_large_batches() {
    let (plan, batches) = run(OPENED, 100).await;
    assert_eq!(numbers(&batches), [5, 5, 5, 6, 6, 7]);
    assert_eq!(batches.len(), 1, "{plan}");
    assert!(plan.contains("BatchRowsExec: rows=100") && plan.contains("BatchRowsExec: rows=2"), "{plan}");
}

#[tokio::test]
async fn long_rows_stay_few_a_batch() {
    let (plan, batches) = run("SELECT range(0, value) AS n FROM range(0, 9) ORDER BY value", 100).await;
    assert!(batches.len() >= 4 && batches.iter().all(|batch| batch.num_rows() <= 2), "{plan}");
}

#[tokio::test]
async fn where_no_row_is_long_nothing_is_put_in() {
    let (plan, batches) = run(OPENED, 2).await;
    assert_eq!(numbers(&batches), [5, 5, 5, 6, 6, 7]);
    assert!(!plan.contains("BatchRowsExec") && batches.len() == 3, "{plan}");
}
