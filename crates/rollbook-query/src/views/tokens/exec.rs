//! The operator that turns calls into tokens, a bounded number at a time.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, internal_err};
use datafusion::execution::{RecordBatchStream, SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, Partitioning,
    PlanProperties, ReplaceChildrenOptions,
};
use futures::{Stream, StreamExt};

use super::SCHEMA;
use super::chunk::{Chunk, next_chunk, token_counts};
use crate::same_rows::one_input;

/// Gives a row for each output token of its input's calls.
#[derive(Debug, Clone)]
pub(crate) struct TokensExec {
    input: Arc<dyn ExecutionPlan>,
    columns: Vec<String>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl TokensExec {
    /// Creates the operator over calls with the columns that `columns` are made of.
    pub(crate) fn try_new(input: Arc<dyn ExecutionPlan>, columns: &[String]) -> Result<Self> {
        let fields: Vec<Arc<Field>> = columns
            .iter()
            .map(|name| SCHEMA.field_with_name(name).map(|field| Arc::new(field.clone())))
            .collect::<Result<_, _>>()?;
        let properties = PlanProperties::new(
            EquivalenceProperties::new(Arc::new(Schema::new(fields))),
            Partitioning::UnknownPartitioning(input.output_partitioning().partition_count()),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        Ok(Self {
            input,
            columns: columns.to_vec(),
            properties: Arc::new(properties),
            metrics: ExecutionPlanMetricsSet::new(),
        })
    }

    /// Returns the columns it gives.
    pub(crate) fn columns(&self) -> &[String] {
        &self.columns
    }
}

impl DisplayAs for TokensExec {
    fn fmt_as(&self, t: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match t {
            DisplayFormatType::Default | DisplayFormatType::Verbose => {
                write!(f, "TokensExec: columns=[{}]", self.columns.join(", "))
            }
            DisplayFormatType::TreeRender => write!(f, "columns={}", self.columns.join(", ")),
        }
    }
}

impl ExecutionPlan for TokensExec {
    fn name(&self) -> &'static str {
        "TokensExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    one_input!(|own, input| Self::try_new(input, &own.columns));

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let rows = context.session_config().batch_size();
        Ok(Box::pin(TokensStream {
            input: self.input.execute(partition, context)?,
            schema: self.schema(),
            pending: None,
            rows,
            metrics: BaselineMetrics::new(&self.metrics, partition),
        }))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}

/// Calls whose tokens are not all given yet, and where to go on.
struct Pending {
    calls: RecordBatch,
    counts: Vec<usize>,
    row: usize,
    position: usize,
}

struct TokensStream {
    input: SendableRecordBatchStream,
    schema: SchemaRef,
    pending: Option<Pending>,
    rows: usize,
    metrics: BaselineMetrics,
}

impl TokensStream {
    /// Gives the next tokens of the pending calls, none when they are used up.
    fn chunk(&mut self) -> Result<Option<RecordBatch>> {
        let Some(mut pending) = self.pending.take() else {
            return Ok(None);
        };
        let (runs, row, position) = next_chunk(&pending.counts, pending.row, pending.position, self.rows);
        if runs.is_empty() {
            return Ok(None);
        }
        let batch = Chunk { calls: &pending.calls, runs: &runs }.batch(&self.schema)?;
        (pending.row, pending.position) = (row, position);
        self.pending = Some(pending);
        Ok(Some(batch))
    }
}

impl Stream for TokensStream {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            let timer = self.metrics.elapsed_compute().clone();
            let timed = timer.timer();
            let chunk = self.chunk().transpose();
            drop(timed);
            if chunk.is_some() {
                return self.metrics.record_poll(Poll::Ready(chunk));
            }
            match ready!(self.input.poll_next_unpin(cx)) {
                Some(Ok(calls)) => match token_counts(&calls) {
                    Ok(counts) => {
                        self.pending = Some(Pending { calls, counts, row: 0, position: 0 });
                    }
                    Err(error) => return Poll::Ready(Some(Err(error))),
                },
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => return Poll::Ready(None),
            }
        }
    }
}

impl RecordBatchStream for TokensStream {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}
