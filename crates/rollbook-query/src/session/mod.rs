//! One lake at one snapshot, as tables and views that SQL reads.
//!
//! ```text
//! text -> parse (our dialect) -> read-only check -> parameters -> arguments -> logical plan -> read-only check
//!      -> batch size from the columns it reads -> DataFrame
//! ```

mod arguments;
mod batch_size;
mod catalog;
mod count;
mod deterministic;
mod dialect;
mod environment;
mod joins;
mod literals;
mod parse;
mod pool;
mod read_only;
#[cfg(test)]
mod tests;
mod total_order;

pub(crate) use batch_size::BatchBytes;

use std::any::Any;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::catalog::view::ViewTable;
use datafusion::catalog::{CatalogProvider, MemoryCatalogProvider, SchemaProvider};
use datafusion::common::ScalarValue;
use datafusion::dataframe::DataFrame;
use datafusion::execution::{SendableRecordBatchStream, SessionState, SessionStateBuilder, TaskContext};
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::prelude::SessionContext;
use datafusion::sql::parser::Statement;
use futures::TryStreamExt;
use rollbook_functions::Param;
use rollbook_lake::{Lake, Snapshot};

pub use catalog::HiddenTables;
pub use dialect::RollbookDialect;
pub use parse::{parse, parse_expression};

pub(crate) use environment::SPILL_COMPRESSION;

use crate::batch_rows::BatchRows;
use crate::encodings::LakeEncodings;
use crate::error::{Error, Result};
use crate::views;
use catalog::LakeSchema;

/// Catalog and schema that hold the tables; names need neither.
pub(crate) const CATALOG: &str = "rollbook";
pub(crate) const SCHEMA: &str = "lake";

/// What a session may use of the machine.
#[derive(Debug, Clone)]
pub struct SessionOptions {
    /// Bytes that sorts, aggregates and joins may hold; what they cannot hold is spilled.
    pub memory_limit: usize,
    /// Partitions that run at once.
    pub threads: usize,
    /// Folder for spilled rows; `None` = the system's.
    pub spill_dir: Option<PathBuf>,
}

impl Default for SessionOptions {
    fn default() -> Self {
        Self {
            // A sort of long prompts takes about half as much again beside what it declares.
            memory_limit: 512 << 20,
            threads: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            spill_dir: None,
        }
    }
}

/// How a statement is planned.
#[derive(Debug, Clone, Default)]
pub struct PlanOptions {
    /// Values of `$name`, put in as typed literals.
    pub params: BTreeMap<String, ScalarValue>,
    /// SQL expressions that stand for a `$name`, such as the group key.
    pub expressions: BTreeMap<String, String>,
    /// Whether the plan must give the same rows whenever it runs: volatile functions are refused, float sums and
    /// averages are exact.
    pub deterministic: bool,
}

/// One lake at one snapshot.
#[derive(Clone)]
pub struct Session {
    lake: Lake,
    snapshot: Snapshot,
    options: SessionOptions,
    context: SessionContext,
    signatures: arguments::Signatures,
    encodings: Arc<LakeEncodings>,
    within: Arc<BTreeMap<&'static str, Expr>>,
}

impl Session {
    /// Opens a lake at its newest snapshot, or at snapshot `at`.
    pub async fn open(lake: &Lake, at: Option<u64>, options: SessionOptions) -> Result<Self> {
        let snapshot = match at {
            Some(n) => lake.snapshot_at(n).await?,
            None => lake.snapshot().await?,
        };
        Self::at(lake, snapshot, options).await
    }

    /// Opens a lake at a snapshot that is already read.
    pub async fn at(lake: &Lake, snapshot: Snapshot, options: SessionOptions) -> Result<Self> {
        Self::at_within(lake, snapshot, options, BTreeMap::new()).await
    }

    /// The same, reading of some tables only the rows for which a condition over their columns holds.
    pub async fn at_within(
        lake: &Lake,
        snapshot: Snapshot,
        options: SessionOptions,
        within: BTreeMap<&'static str, Expr>,
    ) -> Result<Self> {
        let encodings = Arc::new(LakeEncodings::new(lake, &snapshot));
        let context = environment::context(lake, &options, &encodings)?;
        let signatures = arguments::shipped();
        let within = Arc::new(within);
        let session = Self { lake: lake.clone(), snapshot, options, context, signatures, encodings, within };
        views::register(&session).await?;
        Ok(session)
    }

    /// The condition on the rows of a table.
    pub(crate) fn within(&self, table: &str) -> Option<Expr> {
        self.within.get(table).cloned()
    }

    /// Opens another session that reads the same rows.
    pub async fn reopen(&self) -> Result<Self> {
        Self::at_within(&self.lake, self.snapshot.clone(), self.options.clone(), self.within.as_ref().clone()).await
    }

