//! What of a plan is left to itself.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::LogicalPlan;
use rollbook_lake::{Lake, LakeOptions};
use rollbook_query::{Session, SessionOptions};
use rstest::rstest;

use super::cut::Cutter;

/// Opens an empty lake in a folder, beside a folder for what spills.
pub(super) async fn session(folder: &Path, memory_limit: usize) -> Session {
    let options = LakeOptions { env: BTreeMap::new(), clock: Arc::new(|| 1), author: "test".to_owned() };
    let lake = Lake::init(folder.join("lake").to_str().unwrap(), options).await.unwrap();
    let options = SessionOptions { memory_limit, threads: 2, spill_dir: Some(folder.join("spill")) };
    std::fs::create_dir(folder.join("spill")).unwrap();
    Session::open(&lake, None, options).await.unwrap()
}

/// Counts what is left of a plan once the shared pipelines are cut off: aggregates that the plan itself still runs.
async fn aggregates_left(sql: &str) -> usize {
    let scratch = tempfile::tempdir().unwrap();
    let session = session(scratch.path(), 1 << 20).await;
    let frame = session.sql(sql).await.unwrap();
    let plan = session.optimize(frame.logical_plan()).unwrap();
    let mut aggregates = 0;
    let plan = Cutter::new(&session).cut(plan).unwrap();
    plan.apply(|node| {
        aggregates += usize::from(matches!(node, LogicalPlan::Aggregate(_)));
        Ok(TreeNodeRecursion::Continue)
    })
    .unwrap();
    aggregates
}

/// What is counted by run leaves the shared scan as a row a run; anything that may hold a row for each call does not.
#[rstest]
#[case("SELECT run_id, count(*) FROM calls WHERE cardinality(output_token_ids) > 3 GROUP BY run_id", 0)]
#[case("SELECT max(cardinality(output_token_ids)) FROM calls", 0)]
#[case("SELECT rollout_id, count(*) FROM calls WHERE cardinality(output_token_ids) > 3 GROUP BY rollout_id", 1)]
#[case("SELECT run_id, array_agg(cardinality(output_token_ids)) FROM calls GROUP BY run_id", 1)]
#[case("SELECT run_id, array_agg(output_token_ids[1] ORDER BY call_id) FROM calls GROUP BY run_id", 1)]
#[case("SELECT run_id, count(DISTINCT output_token_ids[1]) FROM calls GROUP BY run_id", 2)]
#[tokio::test]
async fn counts_by_run_are_made_in_the_shared_scan(#[case] sql: &str, #[case] left: usize) {
    assert_eq!(aggregates_left(sql).await, left);
}
