//! A sort that spills: rows go in as they are made, and come out in the order of one number.

use std::fmt;
use std::sync::{Arc, Mutex};

use arrow::array::RecordBatch;
use arrow::compute::SortOptions;
use arrow::datatypes::SchemaRef;
use datafusion::common::DataFusionError;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::expressions::col;
use datafusion::physical_expr::{LexOrdering, PhysicalSortExpr};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use futures::{StreamExt, TryStreamExt};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::error::{Error, ErrorKind, Result};
use crate::session::Session;

/// One running sort, within the session's memory and spill folder.
pub(crate) struct Order {
    input: mpsc::Sender<RecordBatch>,
    output: JoinHandle<Result<SendableRecordBatchStream>>,
}

impl Order {
    /// Starts a sort by the named columns; what comes out has at most `rows` rows a batch.
    pub(crate) fn start(session: &Session, schema: &SchemaRef, columns: &[&str], rows: usize) -> Result<Self> {
        let (input, receiver) = mpsc::channel(1);
        let source = Arc::new(Channel { schema: Arc::clone(schema), receiver: Mutex::new(Some(receiver)) });
        let scan = StreamingTableExec::try_new(Arc::clone(schema), vec![source], None, Vec::new(), false, None)?;
        let options = SortOptions { descending: false, nulls_first: false };
        let keys = columns
            .iter()
            .map(|name| Ok(PhysicalSortExpr { expr: col(name, schema)?, options }))
            .collect::<Result<Vec<_>>>()?;
        let keys = LexOrdering::new(keys).ok_or_else(|| Error::invalid("a sort needs a column"))?;
        let plan = SortExec::new(keys, Arc::new(scan));
        let state = session.context().state();
        let config = state.config().clone().with_batch_size(rows.max(1));
        let context =
            Arc::new(TaskContext::default().with_session_config(config).with_runtime(Arc::clone(state.runtime_env())));
        let output = tokio::spawn(async move {
            let schema = plan.schema();
            let mut sorted = plan.execute(0, context)?;
            // Asking for the first batch is what makes the sort take its input.
            let first = sorted.try_next().await?;
            let stream = futures::stream::iter(first.map(Ok)).chain(sorted);
            Ok(Box::pin(RecordBatchStreamAdapter::new(schema, stream)) as SendableRecordBatchStream)
        });
        Ok(Self { input, output })
    }

    /// Hands rows in. That the sort has ended early is told by [`Self::finish`], with its reason.
    pub(crate) async fn push(&self, batch: RecordBatch) -> bool {
        self.input.send(batch).await.is_ok()
    }

    /// Ends the input and returns the rows in order.
    pub(crate) async fn finish(self) -> Result<SendableRecordBatchStream> {
        drop(self.input);
        match self.output.await {
            Ok(result) => result,
            Err(source) => Err(Error::new(ErrorKind::Unavailable, "a sort was cancelled").caused_by(source)),
        }
    }
}

/// A scan of what comes through a channel, once.
struct Channel {
    schema: SchemaRef,
    receiver: Mutex<Option<mpsc::Receiver<RecordBatch>>>,
}

impl fmt::Debug for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Channel")
    }
}

impl PartitionStream for Channel {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
        let receiver = self.receiver.lock().ok().and_then(|mut held| held.take());
        let stream = futures::stream::unfold(receiver, |receiver| async move {
            let Some(mut receiver) = receiver else {
                let error = DataFusionError::Execution("the channel was read already".to_owned());
                return Some((Err(error), None));
            };
            receiver.recv().await.map(|batch| (Ok(batch), Some(receiver)))
        });
        Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&self.schema), stream))
    }
}