    /// Returns the lake.
    pub fn lake(&self) -> &Lake {
        &self.lake
    }

    /// Returns the snapshot it reads.
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// Returns what it may use.
    pub fn options(&self) -> &SessionOptions {
        &self.options
    }

    /// Returns the tokenizers and chat templates of the snapshot.
    pub fn encodings(&self) -> &Arc<LakeEncodings> {
        &self.encodings
    }

    /// Returns `DataFusion`'s context, for plans that are built without SQL.
    pub fn context(&self) -> &SessionContext {
        &self.context
    }

    /// Makes the arguments of a function (such as a check's table function) known to the argument pass.
    pub fn declare_arguments(&mut self, function: &str, params: &'static [Param]) {
        self.signatures.insert(function.to_lowercase(), params);
    }

    /// Returns a session with one more view, as a recipe sees its upstream.
    pub fn with_view(&self, name: &str, plan: LogicalPlan) -> Result<Self> {
        let known = self.schema_provider()?;
        if known.table_exist(name) {
            return Err(Error::invalid(format!("{name} is already a table or view")));
        }
        let schema = LakeSchema::default();
        for other in known.table_names() {
            // The providers are cheap handles; a fresh schema keeps the view out of this session.
            if let Some(table) = futures::executor::block_on(known.table(&other))? {
                schema.register_table(other, table)?;
            }
        }
        schema.register_table(name.to_owned(), Arc::new(ViewTable::new(plan, None)))?;
        let catalog = MemoryCatalogProvider::new();
        catalog.register_schema(SCHEMA, Arc::new(schema))?;
        let catalogs = datafusion::catalog::MemoryCatalogProviderList::new();
        datafusion::catalog::CatalogProviderList::register_catalog(&catalogs, CATALOG.to_owned(), Arc::new(catalog));
        let state =
            SessionStateBuilder::new_from_existing(self.context.state()).with_catalog_list(Arc::new(catalogs)).build();
        Ok(Self { context: SessionContext::new_with_state(state), ..self.clone() })
    }

    /// Plans a statement: parameters, arguments, read-only checks.
    pub async fn plan(&self, mut statement: Statement, options: &PlanOptions) -> Result<LogicalPlan> {
        read_only::verify_statement(&statement)?;
        literals::substitute(&mut statement, &options.params, &options.expressions)?;
        arguments::complete(&mut statement, &self.signatures)?;
        // A group key may have brought a subquery in.
        read_only::verify_statement(&statement)?;
        let mut state = self.context.state();
        // Only recipes have lines to point at.
        state.config_mut().options_mut().sql_parser.collect_spans = options.deterministic;
        let plan = state.statement_to_plan(statement).await?;
        read_only::verify_plan(&plan)?;
        if !options.deterministic {
            return Ok(plan);
        }
        let views = deterministic::Views::of(self.schema_provider()?.as_ref()).await?;
        deterministic::make_deterministic(plan, &state, &views)
    }

    /// Makes a plan ready to run, in batches that suit the columns it reads.
    pub fn frame(&self, plan: LogicalPlan) -> Result<DataFrame> {
        let state = self.context.state();
        let rows = batch_size::for_plan(&plan, &state)?;
        Ok(DataFrame::new(in_batches(state, rows), plan))
    }

    /// Plans a read-only statement.
    pub async fn sql(&self, sql: &str) -> Result<DataFrame> {
        self.frame(self.plan(parse(sql)?, &PlanOptions::default()).await?)
    }

    /// Plans a read-only statement whose `$name`s get values.
    pub async fn sql_with(&self, sql: &str, params: &BTreeMap<String, ScalarValue>) -> Result<DataFrame> {
        let options = PlanOptions { params: params.clone(), ..PlanOptions::default() };
        self.frame(self.plan(parse(sql)?, &options).await?)
    }

    /// Optimizes a plan, so that it can be looked at before it runs.
    pub fn optimize(&self, plan: &LogicalPlan) -> Result<LogicalPlan> {
        Ok(self.context.state().optimize(plan)?)
    }

    /// Makes an optimized plan ready to run as it is, in batches that suit the columns it reads.
    pub async fn physical(&self, optimized: &LogicalPlan) -> Result<(Arc<dyn ExecutionPlan>, Arc<TaskContext>)> {
        ready(&suited(self.context.state(), optimized)?, optimized).await
    }

    /// The same in batches of about so many bytes where rows are long.
    pub async fn physical_in_bytes(
        &self,
        optimized: &LogicalPlan,
        bytes: u64,
    ) -> Result<(Arc<dyn ExecutionPlan>, Arc<TaskContext>)> {
        let mut state = self.context.state();
        state.config_mut().set_extension(Arc::new(BatchBytes(bytes)));
        ready(&suited(state, optimized)?, optimized).await
    }

