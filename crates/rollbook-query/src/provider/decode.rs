//! The operator that rebuilds prompts and requests above a scan of whole files, or of row groups that hold whole rollouts.
//!
//! ```text
//! DecodeExec: columns=[call_id, prompt_token_ids]      batches cut at about 2 MB
//!   DataSourceExec: calls/part-….parquet                keys, bases, suffixes, outputs; file order kept
//! ```
//!
//! One partition reads its files and row groups one after the other, so that a rollout's rows come together and in order;
//! a rollout's contexts are dropped when the next one starts.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use datafusion::arrow::array::{ArrayRef, RecordBatch};
use datafusion::arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, Statistics, exec_err, internal_err};
use datafusion::execution::{RecordBatchStream, SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::common::spawn_buffered;
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties,
    ReplaceChildrenOptions,
};
use futures::{Stream, StreamExt};
use rollbook_lake::codec::Decoder;

use super::table::{PROMPT, REQUEST};
use crate::error::Error;
use crate::same_rows::one_input;
use crate::session::BatchBytes;

/// Stored batches that are read ahead; each is about as large as what one output batch is made of.
const READ_AHEAD: usize = 2;

/// Returns the stored columns that must be read to give these logical ones, in the order of the file.
pub(super) fn stored_columns(columns: &[String]) -> Vec<String> {
    let wants = |name: &str| columns.iter().any(|column| column == name);
    let Some(table) = rollbook_schema::table("calls") else {
        return Vec::new();
    };
    let parts = Decoder::columns(wants(PROMPT), wants(REQUEST));
    table
        .physical()
        .fields()
        .iter()
        .map(|field| field.name().as_str())
        .filter(|name| wants(name) || parts.contains(name))
        .map(str::to_owned)
        .collect()
}

