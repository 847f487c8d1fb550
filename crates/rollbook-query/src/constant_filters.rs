//! A condition without a column stays above an aggregate of all rows.
//!
//! `DataFusion` 55 pushes such a condition below the aggregate, as it does with one on group keys. But without groups an aggregate of no
//! rows is a row, so what the condition leaves out comes back:
//!
//! ```text
//! SELECT n FROM steps LEFT JOIN (SELECT count(*) AS n FROM calls) ON false      null for each step, not 0
//!
//! Filter: false                              Aggregate: count(*)      one row: 0
//!   Aggregate: count(*)         not ->         Filter: false
//!     TableScan: calls                           TableScan: calls
//! ```

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::tree_node::Transformed;
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{Aggregate, Expr, LogicalPlan};
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};

/// `DataFusion`'s rule that pushes filters down, but for these.
#[derive(Debug)]
pub(crate) struct ConstantFilters {
    rule: Arc<dyn OptimizerRule + Send + Sync>,
}

impl ConstantFilters {
    /// Keeps a rule from it, if it is the one that pushes filters.
    pub(crate) fn kept(rule: Arc<dyn OptimizerRule + Send + Sync>) -> Arc<dyn OptimizerRule + Send + Sync> {
        if rule.name() == "push_down_filter" { Arc::new(Self { rule }) } else { rule }
    }
}

impl OptimizerRule for ConstantFilters {
    fn name(&self) -> &str {
        self.rule.name()
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.rule.apply_order()
    }

    fn rewrite(&self, plan: LogicalPlan, config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        if let LogicalPlan::Filter(filter) = &plan
            && let LogicalPlan::Aggregate(aggregate) = filter.input.as_ref()
            && has_group_of_all(aggregate)
            && split_conjunction(&filter.predicate).iter().any(|condition| condition.column_refs().is_empty())
        {
            return Ok(Transformed::no(plan));
        }
        self.rule.rewrite(plan, config)
    }
}

/// Whether one of the groups is all rows, and is there without any.
fn has_group_of_all(aggregate: &Aggregate) -> bool {
    aggregate.group_expr.is_empty() || aggregate.group_expr.iter().any(|key| matches!(key, Expr::GroupingSet(_)))
}

#[cfg(test)]
mod tests {
    use arrow::util::display::array_value_to_string;
    use rstest::rstest;

    use crate::fixture::Scratch;

    const COUNTED: &str = "(SELECT count(*) AS n, max(z) AS m FROM range(0, 5) AS t(z)) AS s";

    /// What a query gives, row by row; a null is nothing.
    #[rstest]
    #[case::left_join(format!("SELECT n FROM range(0, 2) AS u(y) LEFT JOIN {COUNTED} ON 1 = 2"), &["", ""])]
    #[case::right_join(format!("SELECT n FROM {COUNTED} RIGHT JOIN range(0, 2) AS u(y) ON s.n = 5 AND 1 = 2"), &["", ""])]
    #[case::semi_join(format!("SELECT n FROM {COUNTED} LEFT SEMI JOIN range(0, 2) AS u(y) ON 1 = 2"), &[])]
    #[case::anti_join(format!("SELECT n FROM {COUNTED} LEFT ANTI JOIN range(0, 2) AS u(y) ON 1 = 2"), &["5"])]
    #[case::group_of_a_constant(
        format!("SELECT concat('x', max('y')) FROM {COUNTED} LEFT SEMI JOIN range(0, 2) AS u(y) ON m = 9 AND 'x' <> 'x' GROUP BY 'x'"),
        &[],
    )]
    #[case::sets(
        "SELECT n FROM (SELECT z, count(*) AS n FROM range(0, 2) AS t(z) GROUP BY ROLLUP (z)) AS s
            LEFT SEMI JOIN range(0, 2) AS u(y) ON 1 = 2".to_owned(),
        &[],
    )]
    #[case::of_groups(
        "SELECT n FROM (SELECT z, count(*) AS n FROM range(0, 2) AS t(z) GROUP BY z) AS s
            LEFT SEMI JOIN range(0, 2) AS u(y) ON 1 = 2".to_owned(),
        &[],
    )]
    #[case::having(format!("SELECT n FROM {COUNTED} WHERE n = 5 AND m < 5"), &["5"])]
    #[tokio::test]
    async fn an_aggregate_of_all_rows_is_left_out_as_one(#[case] sql: String, #[case] expected: &[&str]) {
        let session = Scratch::new().await.session().await;
        let batches = session.collect(&sql).await.unwrap();
        let value = |batch: &arrow::array::RecordBatch, row| array_value_to_string(batch.column(0), row).unwrap();
        let found: Vec<String> =
            batches.iter().flat_map(|batch| (0..batch.num_rows()).map(|row| value(batch, row))).collect();
        assert_eq!(found, expected);
    }
}
