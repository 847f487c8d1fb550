//! Rows per batch, from the bytes a row may have: 8,192 prompts of 60k ids would be 2 GB.

use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::datasource::source_as_provider;
use datafusion::execution::SessionState;
use datafusion::logical_expr::{LogicalPlan, TableScan};
use datafusion::prelude::SessionConfig;
use std::any::Any;

use crate::error::Result;
use crate::provider::LakeTable;

/// Bytes that one batch of long rows aims at, where a session's configuration says so.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BatchBytes(pub(crate) u64);

impl BatchBytes {
    /// Larger batches gain a query nothing, and a spilling sort holds dozens of them.
    const OF_A_QUERY: Self = Self(2 << 20);

    /// What the configuration says, or what suits a query.
    pub(crate) fn of(config: &SessionConfig) -> Self {
        config.get_extension::<Self>().map_or(Self::OF_A_QUERY, |bytes| *bytes)
    }
}

/// Returns the rows per batch for everything above the widest scan of a plan.
pub(super) fn for_plan(plan: &LogicalPlan, state: &SessionState) -> Result<usize> {
    let optimized = match plan {
        // What is explained must be planned as it would run.
        LogicalPlan::Explain(explain) => state.optimize(&explain.plan)?,
        LogicalPlan::Analyze(analyze) => state.optimize(&analyze.input)?,
        other => state.optimize(other)?,
    };
    for_optimized(&optimized, state.config())
}

/// The same for a plan that is optimized already.
pub(super) fn for_optimized(optimized: &LogicalPlan, config: &SessionConfig) -> Result<usize> {
    let mut widest = 0;
    optimized.apply_with_subqueries(|node| {
        if let LogicalPlan::TableScan(scan) = node {
            widest = widest.max(row_bytes(scan));
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(rows(widest, BatchBytes::of(config), config.batch_size()))
}

fn rows(row_bytes: u64, batch: BatchBytes, default: usize) -> usize {
    let fitting = batch.0.checked_div(row_bytes).unwrap_or(u64::MAX).max(1);
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
        let rows = |row_bytes| rows(row_bytes, BatchBytes(2 << 20), 8192);
        assert_eq!(rows(4 * 60_000), 8);
        assert_eq!(rows(u64::MAX), 1);
        assert_eq!(rows(100), 8192);
        assert_eq!(rows(0), 8192);
    }
}
