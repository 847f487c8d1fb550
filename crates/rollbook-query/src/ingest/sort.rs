//! An external sort fed by a channel: rows go in as they are read, and come out in file order.

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use arrow::array::RecordBatch;
use arrow::compute::SortOptions;
use arrow::datatypes::SchemaRef;
use datafusion::common::DataFusionError;
use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::memory_pool::FairSpillPool;
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::expressions::col;
use datafusion::physical_expr::{LexOrdering, PhysicalSortExpr};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use datafusion::prelude::SessionConfig;
use futures::{StreamExt, TryStreamExt};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::error::{Error, Result};

/// Rows a sorted batch holds at most. Small, since one row of a call may carry a prompt of 100k tokens.
const SORTED_BATCH_ROWS: usize = 256;

/// The memory pool and spill folder that all sorts of one import share.
pub(super) fn runtime(memory_limit: usize, spill_dir: Option<&PathBuf>) -> Result<Arc<RuntimeEnv>> {
    let mode = match spill_dir {
        Some(folder) => DiskManagerMode::Directories(vec![folder.clone()]),
        None => DiskManagerMode::OsTmpDirectory,
    };
    let runtime = RuntimeEnvBuilder::new()
        .with_memory_pool(Arc::new(FairSpillPool::new(memory_limit)))
        .with_disk_manager_builder(DiskManagerBuilder::default().with_mode(mode))
        .build_arc()?;
    Ok(runtime)
}

/// One table's running sort.
pub(super) struct Sort {
    input: mpsc::Sender<RecordBatch>,
    output: JoinHandle<Result<SendableRecordBatchStream>>,
}

impl Sort {
    /// Starts a sort by the named columns, ascending, nulls last.
    pub(super) fn start(schema: &SchemaRef, columns: &[&str], runtime: &Arc<RuntimeEnv>) -> Result<Self> {
        let (input, receiver) = mpsc::channel(2);
        let source = Arc::new(Channel { schema: Arc::clone(schema), receiver: Mutex::new(Some(receiver)) });
        let scan = StreamingTableExec::try_new(Arc::clone(schema), vec![source], None, Vec::new(), false, None)?;
        let options = SortOptions { descending: false, nulls_first: false };
        let ordering = columns
            .iter()
            .map(|name| Ok(PhysicalSortExpr { expr: col(name, schema)?, options }))
            .collect::<Result<Vec<_>>>()?;
        let ordering = LexOrdering::new(ordering).ok_or_else(|| Error::invalid("a sort needs at least one column"))?;
        let plan = SortExec::new(ordering, Arc::new(scan));
        let config = SessionConfig::new().with_batch_size(SORTED_BATCH_ROWS);
        let context = Arc::new(TaskContext::default().with_session_config(config).with_runtime(Arc::clone(runtime)));
        let output = tokio::spawn(async move {
            let schema = plan.schema();
            let mut sorted = plan.execute(0, context)?;
            // The first batch is ready only when all input is in: asking for it is what drives the sort.
            let first = sorted.try_next().await?;
            let stream = futures::stream::iter(first.map(Ok)).chain(sorted);
            Ok(Box::pin(RecordBatchStreamAdapter::new(schema, stream)) as SendableRecordBatchStream)
        });
        Ok(Self { input, output })
    }

    /// Hands rows to the sort, waiting while it is busy. An error here is the sort's own, see [`Sort::finish`].
    pub(super) async fn push(&self, batch: RecordBatch) -> Result<()> {
        if self.input.send(batch).await.is_err() {
            return Err(Error::new(crate::error::ErrorKind::Unavailable, "the sort ended early"));
        }
        Ok(())
    }

    /// Closes the input and returns the sorted rows.
    pub(super) async fn finish(self) -> Result<SendableRecordBatchStream> {
        drop(self.input);
        match self.output.await {
            Ok(result) => result,
            Err(error) => {
                Err(Error::new(crate::error::ErrorKind::Unavailable, "the sort was cancelled").caused_by(error))
            }
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