    /// The same in so many partitions and in batches of the session's rows, for a plan whose input is in both already.
    pub async fn physical_in(
        &self,
        optimized: &LogicalPlan,
        partitions: usize,
    ) -> Result<(Arc<dyn ExecutionPlan>, Arc<TaskContext>)> {
        let mut state = self.context.state();
        *state.config_mut() = state.config().clone().with_target_partitions(partitions.max(1));
        ready(&state, optimized).await
    }

    /// Adds tables that statements may name and that no listing shows.
    pub fn hide_tables(&self, tables: Arc<dyn HiddenTables>) -> Result<()> {
        let schema = self.schema_provider()?;
        let schema: &dyn Any = schema.as_ref();
        let schema = schema
            .downcast_ref::<LakeSchema>()
            .ok_or_else(|| Error::corrupt("the session's tables are not in a schema of ours"))?;
        schema.hide(tables);
        Ok(())
    }

    /// Returns a handle that does not keep the session's tables alive, for tables that plan over others.
    pub fn downgrade(&self) -> WeakSession {
        let state = self.context.state_weak_ref();
        WeakSession {
            lake: self.lake.clone(),
            snapshot: self.snapshot.clone(),
            options: self.options.clone(),
            signatures: self.signatures.clone(),
            encodings: Arc::clone(&self.encodings),
            within: Arc::clone(&self.within),
            state: Arc::new(move || state.upgrade().map(|state| state.read().clone())),
        }
    }

    /// Runs a plan, in batches that suit the columns it reads.
    pub async fn run(&self, plan: &LogicalPlan) -> Result<SendableRecordBatchStream> {
        self.run_optimized(&self.optimize(plan)?).await
    }

    /// The same for a plan that is optimized already.
    pub async fn run_optimized(&self, optimized: &LogicalPlan) -> Result<SendableRecordBatchStream> {
        joins::run(&suited(self.context.state(), optimized)?, optimized).await
    }

    /// Runs a read-only statement.
    pub async fn stream(&self, sql: &str) -> Result<SendableRecordBatchStream> {
        self.run(&self.plan(parse(sql)?, &PlanOptions::default()).await?).await
    }

    /// Runs a read-only statement and keeps its rows in memory.
    pub async fn collect(&self, sql: &str) -> Result<Vec<RecordBatch>> {
        Ok(self.stream(sql).await?.try_collect().await?)
    }

    pub(crate) fn schema_provider(&self) -> Result<Arc<dyn SchemaProvider>> {
        self.context
            .catalog(CATALOG)
            .and_then(|catalog| catalog.schema(SCHEMA))
            .ok_or_else(|| Error::corrupt("the session has lost its catalog"))
    }
}

/// A session that may be gone.
#[derive(Clone)]
pub struct WeakSession {
    lake: Lake,
    snapshot: Snapshot,
    options: SessionOptions,
    signatures: arguments::Signatures,
    encodings: Arc<LakeEncodings>,
    within: Arc<BTreeMap<&'static str, Expr>>,
    state: Arc<dyn Fn() -> Option<SessionState> + Send + Sync>,
}

impl WeakSession {
    /// Returns the session, if it is still there.
    pub fn upgrade(&self) -> Option<Session> {
        let state = (self.state)()?;
        Some(Session {
            lake: self.lake.clone(),
            snapshot: self.snapshot.clone(),
            options: self.options.clone(),
            context: SessionContext::new_with_state(state),
            signatures: self.signatures.clone(),
            encodings: Arc::clone(&self.encodings),
            within: Arc::clone(&self.within),
        })
    }
}

impl std::fmt::Debug for WeakSession {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WeakSession")
            .field("lake", &self.lake)
            .field("snapshot", &self.snapshot.n)
            .finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("lake", &self.lake).field("snapshot", &self.snapshot.n).finish_non_exhaustive()
    }
}

async fn ready(state: &SessionState, optimized: &LogicalPlan) -> Result<(Arc<dyn ExecutionPlan>, Arc<TaskContext>)> {
    let plan = state.query_planner().create_physical_plan(optimized, state).await?;
    Ok((plan, state.task_ctx()))
}

/// The state for an optimized plan, in batches that suit the columns it reads.
fn suited(state: SessionState, optimized: &LogicalPlan) -> Result<SessionState> {
    let rows = batch_size::for_optimized(optimized, state.config())?;
    Ok(in_batches(state, rows))
}

/// The state for a plan whose longest rows come so many a batch.
fn in_batches(state: SessionState, rows: usize) -> SessionState {
    let short = state.config().batch_size();
    let config = state.config().clone().with_batch_size(rows);
    let builder = SessionStateBuilder::new_from_existing(state).with_config(config);
    builder.with_physical_optimizer_rule(Arc::new(BatchRows { long: rows, short })).build()
}
