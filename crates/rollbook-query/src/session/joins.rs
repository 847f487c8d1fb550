//! Joins that outgrow memory.
//!
//! A hash join holds one of its sides and cannot spill. A merge join sorts both sides, which spills, and is slower. So a plan runs
//! with hash joins, and where memory runs out before its first rows are there it runs once more, from the start, with merge joins.

use std::sync::Arc;

use datafusion::execution::{SendableRecordBatchStream, SessionState, SessionStateBuilder};
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use futures::{StreamExt, TryStreamExt, stream};

use crate::error::{Error, ErrorKind, Result};

/// Runs an optimized plan as far as its first rows.
pub(super) async fn run(state: &SessionState, optimized: &LogicalPlan) -> Result<SendableRecordBatchStream> {
    let plan = state.query_planner().create_physical_plan(optimized, state).await?;
    let joins = has_hash_join(&plan);
    match begun(plan, state).await {
        Err(error) if joins && error.kind() == ErrorKind::Exhausted => {
            let state = merging(state);
            begun(state.query_planner().create_physical_plan(optimized, &state).await?, &state).await
        }
        rows => rows,
    }
}

async fn begun(plan: Arc<dyn ExecutionPlan>, state: &SessionState) -> Result<SendableRecordBatchStream> {
    let mut rows = execute_stream(plan, state.task_ctx())?;
    let first = rows.try_next().await.map_err(Error::from)?;
    let schema = rows.schema();
    let all = stream::iter(first.map(Ok)).chain(rows);
    Ok(Box::pin(RecordBatchStreamAdapter::new(schema, all)))
}

fn has_hash_join(plan: &Arc<dyn ExecutionPlan>) -> bool {
    plan.downcast_ref::<HashJoinExec>().is_some() || plan.children().into_iter().any(has_hash_join)
}

/// The state with merge joins, which are planned for two partitions and more.
fn merging(state: &SessionState) -> SessionState {
    let partitions = state.config().target_partitions().max(2);
    let mut config = state.config().clone().with_target_partitions(partitions);
    config.options_mut().optimizer.prefer_hash_join = false;
    SessionStateBuilder::new_from_existing(state.clone()).with_config(config).build()
}

#[cfg(test)]
mod tests {
    use arrow::array::AsArray;
    use arrow::datatypes::Int64Type;
    use rstest::rstest;

    use super::*;
    use crate::fixture::Scratch;
    use crate::session::{Session, SessionOptions};

    /// All numbers below 2,400,000, shuffled: 7 and 2,400,000 have no common factor.
    const SHUFFLED: &str = "(SELECT value * 7 % 2400000 AS n FROM range(0, 2400000))";

    /// The even ones of them: 1,200,000, whose sum is 2 (0 + … + 1,199,999) = 1,199,999 * 1,200,000.
    const EVEN: (i64, i64) = (1_200_000, 1_439_998_800_000);
    /// The sum of the odd ones is 1,200,000 more.
    const ODD: (i64, i64) = (1_200_000, 1_440_000_000_000);

    #[rstest]
    #[case::inner("JOIN even ON all_of.n = even.n", EVEN)]
    #[case::semi("WHERE EXISTS (SELECT 1 FROM even WHERE even.n = all_of.n)", EVEN)]
    #[case::anti("WHERE NOT EXISTS (SELECT 1 FROM even WHERE even.n = all_of.n)", ODD)]
    #[case::left("LEFT JOIN even ON all_of.n = even.n WHERE even.n IS NULL", ODD)]
    #[case::full("FULL JOIN even ON all_of.n = even.n WHERE even.n IS NULL", ODD)]
    #[case::beside_a_filter("JOIN even ON all_of.n = even.n AND all_of.n <= even.twice", EVEN)]
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_join_that_does_not_fit_merges(
        #[case] join: &str,
        #[case] expected: (i64, i64),
        #[values(1, 2)] threads: usize,
    ) {
        let scratch = Scratch::new().await;
        let options =
            SessionOptions { memory_limit: 24 << 20, threads, spill_dir: Some(scratch.folder.path().to_owned()) };
        let session = Session::open(&scratch.lake, None, options).await.unwrap();
        let sql = format!(
            "WITH all_of AS {SHUFFLED}, even AS (SELECT n, 2 * n AS twice FROM {SHUFFLED} WHERE n % 2 = 0)
             SELECT count(*), sum(all_of.n) FROM all_of {join}"
        );
        let error = Error::from(session.sql(&sql).await.unwrap().collect().await.unwrap_err());
        assert_eq!(error.kind(), ErrorKind::Exhausted, "{error}");
        let found = session.collect(&sql).await.unwrap();
        let value = |column: usize| found[0].column(column).as_primitive::<Int64Type>().value(0);
        assert_eq!((value(0), value(1)), expected);
    }
}
