//! One scan whose batches are dealt to many pipelines.
//!
//! ```text
//! scan, partition 0 ─┬─> pipeline a ─> keeper a      each arrow into a pipeline is a channel of a few batches: the scan
//!           …        ├─> pipeline b ─> keeper b      waits for the slowest, so what is under way stays bounded
//! scan, partition n ─┴─> …
//! ```
//!
//! A pipeline has one input and takes all of it, and its output is kept whole before anything reads it: nothing can wait
//! in a circle.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::TableProvider;
use datafusion::catalog::streaming::StreamingTable;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DataFusionError, Result as PlanResult, internal_datafusion_err};
use datafusion::datasource::provider_as_source;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{LogicalPlan, TableScanBuilder};
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::PartitionStream;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties, execute_stream_partitioned};
use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};
use rollbook_query::{Error, LakeTable, Result, Session};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::task::JoinSet;

use super::cut::Leaf;
use super::kept::{Budget, Keeper};

/// Batches under way to one pipeline.
const UNDER_WAY: usize = 2;
/// Bytes of a batch of long rows, four times a query's: dozens of pipelines take each one up, and none of them sorts it.
const BATCH_BYTES: u64 = 8 << 20;

/// Scans the table once for all pipelines and keeps what comes out of each.
pub(super) async fn deal(session: &Session, table: &LakeTable, leaves: Vec<Leaf>, budget: &Arc<Budget>) -> Result<()> {
    let columns: Vec<usize> =
        leaves.iter().flat_map(|leaf| leaf.columns.iter().copied()).collect::<BTreeSet<_>>().into_iter().collect();
    let scan = scan_of(table, &columns, &leaves)?;
    let (scan, task) = session.physical_in_bytes(&scan, BATCH_BYTES).await?;
    let partitions = scan.output_partitioning().partition_count();
    let mut tasks: JoinSet<Result<()>> = JoinSet::new();
    let mut outlets: Vec<Vec<Outlet>> = (0..partitions).map(|_| Vec::new()).collect();
    for leaf in leaves {
        let places = leaf
            .columns
            .iter()
            .map(|column| {
                columns.binary_search(column).ok().ok_or_else(|| Error::corrupt("a shared scan lost a column"))
            })
            .collect::<Result<Vec<usize>>>()?;
        let mut parts: Vec<Arc<dyn PartitionStream>> = Vec::with_capacity(partitions);
        let schema = Arc::new(table.schema().project(&leaf.columns)?);
        for outlets in &mut outlets {
            let (sender, receiver) = channel(UNDER_WAY);
            outlets.push(Outlet { places: places.clone(), sender });
            parts.push(Arc::new(Inlet { schema: Arc::clone(&schema), receiver: Mutex::new(Some(receiver)) }));
        }
        let input = Arc::new(StreamingTable::try_new(schema, parts)?);
        let plan = over(leaf.plan.clone(), &(input as Arc<dyn TableProvider>))?;
        let (plan, task) = session.physical_in(&plan, partitions).await?;
        let plan = ungathered(plan)?;
        let keeper = Keeper::new(session, leaf.kept.schema_ref(), Arc::clone(budget));
        tasks.spawn(async move { leaf.kept.fill(keep(plan, task, keeper).await?) });
    }
    for (partition, outlets) in outlets.into_iter().enumerate() {
        let rows = scan.execute(partition, Arc::clone(&task))?;
        tasks.spawn(hand_out(rows, outlets));
    }
    finished(tasks).await
}

/// The columns that any of the pipelines wants, and the filters that all of them have.
fn scan_of(table: &LakeTable, columns: &[usize], leaves: &[Leaf]) -> Result<LogicalPlan> {
    let filters = match leaves.split_first() {
        Some((first, rest)) => {
            first.filters.iter().filter(|one| rest.iter().all(|leaf| leaf.filters.contains(one))).cloned().collect()
        }
        None => Vec::new(),
    };
    let source = provider_as_source(Arc::new(table.clone()) as Arc<dyn TableProvider>);
    let scan = TableScanBuilder::new(table.definition().name.as_str(), source)
        .with_projection(Some(columns.to_vec()))
        .with_filters(filters)
        .build()?;
    Ok(LogicalPlan::TableScan(scan))
}

