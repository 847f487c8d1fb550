//! `DataFusion` set up for a lake: memory, spill folder, object store, functions and options.

use std::sync::Arc;

use datafusion::catalog::{CatalogProvider, MemoryCatalogProvider};
use datafusion::config::{ConfigNonZeroUsize, SpillCompression};
use datafusion::execution::SessionStateBuilder;
use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::memory_pool::MemoryPool;
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use datafusion::optimizer::{Optimizer, OptimizerRule};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;
use datafusion::prelude::{SessionConfig, SessionContext};
use rollbook_functions::Encodings;
use rollbook_lake::Lake;

use super::catalog::LakeSchema;
use super::count::count;
use super::pool::Pool;
use super::{CATALOG, SCHEMA, SessionOptions};
use crate::build_sides::{CompactBuildSides, CompactSortInputs};
use crate::constant_filters::ConstantFilters;
use crate::encodings::LakeEncodings;
use crate::error::Result;
use crate::filters_down::FiltersDown;
use crate::grouped::GroupWindowsAtOnce;
use crate::lists::ReadLists;
use crate::null_safe_joins::{PlainKeys, Planner};
use crate::orders_as_written::OrdersAsWritten;
use crate::provider;

/// Table functions that read nothing from outside.
const TABLE_FUNCTIONS: [&str; 2] = ["range", "generate_series"];

/// How rows are spilled: a third of the disk or less, for a tenth of the time of a build.
pub(crate) const SPILL_COMPRESSION: SpillCompression = SpillCompression::Zstd;

/// What a sort sets aside for merging its spilled parts, where the pool is large enough.
const MERGE_BYTES: usize = 10 << 20;
/// Sorts, over all threads, that a plan may run at once.
const SORTS_AT_ONCE: usize = 64;

/// Builds the context of a session, without tables.
pub(super) fn context(lake: &Lake, options: &SessionOptions, encodings: &Arc<LakeEncodings>) -> Result<SessionContext> {
    let mut state = SessionStateBuilder::new()
        .with_config(config(options)?)
        .with_runtime_env(runtime(lake, options)?)
        .with_default_features()
        .with_optimizer_rules(logical_rules())
        .with_query_planner(Arc::new(Planner))
        .with_physical_optimizer_rules(rules())
        .build();
    let names: Vec<String> = state.table_functions().keys().cloned().collect();
    for name in names.iter().filter(|name| !TABLE_FUNCTIONS.contains(&name.as_str())) {
        state.deregister_udtf(name)?;
    }
    let mut context = SessionContext::new_with_state(state);
    let catalog = MemoryCatalogProvider::new();
    catalog.register_schema(SCHEMA, Arc::new(LakeSchema::default()))?;
    context.register_catalog(CATALOG, Arc::new(catalog));
    datafusion_functions_json::register_all(&mut context)?;
    for function in rollbook_functions::scalar_udfs() {
        context.register_udf(function.as_ref().clone());
    }
    let encodings: Arc<dyn Encodings> = Arc::<LakeEncodings>::clone(encodings);
    for function in rollbook_functions::encoding_udfs(&encodings) {
        context.register_udf(function.as_ref().clone());
    }
    for function in rollbook_functions::window_udfs() {
        context.register_udwf(function.as_ref().clone());
    }
    for function in rollbook_functions::aggregate_udfs() {
        context.register_udaf(function.as_ref().clone());
    }
    context.register_udaf(count());
    Ok(context)
}

/// `DataFusion`'s rules of the logical plan, without what they get wrong.
fn logical_rules() -> Vec<Arc<dyn OptimizerRule + Send + Sync>> {
    Optimizer::new().rules.into_iter().map(|rule| ConstantFilters::kept(PlainKeys::kept(rule))).collect()
}

/// The rules of the physical plan: first the one whose operator needs another distribution, and no order; and once it is settled
/// which side a join holds, before anything is sorted, the one that looks at those sides; the ones that look at sorts and at settled
/// scans come last.
fn rules() -> Vec<Arc<dyn PhysicalOptimizerRule + Send + Sync>> {
    let mut rules: Vec<Arc<dyn PhysicalOptimizerRule + Send + Sync>> = vec![Arc::new(GroupWindowsAtOnce)];
    for rule in PhysicalOptimizer::new().rules {
        let settles_sides = rule.name() == "join_selection";
        rules.push(OrdersAsWritten::instead(FiltersDown::kept(rule)));
        if settles_sides {
            rules.push(Arc::new(CompactBuildSides));
        }
    }
    rules.push(Arc::new(CompactSortInputs));
    rules.push(Arc::new(ReadLists));
    rules
}

fn runtime(lake: &Lake, options: &SessionOptions) -> Result<Arc<RuntimeEnv>> {
    let pool: Arc<dyn MemoryPool> = Arc::new(Pool::new(options.memory_limit));
    let mut builder = RuntimeEnvBuilder::new().with_memory_pool(pool);
    if let Some(folder) = &options.spill_dir {
        let mode = DiskManagerMode::Directories(vec![folder.clone()]);
        builder = builder.with_disk_manager_builder(DiskManagerBuilder::default().with_mode(mode));
    }
    let runtime = builder.build_arc()?;
    runtime.register_object_store(provider::store_url(lake)?.as_ref(), lake.store());
    Ok(runtime)
}

