//! The operator below which batches have another number of rows.

use std::fmt;
use std::sync::Arc;

use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, Statistics, internal_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties, ReplaceChildrenOptions,
};

use crate::same_rows::same_rows;

/// Runs its input in batches of so many rows, and gives them as they come.
#[derive(Debug, Clone)]
pub(crate) struct BatchRowsExec {
    input: Arc<dyn ExecutionPlan>,
    rows: usize,
}

impl BatchRowsExec {
    /// Creates the operator.
    pub(crate) fn new(input: Arc<dyn ExecutionPlan>, rows: usize) -> Self {
        Self { input, rows }
    }

    fn over(&self, input: Arc<dyn ExecutionPlan>) -> Self {
        Self::new(input, self.rows)
    }

    /// Rows of a batch below it.
    pub(crate) fn rows(&self) -> usize {
        self.rows
    }
}

impl DisplayAs for BatchRowsExec {
    fn fmt_as(&self, t: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match t {
            DisplayFormatType::Default | DisplayFormatType::Verbose => write!(f, "BatchRowsExec: rows={}", self.rows),
            DisplayFormatType::TreeRender => write!(f, "rows={}", self.rows),
        }
    }
}

impl ExecutionPlan for BatchRowsExec {
    fn name(&self) -> &'static str {
        "BatchRowsExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.input.properties()
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    same_rows!();

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let own = TaskContext::new(
            context.task_id(),
            context.session_id(),
            context.session_config().clone().with_batch_size(self.rows),
            context.scalar_functions().clone(),
            context.higher_order_functions().clone(),
            context.aggregate_functions().clone(),
            context.window_functions().clone(),
            context.runtime_env(),
        );
        self.input.execute(partition, Arc::new(own))
    }
}
