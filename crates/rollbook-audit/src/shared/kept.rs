//! Rows that several plans read: in memory up to a bound, then in a temporary file.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use datafusion::arrow::array::{RecordBatch, RecordBatchOptions};
use datafusion::arrow::compute::BatchCoalescer;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::streaming::StreamingTable;
use datafusion::catalog::{Session as PlanSession, TableProvider};
use datafusion::common::{Result as PlanResult, internal_datafusion_err};
use datafusion::datasource::TableType;
use datafusion::datasource::memory::MemorySourceConfig;
use datafusion::execution::{SendableRecordBatchStream, SpillFile, TaskContext};
use datafusion::logical_expr::Expr;
use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, SpillMetrics};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::PartitionStream;
use datafusion::physical_plan::union::UnionExec;
use datafusion::physical_plan::{ExecutionPlan, SpillManager};
use futures::stream;
use rollbook_query::{Error, Result, Session};

/// Rows of a kept batch.
const BATCH_ROWS: usize = 8192;

/// What all kept rows of one audit may hold in memory: a quarter of the session's limit, beside its pool. In the pool they
/// would take from the share of every sort, join and group.
pub(super) struct Budget {
    limit: usize,
    held: AtomicUsize,
}

impl Budget {
    pub(super) fn new(session: &Session) -> Self {
        Self { limit: session.options().memory_limit / 4, held: AtomicUsize::new(0) }
    }

    fn take(&self, bytes: usize) -> bool {
        let add = |held: usize| held.checked_add(bytes).filter(|held| *held <= self.limit);
        self.held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).is_ok()
    }

    fn give_back(&self, bytes: usize) {
        self.held.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// Appends a batch to a temporary file, or ends the file.
type Spill = Box<dyn FnMut(Option<&RecordBatch>) -> PlanResult<Option<Arc<dyn SpillFile>>> + Send>;

/// Takes rows in and keeps them.
pub(super) struct Keeper {
    schema: SchemaRef,
    coalescer: BatchCoalescer,
    manager: SpillManager,
    rows: usize,
    memory: Vec<RecordBatch>,
    held: Held,
    spill: Option<Spill>,
}

impl Keeper {
    pub(super) fn new(session: &Session, schema: SchemaRef, budget: Arc<Budget>) -> Self {
        let metrics = SpillMetrics::new(&ExecutionPlanMetricsSet::new(), 0);
        let manager = SpillManager::new(session.context().runtime_env(), metrics, Arc::clone(&schema));
        let coalescer = BatchCoalescer::new(Arc::clone(&schema), BATCH_ROWS);
        let held = Held { budget, bytes: 0 };
        Self { schema, coalescer, manager, rows: 0, memory: Vec::new(), held, spill: None }
    }

    /// Takes a batch whose columns are those of the schema, whatever they are called.
    pub(super) fn push(&mut self, batch: &RecordBatch) -> Result<()> {
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        let named = RecordBatch::try_new_with_options(Arc::clone(&self.schema), batch.columns().to_vec(), &options)?;
        self.coalescer.push_batch(named)?;
        self.drain()
    }

    /// Whether everything so far is in memory.
    pub(super) fn is_in_memory(&self) -> bool {
        self.spill.is_none()
    }

    pub(super) fn finish(mut self) -> Result<Rows> {
        self.coalescer.finish_buffered_batch()?;
        self.drain()?;
        let file = match self.spill.as_mut() {
            Some(spill) => spill(None)?,
            None => None,
        };
        Ok(Rows { count: self.rows, memory: self.memory, file, manager: self.manager, _held: self.held })
    }

    fn drain(&mut self) -> Result<()> {
        while let Some(batch) = self.coalescer.next_completed_batch() {
            self.rows += batch.num_rows();
            let bytes = batch.get_array_memory_size();
            if self.spill.is_none() && self.held.budget.take(bytes) {
                self.held.bytes += bytes;
                self.memory.push(batch);
                continue;
            }
            let spill = match &mut self.spill {
                Some(spill) => spill,
                None => self.spill.insert(open(&self.manager)?),
            };
            spill(Some(&batch))?;
        }
        Ok(())
    }
}

fn open(manager: &SpillManager) -> PlanResult<Spill> {
    let mut file = manager.create_in_progress_file("rows that checks share")?;
    Ok(Box::new(move |batch| match batch {
        Some(batch) => file.append_batch(batch).map(|_| None),
        None => file.finish(),
    }))
}

/// Memory that is given back when the rows are gone.
struct Held {
    budget: Arc<Budget>,
    bytes: usize,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.budget.give_back(self.bytes);
    }
}

/// Rows that were taken in.
pub(super) struct Rows {
    count: usize,
    memory: Vec<RecordBatch>,
    file: Option<Arc<dyn SpillFile>>,
    manager: SpillManager,
    _held: Held,
}

/// A table of rows that are there by the time it is read.
pub(crate) struct Kept {
    schema: SchemaRef,
    rows: OnceLock<Arc<Rows>>,
}

impl Kept {
    pub(super) fn new(schema: SchemaRef) -> Arc<Self> {
        Arc::new(Self { schema, rows: OnceLock::new() })
    }

