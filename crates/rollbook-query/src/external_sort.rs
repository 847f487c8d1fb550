//! An external sort fed by a channel: rows go in as they are made, and come out in order; what exceeds the memory pool
//! is spilled.

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use arrow::array::{RecordBatch, UInt64Array};
use arrow::compute::{SortOptions, take_record_batch};
use arrow::datatypes::SchemaRef;
use datafusion::common::DataFusionError;
use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::memory_pool::{FairSpillPool, MemoryLimit};
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

use crate::error::{Error, ErrorKind, Result};
use crate::session::{SPILL_COMPRESSION, Session};

/// What a sort sets aside for merging its spilled parts, where the pool is large enough.
const MERGE_BYTES: usize = 10 << 20;
/// Sorts that may share one pool: an import runs one for each table it holds.
const SORTS: usize = 24;
/// A batch that goes in is cut to this part of the pool, since a sort holds it twice at once.
const PIECE_PART: usize = 6 * SORTS;

/// The memory pool and spill folder that the sorts of one write share; none = the system's temporary folder.
pub(crate) fn spilling_runtime(memory_limit: usize, spill_dir: Option<&PathBuf>) -> Result<Arc<RuntimeEnv>> {
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

/// Rows of a sorted batch. Few, since one row of a call may carry a prompt of 100k tokens.
pub(crate) fn sorted_rows(memory_limit: usize) -> usize {
    (memory_limit >> 21).clamp(16, 256)
}

/// One running sort.
pub(crate) struct ExternalSort {
    input: mpsc::Sender<RecordBatch>,
    output: JoinHandle<Result<SendableRecordBatchStream>>,
    piece_bytes: usize,
}

impl ExternalSort {
    /// Starts a sort by the named columns, ascending, nulls last; what comes out has at most `rows` rows a batch.
    pub(crate) fn start(schema: &SchemaRef, columns: &[&str], rows: usize, runtime: &Arc<RuntimeEnv>) -> Result<Self> {
        let pool = match runtime.memory_pool.memory_limit() {
            MemoryLimit::Finite(bytes) => bytes,
            _ => usize::MAX,
        };
        let (input, receiver) = mpsc::channel(1);
        let source = Arc::new(Channel { schema: Arc::clone(schema), receiver: Mutex::new(Some(receiver)) });
        let scan = StreamingTableExec::try_new(Arc::clone(schema), vec![source], None, Vec::new(), false, None)?;
        let options = SortOptions { descending: false, nulls_first: false };
        let keys = columns
            .iter()
            .map(|name| Ok(PhysicalSortExpr { expr: col(name, schema)?, options }))
            .collect::<Result<Vec<_>>>()?;
        let keys = LexOrdering::new(keys).ok_or_else(|| Error::invalid("a sort needs at least one column"))?;
        let plan = SortExec::new(keys, Arc::new(scan));
        let mut config = SessionConfig::new().with_batch_size(rows.max(1));
        let settings = &mut config.options_mut().execution;
        settings.sort_spill_reservation_bytes = MERGE_BYTES.min(pool / (2 * SORTS));
        settings.spill_compression = SPILL_COMPRESSION;
        let context = Arc::new(TaskContext::default().with_session_config(config).with_runtime(Arc::clone(runtime)));
        let output = tokio::spawn(async move {
            let schema = plan.schema();
            let mut sorted = plan.execute(0, context)?;
            // The first batch is ready only when all input is in: asking for it is what drives the sort.
            let first = sorted.try_next().await?;
            let stream = futures::stream::iter(first.map(Ok)).chain(sorted);
            Ok(Box::pin(RecordBatchStreamAdapter::new(schema, stream)) as SendableRecordBatchStream)
        });
        Ok(Self { input, output, piece_bytes: pool / PIECE_PART })
    }

    /// Starts one within a session's memory and spill folder.
    pub(crate) fn in_session(session: &Session, schema: &SchemaRef, columns: &[&str], rows: usize) -> Result<Self> {
        Self::start(schema, columns, rows, &session.context().runtime_env())
    }

    /// Hands rows in, waiting while the sort is busy. False once it has ended early: [`Self::finish`] says why.
    pub(crate) async fn push(&self, batch: RecordBatch) -> Result<bool> {
        let rows = batch.num_rows();
        let pieces = batch.get_array_memory_size().div_ceil(self.piece_bytes.max(1)).clamp(1, rows.max(1));
        if pieces == 1 {
            return Ok(self.input.send(batch).await.is_ok());
        }
        let step = rows.div_ceil(pieces);
        for start in (0..rows).step_by(step) {
            // Copied, not sliced: a slice would keep the whole batch in memory, and be counted with all of it.
            let taken = UInt64Array::from_iter_values(start as u64..(start + step).min(rows) as u64);
            if self.input.send(take_record_batch(&batch, &taken)?).await.is_err() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Closes the input and returns the sorted rows.
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

#[cfg(test)]
mod tests {
    use arrow::array::{AsArray, Int64Array, ListArray};
    use arrow::datatypes::{DataType, Field, Int32Type, Int64Type, Schema};

    use super::*;

    /// 64 MB of rows through an 8 MB pool, beside as many other sorts as an import can have.
    #[tokio::test]
    async fn rows_beyond_the_pool_come_out_in_order() {
        let runtime = spilling_runtime(8 << 20, None).unwrap();
        let list = Field::new_list("tokens", Field::new("element", DataType::Int32, true), true);
        let schema = Arc::new(Schema::new(vec![Field::new("key", DataType::Int64, false), list]));
        let others: Vec<_> =
            (1..SORTS).map(|_| ExternalSort::start(&schema, &["key"], 64, &runtime).unwrap()).collect();
        let sort = ExternalSort::start(&schema, &["key"], 64, &runtime).unwrap();
        let batch = |keys: Vec<i64>| {
            let lists = keys.iter().map(|&key| Some(vec![Some(i32::try_from(key).unwrap()); 256]));
            let tokens = ListArray::from_iter_primitive::<Int32Type, _, _>(lists);
            let tokens = ListArray::new(
                Arc::new(Field::new("element", DataType::Int32, true)),
                tokens.offsets().clone(),
                Arc::clone(tokens.values()),
                None,
            );
            RecordBatch::try_new(Arc::clone(&schema), vec![Arc::new(Int64Array::from(keys)), Arc::new(tokens)]).unwrap()
        };
        const ROWS: i64 = 65_536;
        for start in (0..ROWS).step_by(4096) {
            // 7,919 is odd, so every key below 65,536 comes once, in an order far from sorted.
            let keys = (start..start + 4096).map(|row| row * 7_919 % ROWS).collect();
            assert!(sort.push(batch(keys)).await.unwrap());
        }
        for other in &others {
            assert!(other.push(batch(vec![3, 1, 2])).await.unwrap());
        }
        let mut sorted = sort.finish().await.unwrap();
        let mut next = 0;
        while let Some(batch) = sorted.try_next().await.unwrap() {
            let tokens = batch.column(1).as_list::<i32>();
            for (row, key) in batch.column(0).as_primitive::<Int64Type>().values().iter().enumerate() {
                assert_eq!(*key, next);
                let list = tokens.value(row);
                let list = list.as_primitive::<Int32Type>();
                assert!(list.len() == 256 && list.values().iter().all(|&token| i64::from(token) == *key));
                next += 1;
            }
        }
        assert_eq!(next, ROWS);
    }
}
