//! Where the operator stands, and that the rows stay the same.

use std::sync::Arc;

use datafusion::arrow::util::pretty::pretty_format_batches;
use datafusion::execution::memory_pool::GreedyMemoryPool;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::execution::{SessionStateBuilder, TaskContext};
use datafusion::physical_plan::{ExecutionPlan, collect, displayable};
use datafusion::prelude::{SessionConfig, SessionContext};

use super::{CompactBuildSides, CompactSortInputs};

const GROUPS: usize = 2_000;

/// A session of 16 MB whose batches have 2 rows.
fn context() -> (SessionContext, Arc<TaskContext>) {
    let runtime = RuntimeEnvBuilder::new().with_memory_pool(Arc::new(GreedyMemoryPool::new(16 << 20)));
    let config = SessionConfig::new().with_batch_size(2).with_target_partitions(1);
    let builder = SessionStateBuilder::new()
        .with_config(config)
        .with_runtime_env(runtime.build_arc().unwrap())
        .with_default_features()
        .with_physical_optimizer_rule(Arc::new(CompactBuildSides))
        .with_physical_optimizer_rule(Arc::new(CompactSortInputs));
    let context = SessionContext::new_with_state(builder.build());
    let task = context.task_ctx();
    (context, task)
}

/// Joins numbers to `GROUPS` texts of 400 bytes that an aggregate makes and a projection passes on, in batches of 2 rows.
async fn plan() -> (Arc<dyn ExecutionPlan>, Arc<TaskContext>) {
    let (context, task) = context();
    let sql = format!(
        "SELECT count(*) AS n, sum(length(texts[1])) AS bytes FROM (
            SELECT value, array_agg(repeat('x', 400) ORDER BY value) AS texts FROM range(0, {GROUPS}) GROUP BY value
        ) AS held RIGHT JOIN range(0, {GROUPS}) AS other ON held.value = other.value"
    );
    let frame = context.sql(&sql).await.unwrap();
    (frame.create_physical_plan().await.unwrap(), task)
}

#[tokio::test]
async fn a_join_of_groups_compacts_what_it_holds_and_gives_the_same() {
    let (plan, task) = plan().await;
    let shown = displayable(plan.as_ref()).indent(false).to_string();
    assert!(shown.contains("CompactExec"), "{shown}");
    let rows = pretty_format_batches(&collect(plan, task).await.unwrap()).unwrap().to_string();
    assert!(rows.contains(&format!("| {GROUPS} | {} |", GROUPS * 400)), "{rows}");
}

/// A sort of the same groups by something else: 2,000 slices of one batch of 800 KB would count 1.6 GB.
#[tokio::test]
async fn a_sort_of_groups_compacts_what_it_takes_in() {
    let (context, task) = context();
    let sql = format!(
        "SELECT min(value) AS n FROM (
            SELECT value, texts, row_number() OVER (ORDER BY value % 7, value DESC) AS place FROM (
                SELECT value, array_agg(repeat('x', 400) ORDER BY value) AS texts FROM range(0, {GROUPS}) GROUP BY value
            )
        ) WHERE place = 2 AND length(texts[1]) = 400"
    );
    let plan = context.sql(&sql).await.unwrap().create_physical_plan().await.unwrap();
    let shown = displayable(plan.as_ref()).indent(false).to_string();
    assert!(shown.contains("CompactExec"), "{shown}");
    // The largest multiple of 7 below 2,000 is 1,995; the one before it is second.
    let rows = pretty_format_batches(&collect(plan, task).await.unwrap()).unwrap().to_string();
    assert!(rows.contains("| 1988 |"), "{rows}");
}