/// The pipeline over another input, which has just the columns of its scan.
fn over(plan: LogicalPlan, input: &Arc<dyn TableProvider>) -> Result<LogicalPlan> {
    let plan = plan.transform_up(|node| match node {
        LogicalPlan::TableScan(scan) => {
            let scan = TableScanBuilder::new(scan.table_name, provider_as_source(Arc::clone(input))).build()?;
            Ok(Transformed::yes(LogicalPlan::TableScan(scan)))
        }
        other => Ok(Transformed::no(other)),
    })?;
    Ok(plan.data)
}

/// The plan with filters that give what they keep as it comes: to gather whole batches of it would copy long rows.
fn ungathered(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    let plan = plan.transform_up(|node| match node.downcast_ref::<FilterExec>() {
        Some(filter) => Ok(Transformed::yes(Arc::new(filter.with_batch_size(1)?) as Arc<dyn ExecutionPlan>)),
        None => Ok(Transformed::no(node)),
    })?;
    Ok(plan.data)
}

async fn hand_out(mut rows: SendableRecordBatchStream, outlets: Vec<Outlet>) -> Result<()> {
    while let Some(batch) = rows.try_next().await? {
        for outlet in &outlets {
            // A pipeline that takes no more has failed, and says so itself.
            outlet.sender.send(batch.project(&outlet.places)?).await.ok();
        }
    }
    Ok(())
}

/// Runs a pipeline and keeps its rows; its parts run side by side.
async fn keep(plan: Arc<dyn ExecutionPlan>, task: Arc<TaskContext>, keeper: Keeper) -> Result<super::kept::Rows> {
    let keeper = Arc::new(Mutex::new(keeper));
    let mut parts: JoinSet<Result<()>> = JoinSet::new();
    for mut rows in execute_stream_partitioned(plan, task)? {
        let keeper = Arc::clone(&keeper);
        parts.spawn(async move {
            while let Some(batch) = rows.try_next().await? {
                keeper.lock().unwrap_or_else(PoisonError::into_inner).push(&batch)?;
            }
            Ok(())
        });
    }
    finished(parts).await?;
    let keeper = Arc::into_inner(keeper).ok_or_else(|| Error::corrupt("a shared pipeline did not end"))?;
    keeper.into_inner().unwrap_or_else(PoisonError::into_inner).finish()
}

/// Waits for all tasks; the first error ends the others.
async fn finished(mut tasks: JoinSet<Result<()>>) -> Result<()> {
    while let Some(done) = tasks.join_next().await {
        done.map_err(|error| Error::from(DataFusionError::External(Box::new(error))))??;
    }
    Ok(())
}

/// Where the scan gives a pipeline its columns.
struct Outlet {
    places: Vec<usize>,
    sender: Sender<RecordBatch>,
}

/// Where a pipeline takes them.
struct Inlet {
    schema: SchemaRef,
    receiver: Mutex<Option<Receiver<RecordBatch>>>,
}

impl fmt::Debug for Inlet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inlet").field("schema", &self.schema).finish_non_exhaustive()
    }
}

impl PartitionStream for Inlet {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
        let receiver = self.receiver.lock().unwrap_or_else(PoisonError::into_inner).take();
        let batches = match receiver {
            Some(receiver) => stream::unfold(receiver, |mut receiver| async move {
                let batch = receiver.recv().await?;
                Some((Ok(batch), receiver))
            })
            .boxed(),
            None => stream::iter([Err(internal_datafusion_err!("a shared scan is read twice"))]).boxed(),
        };
        let rows: BoxStream<'static, PlanResult<RecordBatch>> = batches;
        Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&self.schema), rows))
    }
}
