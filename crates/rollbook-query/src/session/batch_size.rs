//! Rows per batch, from the bytes a row may have: 8,192 prompts of 60k ids would be 2 GB.

use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::datasource::source_as_provider;
use datafusion::execution::SessionState;
use datafusion::logical_expr::{LogicalPlan, TableScan};
use std::any::Any;

use crate::error::Result;
use crate::provider::LakeTable;

/// Bytes that one batch aims at: larger ones gain nothing, and a spilling sort holds dozens of them.
const TARGET: u64 = 2 << 20;

/// Returns the rows per batch for everything above the widest scan of a plan.
pub(super) fn for_plan(plan: &LogicalPlan, state: &SessionState) -> Result<usize> {
    let default = state.config().batch_size();
    let optimized = match plan {
        // What is explained must be planned as it would run.
        LogicalPlan::Explain(explain) => state.optimize(&explain.plan)?,
        LogicalPlan::Analyze(analyze) => state.optimize(&analyze.input)?,
        other => state.optimize(other)?,
    };
    for_optimized(&optimized, default)
}

/// The same for a plan that is optimized already.
pub(super) fn for_optimized(optimized: &LogicalPlan, default: usize) -> Result<usize> {
    let mut widest = 0;
    optimized.apply_with_subqueries(|node| {
        if let LogicalPlan::TableScan(scan) = node {
            widest = widest.max(row_bytes(scan));
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(rows(widest, default))
}

fn rows(row_bytes: u64, default: usize) -> usize {
    let fitting = TARGET.checked_div(row_bytes).unwrap_or(u64::MAX).max(1);
    usize::try_from(fitting).unwrap_or(usize::MAX).min(default)
}

fn row_bytes(scan: &TableScan) -> u64 {
    let Ok(provider) = source_as_provider(&scan.source) else {
        return 0;
    };
    let provider: &dyn Any = provider.as_ref();
    let Some(table) = provider.downcast_ref::<LakeTable>() else {
        return 0;
    };
    table.row_bytes(scan.projected_schema.fields().iter().map(|field| field.name().as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_of_long_prompts_holds_few_rows() {
        assert_eq!(rows(4 * 60_000, 8192), 8);
        assert_eq!(rows(u64::MAX, 8192), 1);
        assert_eq!(rows(100, 8192), 8192);
        assert_eq!(rows(0, 8192), 8192);
    }
}