/// Rebuilds prompts and requests from stored rows.
#[derive(Debug, Clone)]
pub struct DecodeExec {
    input: Arc<dyn ExecutionPlan>,
    columns: Vec<String>,
    row_bytes: u64,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl DecodeExec {
    /// Creates the operator over a scan of stored columns; `columns` are logical.
    pub fn try_new(input: Arc<dyn ExecutionPlan>, columns: &[String], row_bytes: u64) -> Result<Self> {
        let Some(table) = rollbook_schema::table("calls") else {
            return internal_err!("there is no table of calls");
        };
        let logical = table.logical();
        let fields: Vec<Arc<Field>> = columns
            .iter()
            .map(|name| logical.field_with_name(name).map(|field| Arc::new(field.clone())))
            .collect::<Result<_, _>>()?;
        let properties = PlanProperties::new(
            EquivalenceProperties::new(Arc::new(Schema::new(fields))),
            datafusion::physical_plan::Partitioning::UnknownPartitioning(input.output_partitioning().partition_count()),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        Ok(Self {
            input,
            columns: columns.to_vec(),
            row_bytes,
            properties: Arc::new(properties),
            metrics: ExecutionPlanMetricsSet::new(),
        })
    }

    /// Returns the logical columns it gives.
    pub fn columns(&self) -> &[String] {
        &self.columns
    }

    /// Returns the bytes a row is expected to take at most.
    pub fn row_bytes(&self) -> u64 {
        self.row_bytes
    }

    /// Whether it rebuilds requests.
    pub(crate) fn rebuilds_requests(&self) -> bool {
        self.wants(REQUEST)
    }

    fn wants(&self, name: &str) -> bool {
        self.columns.iter().any(|column| column == name)
    }
}

impl DisplayAs for DecodeExec {
    fn fmt_as(&self, t: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match t {
            DisplayFormatType::Default | DisplayFormatType::Verbose => {
                write!(f, "DecodeExec: columns=[{}]", self.columns.join(", "))
            }
            DisplayFormatType::TreeRender => write!(f, "columns={}", self.columns.join(", ")),
        }
    }
}

impl ExecutionPlan for DecodeExec {
    fn name(&self) -> &'static str {
        "DecodeExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        // It does, but saying so would let the optimizer sort below it, and a rollout's rows must come as stored.
        vec![false]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        // A rollout's rows must stay together and in order.
        vec![false]
    }

    one_input!(|own, input| Self::try_new(input, &own.columns, own.row_bytes));

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let batch_bytes = BatchBytes::of(context.session_config()).0;
        // Pages are decompressed while prompts are rebuilt.
        let input = spawn_buffered(self.input.execute(partition, context)?, READ_AHEAD);
        Ok(Box::pin(DecodeStream {
            input,
            schema: self.schema(),
            decoder: Decoder::new(self.wants(PROMPT), self.wants(REQUEST)),
            batch_bytes: usize::try_from(batch_bytes).unwrap_or(usize::MAX),
            pending: None,
            metrics: BaselineMetrics::new(&self.metrics, partition),
        }))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn statistics_from_inputs(
        &self,
        input_stats: &[Arc<Statistics>],
        _args: &datafusion::physical_plan::statistics::StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        let mut statistics = Statistics::new_unknown(&self.schema());
        if let Some(input) = input_stats.first() {
            statistics.num_rows = input.num_rows;
            // Half the longest prompt a row: enough to keep joins from holding this side.
            let row_bytes = usize::try_from(self.row_bytes / 2).unwrap_or(usize::MAX);
            statistics.total_byte_size = input.num_rows.multiply(&Precision::Inexact(row_bytes));
        }
        Ok(Arc::new(statistics))
    }

    fn child_stats_requests(&self, partition: Option<usize>) -> Vec<datafusion::physical_plan::statistics::ChildStats> {
        vec![datafusion::physical_plan::statistics::ChildStats::At(partition)]
    }
}

/// A stored batch and how far it is decoded.
struct Pending {
    batch: RecordBatch,
    next: usize,
}

struct DecodeStream {
    input: SendableRecordBatchStream,
    schema: SchemaRef,
    decoder: Decoder,
    /// Bytes of prompts and requests that one output batch aims at.
    batch_bytes: usize,
    pending: Option<Pending>,
    metrics: BaselineMetrics,
}

impl DecodeStream {
    /// Decodes the next piece of the pending batch.
    fn piece(&mut self, mut pending: Pending) -> Result<RecordBatch> {
        let from = pending.next;
        let decoded = self.decoder.decode_up_to(&pending.batch, from, self.batch_bytes).map_err(Error::from)?;
        let (decoded, next) = decoded;
        if next <= from {
            return internal_err!("the decoder made no progress");
        }
        let piece = pending.batch.slice(from, next - from);
        pending.next = next;
        if pending.next < pending.batch.num_rows() {
            self.pending = Some(pending);
        }
        let prompts = decoded.prompt_token_ids.map(|prompts| Arc::new(prompts) as ArrayRef);
        let requests = decoded.request.map(|requests| Arc::new(requests) as ArrayRef);
        let columns = self
            .schema
            .fields()
            .iter()
            .map(|field| {
                let rebuilt = match field.name().as_str() {
                    PROMPT => prompts.as_ref(),
                    REQUEST => requests.as_ref(),
                    _ => None,
                };
                rebuilt.or_else(|| piece.column_by_name(field.name())).map(Arc::clone)
            })
            .collect::<Option<Vec<ArrayRef>>>();
        if let Some(columns) = columns {
            Ok(RecordBatch::try_new(Arc::clone(&self.schema), columns)?)
        } else {
            exec_err!("a stored column that was asked for is missing")
        }
    }
}

impl Stream for DecodeStream {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            if let Some(pending) = self.pending.take() {
                let timer = self.metrics.elapsed_compute().clone();
                let _timer = timer.timer();
                let piece = self.piece(pending);
                return self.metrics.record_poll(Poll::Ready(Some(piece)));
            }
            match ready!(self.input.poll_next_unpin(cx)) {
                Some(Ok(batch)) if batch.num_rows() > 0 => {
                    self.pending = Some(Pending { batch, next: 0 });
                }
                Some(Ok(_)) => {}
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => return Poll::Ready(None),
            }
        }
    }
}

impl RecordBatchStream for DecodeStream {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}