fn config(options: &SessionOptions) -> Result<SessionConfig> {
    let mut config = SessionConfig::new()
        .with_target_partitions(options.threads.max(1))
        .with_default_catalog_and_schema(CATALOG, SCHEMA)
        // Ours is registered by hand: every state built from this one would make an empty one in its place.
        .with_create_default_catalog_and_schema(false)
        .with_information_schema(true);
    let settings = config.options_mut();
    // Results have the types of the schema files, not the views DataFusion would rather compute with.
    settings.sql_parser.map_string_types_to_utf8view = false;
    settings.execution.parquet.schema_force_view_types = false;
    settings.optimizer.expand_views_at_output = true;
    // As DuckDB orders them.
    "nulls_last".clone_into(&mut settings.sql_parser.default_null_ordering);
    settings.execution.parquet.pushdown_filters = true;
    settings.execution.parquet.reorder_filters = true;
    // A buffer that replaces a sort holds what the sort would have held: keep it within reason.
    settings.execution.sort_pushdown_buffer_capacity = 16 << 20;
    settings.execution.spill_compression = SPILL_COMPRESSION;
    // A repartition whose tasks spill into two open files waits for the older one without end (DataFusion issue 24883). A file of
    // one batch is never left open.
    settings.execution.max_spill_file_size_bytes = ConfigNonZeroUsize::try_new(1)?;
    // A group by of `x IS TRUE` would not be planned: the two schemas that are compared differ in whether it may be null.
    settings.execution.skip_physical_aggregate_schema_check = true;
    // What min or max of a column has seen so far left out rows that min or max of an expression beside it had not seen.
    settings.optimizer.enable_aggregate_dynamic_filter_pushdown = false;
    // What each sort sets aside for its merge: several run at once, and a small pool must hold them all.
    settings.execution.sort_spill_reservation_bytes = MERGE_BYTES.min(options.memory_limit / SORTS_AT_ONCE);
    Ok(config)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use arrow::util::display::array_value_to_string;
    use datafusion::arrow::array::RecordBatch;
    use datafusion::execution::memory_pool::{MemoryConsumer, MemoryLimit};
    use datafusion::physical_expr::expressions::col;
    use datafusion::physical_plan::repartition::RepartitionExec;
    use datafusion::physical_plan::{ExecutionPlan, Partitioning, execute_stream_partitioned};
    use futures::TryStreamExt;
    use futures::future::join_all;
    use serde_json::json;
    use tokio::time::{sleep, timeout};

    use super::*;
    use crate::fixture::Scratch;
    use crate::session::Session;

    #[tokio::test]
    async fn groups_of_a_test_for_true_are_planned() {
        let session = Scratch::new().await.session().await;
        let sql = "SELECT DISTINCT v > 2 IS TRUE FROM (SELECT NULLIF(value, 1) AS v FROM range(0, 5))";
        let rows: usize = session.collect(sql).await.unwrap().iter().map(RecordBatch::num_rows).sum();
        assert_eq!(rows, 2);
    }

    /// Call n of ten, each in a file of its own, has n output tokens; the first has the greatest id.
    #[tokio::test]
    async fn extremes_of_columns_and_expressions_see_every_row() {
        let scratch = Scratch::new().await;
        for n in 0..10_usize {
            let call = json!({"run_id": "r", "rollout_id": "o", "call_id": format!("c{}", 9 - n), "call_index": n,
                "prompt_token_ids": [1], "prompt_len": 1, "output_token_ids": vec![5; n], "output_len": n});
            scratch.add("calls", json!([call])).await;
        }
        for threads in [1, 2] {
            let options = SessionOptions { threads, ..SessionOptions::default() };
            let session = Session::open(&scratch.lake, None, options).await.unwrap();
            // Apart: what one lets pass the other would see.
            for (sql, expected) in [
                ("SELECT concat_ws(' ', max(output_len - prompt_len), max(call_id)) FROM calls", "8 c9"),
                ("SELECT concat_ws(' ', min(-output_len), min(output_len)) FROM calls", "-9 0"),
            ] {
                let found = session.collect(sql).await.unwrap();
                assert_eq!(array_value_to_string(found[0].column(0), 0).unwrap(), expected, "{sql}");
            }
        }
    }

    /// Two tasks that spill for one partition must not wait for each other.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_repartition_that_spills_comes_to_an_end() {
        const ROWS: usize = 100_000;
        let scratch = Scratch::new().await;
        let session = scratch.session().await;
        let pool = Arc::clone(&session.context().runtime_env().memory_pool);
        let MemoryLimit::Finite(limit) = pool.memory_limit() else { panic!("the session's memory has no limit") };
        let all = MemoryConsumer::new("all").register(&pool);
        all.try_grow(limit).unwrap();
        let sql = format!("SELECT value % 7 AS g, concat('trace-', value) AS t FROM range(0, {ROWS})");
        for attempt in 0..150 {
            let frame = session.sql(&sql).await.unwrap();
            let task = Arc::new(frame.task_ctx());
            let mut plan = frame.create_physical_plan().await.unwrap();
            let by =
                |name, plan: &Arc<dyn ExecutionPlan>| Partitioning::Hash(vec![col(name, &plan.schema()).unwrap()], 2);
            for partitioning in [Partitioning::RoundRobinBatch(2), by("g", &plan), by("t", &plan)] {
                plan = Arc::new(RepartitionExec::try_new(plan, partitioning).unwrap());
            }
            let parts = execute_stream_partitioned(plan, task).unwrap().into_iter().map(async |mut part| {
                let mut rows = 0;
                while let Some(batch) = part.try_next().await.unwrap() {
                    rows += batch.num_rows();
                    // Slower than the tasks that spill.
                    sleep(Duration::from_millis(1)).await;
                }
                rows
            });
            let count = async { join_all(parts).await.into_iter().sum::<usize>() };
            let counted = timeout(Duration::from_secs(20), count).await;
            assert_eq!(counted.unwrap_or_else(|_| panic!("attempt {attempt} does not end")), ROWS);
        }
    }
}