    pub(super) fn schema_ref(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    pub(super) fn fill(&self, rows: Rows) -> Result<()> {
        self.rows.set(Arc::new(rows)).ok().ok_or_else(|| Error::corrupt("shared rows were made twice"))
    }
}

impl fmt::Debug for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows = self.rows.get().map(|rows| rows.count);
        f.debug_struct("Kept").field("schema", &self.schema).field("rows", &rows).finish()
    }
}

#[async_trait]
impl TableProvider for Kept {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Temporary
    }

    async fn scan(
        &self,
        state: &dyn PlanSession,
        projection: Option<&Vec<usize>>,
        _filters: &[Expr],
        _limit: Option<usize>,
    ) -> PlanResult<Arc<dyn ExecutionPlan>> {
        let rows =
            self.rows.get().ok_or_else(|| internal_datafusion_err!("shared rows are read before they are made"))?;
        let partitions = state.config().target_partitions().clamp(1, rows.memory.len().max(1));
        let mut dealt = vec![Vec::new(); partitions];
        for (index, batch) in rows.memory.iter().enumerate() {
            if let Some(part) = dealt.get_mut(index % partitions) {
                part.push(batch.clone());
            }
        }
        let memory: Arc<dyn ExecutionPlan> =
            MemorySourceConfig::try_new_exec(&dealt, Arc::clone(&self.schema), projection.cloned())?;
        if rows.file.is_none() {
            return Ok(memory);
        }
        let part = FromFile { schema: Arc::clone(&self.schema), rows: Arc::clone(rows) };
        let table = StreamingTable::try_new(Arc::clone(&self.schema), vec![Arc::new(part)])?;
        UnionExec::try_new(vec![memory, table.scan(state, projection, &[], None).await?])
    }
}

/// The rows that did not stay in memory.
struct FromFile {
    schema: SchemaRef,
    rows: Arc<Rows>,
}

impl fmt::Debug for FromFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FromFile").field("schema", &self.schema).finish_non_exhaustive()
    }
}

impl PartitionStream for FromFile {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
        let read = self.rows.file.as_ref().map(|file| self.rows.manager.read_spill_as_stream(Arc::clone(file), None));
        match read {
            Some(Ok(rows)) => rows,
            Some(Err(error)) => {
                Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&self.schema), stream::iter([Err(error)])))
            }
            None => Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&self.schema), stream::iter([]))),
        }
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::{AsArray, Int64Array, StringArray};
    use datafusion::arrow::datatypes::{DataType, Field, Int64Type, Schema};
    use datafusion::datasource::provider_as_source;
    use datafusion::logical_expr::LogicalPlanBuilder;
    use datafusion::physical_plan::collect;

    use super::super::tests::session;
    use super::*;

    fn files(folder: &std::path::Path) -> usize {
        let entries = std::fs::read_dir(folder).unwrap().flatten().map(|entry| entry.path());
        entries.map(|path| if path.is_dir() { files(&path) } else { 1 }).sum()
    }

    /// 80,000 rows of about 60 bytes under a budget of 256 KiB: the first few stay in memory, the rest goes to one file.
    #[tokio::test]
    async fn rows_beyond_the_budget_go_to_a_file_and_come_back() {
        let scratch = tempfile::tempdir().unwrap();
        let session = session(scratch.path(), 1 << 20).await;
        let schema = Arc::new(Schema::new(vec![
            Field::new("number", DataType::Int64, false),
            Field::new("text", DataType::Utf8, true),
        ]));
        let budget = Arc::new(Budget::new(&session));
        let mut keeper = Keeper::new(&session, Arc::clone(&schema), Arc::clone(&budget));
        for start in (0..80_000_i64).step_by(1_000) {
            let numbers: Int64Array = (start..start + 1_000).collect();
            let texts: StringArray = numbers
                .iter()
                .map(|number| {
                    number.filter(|number| number % 7 > 0).map(|number| format!("a text of some length: {number}"))
                })
                .collect();
            keeper
                .push(&RecordBatch::try_new(Arc::clone(&schema), vec![Arc::new(numbers), Arc::new(texts)]).unwrap())
                .unwrap();
        }
        assert!(!keeper.is_in_memory());
        let kept = Kept::new(Arc::clone(&schema));
        kept.fill(keeper.finish().unwrap()).unwrap();
        assert!(budget.held.load(Ordering::Relaxed) <= budget.limit);
        assert_eq!(files(&scratch.path().join("spill")), 1);
        for projection in [None, Some(vec![0])] {
            let source = provider_as_source(Arc::clone(&kept) as Arc<dyn TableProvider>);
            let plan = LogicalPlanBuilder::scan("kept", source, projection).unwrap().build().unwrap();
            let (physical, task) = session.physical(&plan).await.unwrap();
            let rows = collect(physical, task).await.unwrap();
            let mut numbers: Vec<i64> =
                rows.iter().flat_map(|batch| batch.column(0).as_primitive::<Int64Type>().values().to_vec()).collect();
            numbers.sort_unstable();
            assert_eq!(numbers, (0..80_000).collect::<Vec<_>>());
        }
        drop(kept);
        assert_eq!((budget.held.load(Ordering::Relaxed), files(&scratch.path().join("spill"))), (0, 0));
    }
}
