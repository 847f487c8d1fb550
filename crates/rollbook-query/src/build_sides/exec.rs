//! The operator that copies small slices of large buffers.

use std::fmt;
use std::sync::Arc;

use datafusion::arrow::array::{Array, RecordBatch, UInt32Array};
use datafusion::arrow::compute::take_record_batch;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{DataFusionError, Result, Statistics, internal_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties, ReplaceChildrenOptions,
};
use futures::{StreamExt, TryStreamExt, stream};

use crate::same_rows::same_rows;

/// Buffers may be this many times what a slice needs of them.
const SLACK: usize = 4;
/// Below this nothing is worth a copy.
const SMALL_BYTES: usize = 16 << 10;

/// Gives the rows of its input; a slice that needs little of its buffers has buffers of its own.
#[derive(Debug, Clone)]
pub(crate) struct CompactExec {
    input: Arc<dyn ExecutionPlan>,
    tells_order: bool,
    properties: Arc<PlanProperties>,
}

impl CompactExec {
    /// Creates the operator, which may hide the order of its rows.
    pub(crate) fn new(input: Arc<dyn ExecutionPlan>, tells_order: bool) -> Self {
        let given = input.properties();
        let mut equivalence = given.equivalence_properties().clone();
        if !tells_order {
            equivalence.clear_orderings();
        }
        let properties = PlanProperties::new(
            equivalence,
            given.output_partitioning().clone(),
            given.emission_type,
            given.boundedness,
        );
        Self { input, tells_order, properties: Arc::new(properties) }
    }

    fn over(&self, input: Arc<dyn ExecutionPlan>) -> Self {
        Self::new(input, self.tells_order)
    }

    /// Whether the order of its rows is known above.
    pub(crate) fn tells_order(&self) -> bool {
        self.tells_order
    }
}

/// The batch in pieces of so many rows, one after the other: an operator may give all it held at once, as a semi join does, and what
/// takes it in asks for memory by the batch.
fn pieces(batch: RecordBatch, rows: usize) -> impl Iterator<Item = Result<RecordBatch>> {
    let all = batch.num_rows();
    let starts = (0..all).step_by(rows.max(1));
    starts.map(move |start| compact(batch.slice(start, rows.max(1).min(all - start))))
}

/// The batch, copied where it needs little of what it holds.
fn compact(batch: RecordBatch) -> Result<RecordBatch> {
    let held = batch.get_array_memory_size();
    if held <= SMALL_BYTES {
        return Ok(batch);
    }
    let needed: usize =
        batch.columns().iter().map(|column| column.to_data().get_slice_memory_size()).sum::<Result<usize, _>>()?;
    if held / SLACK <= needed {
        return Ok(batch);
    }
    let rows = u32::try_from(batch.num_rows()).unwrap_or(u32::MAX);
    Ok(take_record_batch(&batch, &UInt32Array::from_iter_values(0..rows))?)
}

impl DisplayAs for CompactExec {
    fn fmt_as(&self, t: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match t {
            DisplayFormatType::Default | DisplayFormatType::Verbose => f.write_str("CompactExec"),
            DisplayFormatType::TreeRender => Ok(()),
        }
    }
}

impl ExecutionPlan for CompactExec {
    fn name(&self) -> &'static str {
        "CompactExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        // It always does, but somebody above may not know.
        vec![self.tells_order]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    same_rows!();

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let rows = context.session_config().batch_size();
        let input = self.input.execute(partition, context)?;
        let batches =
            input.map(move |batch| Ok::<_, DataFusionError>(stream::iter(pieces(batch?, rows)))).try_flatten();
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), batches)))
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::{ArrayRef, StringArray};

    use super::*;

    #[test]
    fn a_large_batch_comes_in_pieces_of_its_own() {
        let texts: ArrayRef = Arc::new(StringArray::from_iter_values((0..1_000).map(|n| format!("{n:0200}"))));
        let whole = RecordBatch::try_from_iter([("text", texts)]).unwrap();
        let found: Vec<RecordBatch> = pieces(whole.clone(), 300).collect::<Result<_>>().unwrap();
        assert_eq!(found.iter().map(RecordBatch::num_rows).collect::<Vec<_>>(), [300, 300, 300, 100]);
        assert_eq!(found[3], whole.slice(900, 100));
        assert!(found[3].get_array_memory_size() < 50_000);
        assert_eq!(pieces(whole.slice(0, 0), 300).count(), 0);
    }

    #[test]
    fn a_small_slice_gets_buffers_of_its_own_and_a_large_one_keeps_them() {
        let texts: ArrayRef = Arc::new(StringArray::from_iter_values((0..1_000).map(|n| format!("{n:0200}"))));
        let whole = RecordBatch::try_from_iter([("text", texts)]).unwrap();
        let slice = whole.slice(500, 2);
        assert!(slice.get_array_memory_size() > 200_000);
        let copied = compact(slice.clone()).unwrap();
        assert_eq!(copied, slice);
        assert!(copied.get_array_memory_size() < 2_000);
        let kept = compact(whole.clone()).unwrap();
        assert!(Arc::ptr_eq(kept.column(0), whole.column(0)));
    }
}
