//! Lists of tokens and logprobs, read by the lake's own reader beside `DataFusion`'s scan of everything else.
//!
//! ```text
//! DataSourceExec: call_id, output_token_ids, output_logprobs, predicate=step = 3
//!   ->
//! ListsExec: output_token_ids, output_logprobs         lists of the rows that come, from their row groups
//!   DataSourceExec: the same                           runs as: call_id, file, row in the file, predicate=step = 3
//! ```
//!
//! Each row says where it lies, so whatever the scan leaves out, limits or shares out among threads, its lists are found.

mod exec;
mod reading;
mod span;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;

pub(crate) use exec::ListsExec;

/// Puts [`ListsExec`] above every scan of the lake that reads lists it knows. It must come when scans are settled.
#[derive(Debug)]
pub(crate) struct ReadLists;

impl PhysicalOptimizerRule for ReadLists {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _config: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_up(|node| {
            let lists = ListsExec::new(Arc::clone(&node));
            Ok(if lists.reads_any() { Transformed::yes(Arc::new(lists) as _) } else { Transformed::no(node) })
        })
        .map(|plan| plan.data)
    }

    fn name(&self) -> &'static str {
        "read_lists"
    }

    fn schema_check(&self) -> bool {
        true
    }
}
