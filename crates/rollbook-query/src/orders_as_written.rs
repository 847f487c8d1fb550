//! The last look at a plan, which believes a sort what it sorts by.
//!
//! `DataFusion` proves from what it knows of expressions that each operator gets the order it needs. Of some it knows too little: of a
//! comparison with a function's value, or where one arm of a union has an expression twice. Then it refuses a plan although a sort by
//! just that order stands below:
//!
//! ```text
//! SortPreservingMergeExec: [abs(output_len@0) > 4]     needs this order,
//!   SortExec: expr=[abs(output_len@0) > 4]             and gets it
//! ```

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::config::{ConfigOptions, OptimizerOptions};
use datafusion::physical_expr::{LexRequirement, PhysicalSortExpr};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::sanity_checker::{check_finiteness_requirements, check_plan_sanity};
use datafusion::physical_plan::execution_plan::InvariantLevel;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::union::UnionExec;
use datafusion::physical_plan::{ChildSatisfactionOptions, ExecutionPlan, ExecutionPlanProperties};

/// Stands in for `DataFusion`'s rule of the same name.
#[derive(Debug)]
pub(crate) struct OrdersAsWritten;

impl OrdersAsWritten {
    /// Replaces a rule, if it is the last look at a plan.
    pub(crate) fn instead(
        rule: Arc<dyn PhysicalOptimizerRule + Send + Sync>,
    ) -> Arc<dyn PhysicalOptimizerRule + Send + Sync> {
        if rule.name() == "SanityCheckPlan" { Arc::new(Self) } else { rule }
    }
}

impl PhysicalOptimizerRule for OrdersAsWritten {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, config: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        check(&plan, &config.optimizer)?;
        Ok(plan)
    }

    fn name(&self) -> &'static str {
        "SanityCheckPlan"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

fn check(plan: &Arc<dyn ExecutionPlan>, options: &OptimizerOptions) -> Result<()> {
    for child in plan.children() {
        check(child, options)?;
    }
    match check_plan_sanity(plan, options) {
        Err(_) if holds_as_written(plan)? => {
            check_finiteness_requirements(plan.as_ref(), options)?;
            plan.check_invariants(InvariantLevel::Executable)
        }
        checked => checked,
    }
}

/// Whether each input of an operator has the order that the operator needs, proven or as a sort says, and its distribution.
fn holds_as_written(plan: &Arc<dyn ExecutionPlan>) -> Result<bool> {
    let distributions = plan.input_distribution_requirements();
    for (place, (child, order)) in plan.children().into_iter().zip(plan.required_input_ordering()).enumerate() {
        if let Some(order) = order
            && !is_ordered(child, &order.into_single())?
        {
            return Ok(false);
        }
        let allowed = ChildSatisfactionOptions::new().with_allow_subset(true);
        if !distributions.child_satisfaction(place, child.as_ref(), allowed)?.is_satisfied() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether rows come in an order: it is proven, or an operator sorts by it word by word, or gathers operators of which all give it.
fn is_ordered(plan: &Arc<dyn ExecutionPlan>, order: &LexRequirement) -> Result<bool> {
    if plan.equivalence_properties().ordering_satisfy_requirement(order.clone())? {
        return Ok(true);
    }
    if plan.is::<UnionExec>() {
        for child in plan.children() {
            if !is_ordered(child, order)? {
                return Ok(false);
            }
        }
        return Ok(true);
    }
    let sorted: &[PhysicalSortExpr] = if let Some(sort) = plan.downcast_ref::<SortExec>() {
        sort.expr()
    } else if let Some(merge) = plan.downcast_ref::<SortPreservingMergeExec>() {
        merge.expr()
    } else {
        return Ok(false);
    };
    let schema = plan.schema();
    Ok(sorted.len() >= order.len() && sorted.iter().zip(order.iter()).all(|(by, needed)| by.satisfy(needed, &schema)))
}

#[cfg(test)]
mod tests {
    use arrow::array::AsArray;
    use arrow::datatypes::Int64Type;
    use rstest::rstest;

    use crate::fixture::Scratch;
    use crate::session::{Session, SessionOptions};

    /// Sorted by hand: false before true.
    #[rstest]
    #[case::of_a_function(
        "SELECT x FROM (SELECT value - 3 AS x FROM range(0, 7) UNION ALL SELECT value FROM range(9, 11)) AS t ORDER BY abs(x) > 1, x",
        &[-1, 0, 1, -3, -2, 2, 3, 9, 10],
    )]
    #[case::of_arms("SELECT value AS x FROM range(-2, 3) UNION ALL SELECT value FROM range(4, 6) ORDER BY abs(x) > 1 DESC, x", &[-2, 2, 4, 5, -1, 0, 1])]
    #[case::in_a_window(
        "SELECT CAST(row_number() OVER (ORDER BY abs(x) > 1, x DESC) AS BIGINT) FROM (SELECT value - 3 AS x FROM range(0, 7)) AS t ORDER BY x",
        &[7, 6, 3, 2, 1, 5, 4],
    )]
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn orders_of_any_expression_are_planned(
        #[case] sql: &str,
        #[case] expected: &[i64],
        #[values(1, 3)] threads: usize,
    ) {
        let scratch = Scratch::new().await;
        let options = SessionOptions { threads, ..SessionOptions::default() };
        let session = Session::open(&scratch.lake, None, options).await.unwrap();
        let batches = session.collect(sql).await.unwrap();
        let found: Vec<i64> =
            batches.iter().flat_map(|batch| batch.column(0).as_primitive::<Int64Type>().values().to_vec()).collect();
        assert_eq!(found, expected);
    }
}
