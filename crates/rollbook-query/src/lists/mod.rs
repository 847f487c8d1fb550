//! Lists of tokens and logprobs, read by the lake's own reader beside `DataFusion`'s scan of everything else.
//!
//! ```text
//! DataSourceExec: call_id, output_token_ids, output_logprobs, predicate=step = 3
//!   ->
//! ListsExec: output_token_ids, output_logprobs         lists of the rows that come, from their row groups
//!   DataSourceExec: the same                           runs as: call_id, file, row in the file, predicate=step = 3
//! ```
//!
//! Each row says where it lies, so whatever the scan leaves out, limits or shares out among threads, its lists are found. What the scan
//! computes of lists is computed above it ([`lift`]).

mod exec;
mod lift;
mod reading;
mod span;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;

pub(crate) use exec::ListsExec;
use lift::Lifted;

/// Puts [`ListsExec`] above every scan of the lake that reads lists it knows. It must come when scans are settled.
#[derive(Debug)]
pub(crate) struct ReadLists;

impl PhysicalOptimizerRule for ReadLists {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, config: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        // A scan is looked at after what stands above it, and what replaces it is left alone.
        plan.transform_down(|node| {
            let lifted = Lifted::of(&node, config)?;
            let scan = lifted.as_ref().map_or(&node, |lifted| &lifted.scan);
            let lists = ListsExec::new(Arc::clone(scan));
            if !lists.reads_any() {
                return Ok(Transformed::no(node));
            }
            let lists: Arc<dyn ExecutionPlan> = Arc::new(lists);
            let replaced = match lifted {
                Some(lifted) => lifted.over(lists)?,
                None => lists,
            };
            Ok(Transformed::new(replaced, true, TreeNodeRecursion::Jump))
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
