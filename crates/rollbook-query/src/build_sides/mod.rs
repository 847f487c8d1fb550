//! What a join holds is counted by what it holds, and orders nothing.
//!
//! An aggregate gives its groups as slices of one large batch. A join that holds such slices counts the whole batch for each,
//! so that a few megabytes exhaust any memory limit; and holds it all for as long as one slice lives. Slices that are a small
//! part of their buffers are copied before a join gathers them.
//!
//! ```text
//! HashJoinExec                 HashJoinExec
//!   AggregateExec       ->       CompactExec
//!   …                              AggregateExec
//!                                …
//! ```
//!
//! A sort counts as a join does, and gets the operator as well; the order of what it takes in may be told.
//!
//! And below a join it hides their order. `DataFusion` takes the rows of a hash join to be ordered by the probe side and then by the held side.
//! They are not: that holds among the matches of one row, while several rows of the probe side may be equal in what orders it. Where
//! both sides share a first key, such as the run, a sort above the join was left out, and windows met rows in a wrong order.

mod exec;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::joins::{CrossJoinExec, HashJoinExec, NestedLoopJoinExec};
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::{ChildrenPropertiesMode, ExecutionPlan, ReplaceChildrenOptions};

pub(crate) use exec::CompactExec;

/// Puts [`CompactExec`] below the side that a join holds.
#[derive(Debug, Default)]
pub(crate) struct CompactBuildSides;

impl PhysicalOptimizerRule for CompactBuildSides {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _config: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        let done = plan.transform_up(|plan| {
            if !(plan.is::<HashJoinExec>() || plan.is::<NestedLoopJoinExec>() || plan.is::<CrossJoinExec>()) {
                return Ok(Transformed::no(plan));
            }
            let mut children: Vec<Arc<dyn ExecutionPlan>> = plan.children().into_iter().map(Arc::clone).collect();
            match children.first_mut() {
                Some(held) if !held.is::<CompactExec>() => *held = Arc::new(CompactExec::new(Arc::clone(held), false)),
                _ => return Ok(Transformed::no(plan)),
            }
            let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
            Ok(Transformed::yes(plan.replace_children(children, options)?))
        })?;
        Ok(done.data)
    }

    fn name(&self) -> &'static str {
        "compact_build_sides"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// Puts [`CompactExec`] below sorts that hold all they take in.
#[derive(Debug, Default)]
pub(crate) struct CompactSortInputs;

impl PhysicalOptimizerRule for CompactSortInputs {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _config: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        let done = plan.transform_up(|plan| {
            let Some(sort) = plan.downcast_ref::<SortExec>().filter(|sort| sort.fetch().is_none()) else {
                return Ok(Transformed::no(plan));
            };
            let input = Arc::new(CompactExec::new(Arc::clone(sort.input()), true));
            let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
            Ok(Transformed::yes(plan.replace_children(vec![input], options)?))
        })?;
        Ok(done.data)
    }

    fn name(&self) -> &'static str {
        "compact_sort_inputs"
    }

    fn schema_check(&self) -> bool {
        true
    }
}
