//! Credit windows over all groups at once.
//!
//! `DataFusion` sorts the rows of a window by its partition and then calls a window function group by group. Credit windows need neither: they
//! hash the partition's keys, collect the members of all groups in one pass, once for all calls over the same columns, and give each row its
//! credit in place.
//!
//! ```text
//! WindowAggExec                     GroupedWindowExec
//!   SortExec                 ->       RepartitionExec (by the keys)
//!     RepartitionExec                   …
//!       …
//! ```
//!
//! The rule runs before distribution and order are enforced, so that no sort is planned for it. A window whose calls are not all credit windows
//! over one partition without an order stays as it is, and gives the same.

mod exec;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::windows::WindowAggExec;

pub(crate) use exec::GroupedWindowExec;

/// Replaces the windows that can be computed over all groups at once.
#[derive(Debug, Default)]
pub(crate) struct GroupWindowsAtOnce;

impl PhysicalOptimizerRule for GroupWindowsAtOnce {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _config: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        let done = plan.transform_up(|plan| {
            let Some(window) = plan.downcast_ref::<WindowAggExec>() else {
                return Ok(Transformed::no(plan));
            };
            Ok(match GroupedWindowExec::try_new(window.window_expr().to_vec(), Arc::clone(window.input()))? {
                Some(grouped) => Transformed::yes(Arc::new(grouped)),
                None => Transformed::no(plan),
            })
        })?;
        Ok(done.data)
    }

    fn name(&self) -> &'static str {
        "group_windows_at_once"
    }

    fn schema_check(&self) -> bool {
        true
    }
}
