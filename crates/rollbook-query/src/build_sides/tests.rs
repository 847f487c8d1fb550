//! A join that holds many slices of one aggregate stays within its memory.

use std::sync::Arc;

use datafusion::arrow::util::pretty::pretty_format_batches;
use datafusion::execution::memory_pool::GreedyMemoryPool;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::execution::{SessionStateBuilder, TaskContext};
use datafusion::physical_plan::{ExecutionPlan, collect, displayable};
use datafusion::prelude::{SessionConfig, SessionContext};

use super::CompactBuildSides;

const GROUPS: usize = 2_000;

/// Joins one number to `GROUPS` texts of 400 bytes that an aggregate makes, in batches of 2 rows.
async fn plan(with_rule: bool) -> (Arc<dyn ExecutionPlan>, Arc<TaskContext>) {
    let runtime = RuntimeEnvBuilder::new().with_memory_pool(Arc::new(GreedyMemoryPool::new(16 << 20)));
    let config = SessionConfig::new().with_batch_size(2).with_target_partitions(1);
    let mut builder = SessionStateBuilder::new()
        .with_config(config)
        .with_runtime_env(runtime.build_arc().unwrap())
        .with_default_features();
    if with_rule {
        builder = builder.with_physical_optimizer_rule(Arc::new(CompactBuildSides));
    }
    let context = SessionContext::new_with_state(builder.build());
    let sql = format!(
        "SELECT count(*) AS n, sum(length(texts)) AS bytes FROM (
            SELECT value, string_agg(repeat('x', 400), '') AS texts FROM range(0, {GROUPS}) GROUP BY value
        ) AS held JOIN range(0, {}) AS other ON held.value = other.value",
        GROUPS * 10
    );
    let frame = context.sql(&sql).await.unwrap();
    (frame.create_physical_plan().await.unwrap(), context.task_ctx())
}

#[tokio::test]
async fn slices_of_an_aggregate_do_not_exhaust_a_join() {
    let (plan, task) = plan(true).await;
    let shown = displayable(plan.as_ref()).indent(false).to_string();
    assert!(shown.contains("CompactExec"), "{shown}");
    let rows = pretty_format_batches(&collect(plan, task).await.unwrap()).unwrap().to_string();
    assert!(rows.contains(&format!("| {GROUPS} | {} |", GROUPS * 400)), "{rows}");
}

#[tokio::test]
async fn without_the_operator_they_would() {
    let (plan, task) = plan(false).await;
    let error = collect(plan, task).await.unwrap_err().to_string();
    assert!(error.contains("HashJoinInput"), "{error}");
}
