//! Cuts plans where they read the lake.

use std::any::Any;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::catalog::{Session as PlanSession, TableProvider};
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Result as PlanResult, internal_err};
use datafusion::datasource::{TableType, provider_as_source, source_as_provider};
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, TableScan, TableScanBuilder, ident};
use datafusion::physical_plan::ExecutionPlan;
use futures::future::BoxFuture;
use rollbook_query::{Error, LakeTable, Result, Session};

use super::kept::{Budget, Kept};
use super::narrow::Narrow;

/// Makes the rows of a table from those of the tables it reads.
pub(crate) type MakeRows =
    Arc<dyn Fn(Vec<Vec<RecordBatch>>) -> BoxFuture<'static, Result<Vec<RecordBatch>>> + Send + Sync>;

/// A table that is made once for all plans that name it.
pub(crate) struct HelperTable {
    name: &'static str,
    schema: SchemaRef,
    from: MadeFrom,
}

enum MadeFrom {
    Query(LogicalPlan),
    Code { reads: Vec<Arc<dyn TableProvider>>, make: MakeRows },
}

impl HelperTable {
    /// A table that a query makes.
    pub(crate) fn new(name: &'static str, plan: LogicalPlan) -> Self {
        // Unqualified, and each column once: what a table's schema is.
        let fields = plan.schema().fields().iter().map(Arc::clone).collect::<Vec<_>>();
        Self { name, schema: Arc::new(Schema::new(fields)), from: MadeFrom::Query(plan) }
    }

    /// A table that code makes from other helper tables.
    pub(crate) fn made(
        name: &'static str,
        schema: SchemaRef,
        reads: Vec<Arc<dyn TableProvider>>,
        make: MakeRows,
    ) -> Self {
        Self { name, schema, from: MadeFrom::Code { reads, make } }
    }
}

impl fmt::Debug for HelperTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HelperTable").field("name", &self.name).finish_non_exhaustive()
    }
}

#[async_trait]
impl TableProvider for HelperTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::View
    }

    async fn scan(
        &self,
        _: &dyn PlanSession,
        _: Option<&Vec<usize>>,
        _: &[Expr],
        _: Option<usize>,
    ) -> PlanResult<Arc<dyn ExecutionPlan>> {
        internal_err!("{} is read by a plan that was not cut", self.name)
    }
}

/// A helper table that some plan reads.
pub(super) struct Helper {
    name: &'static str,
    pub(super) rows: HelperRows,
    pub(super) kept: Arc<Kept>,
}

/// Whence the rows of a helper table come.
pub(super) enum HelperRows {
    Plan(LogicalPlan),
    Made { reads: Vec<Arc<Kept>>, make: MakeRows },
}

/// What the plans read of one table.
pub(super) struct Read {
    pub(super) table: LakeTable,
    narrow: Arc<Narrow>,
    leaves: Vec<Leaf>,
}

/// A pipeline over one scan, whose rows are kept.
#[derive(Clone)]
pub(super) struct Leaf {
    pub(super) plan: LogicalPlan,
    pub(super) kept: Arc<Kept>,
    /// Columns of the table that its scan gives, in their order.
    pub(super) columns: Vec<usize>,
    pub(super) filters: Vec<Expr>,
}

impl Read {
    fn new(table: &LakeTable) -> Self {
        Self { table: table.clone(), narrow: Narrow::new(table), leaves: Vec::new() }
    }

    /// The pipelines, in up to two scans: those that need rebuilt columns come in batches of few rows.
    pub(super) fn pipelines(&self) -> Vec<Vec<Leaf>> {
        let schema = self.table.schema();
        let rebuilds =
            |leaf: &&Leaf| leaf.columns.iter().any(|column| self.table.rebuilds(schema.field(*column).name()));
        let (rebuilt, stored): (Vec<&Leaf>, Vec<&Leaf>) = self.leaves.iter().partition(rebuilds);
        [stored, rebuilt]
            .into_iter()
            .filter(|leaves| !leaves.is_empty())
            .map(|leaves| leaves.into_iter().cloned().collect())
            .collect()
    }

    pub(super) async fn fill_narrow(&self, session: &Session, budget: &Arc<Budget>) -> Result<()> {
        self.narrow.fill(session, budget).await
    }
}

/// Cuts plans, and knows what to run before them.
pub(super) struct Cutter<'a> {
    session: &'a Session,
    /// By name and number of columns: a table has a form with a hidden column.
    tables: BTreeMap<(String, usize), Read>,
    helpers: Vec<Helper>,
}

impl<'a> Cutter<'a> {
    pub(super) fn new(session: &'a Session) -> Self {
        Self { session, tables: BTreeMap::new(), helpers: Vec::new() }
    }

    /// The tables that are read, first those that most scans read: what is kept in memory saves as many readings.
    pub(super) fn tables(&self) -> Vec<&Read> {
        let mut tables: Vec<&Read> = self.tables.values().collect();
        tables.sort_by_key(|read| Reverse(read.narrow.scans()));
        tables
    }

    /// The helper tables that are read, each after those it reads itself.
    pub(super) fn helpers(&self) -> &[Helper] {
        &self.helpers
    }

    /// Puts what is shared in place of scans and pipelines.
    pub(super) fn cut(&mut self, plan: LogicalPlan) -> Result<LogicalPlan> {
        let mut failed = None;
        let cut = plan.transform_down(|node| match self.replace(&node) {
            Ok(Some(shared)) => Ok(Transformed::new(shared, true, TreeNodeRecursion::Jump)),
            Ok(None) => Ok(Transformed::no(node)),
            Err(error) => {
                failed = Some(error);
                Ok(Transformed::new(node, false, TreeNodeRecursion::Stop))
            }
        })?;
        match failed {
            Some(error) => Err(error),
            None => Ok(cut.data),
        }
    }

    fn replace(&mut self, node: &LogicalPlan) -> Result<Option<LogicalPlan>> {
        let Some(scan) = pipeline_scan(counted_by_run(node).unwrap_or(node)) else {
            return Ok(None);
        };
        let Ok(provider) = source_as_provider(&scan.source) else {
            return Ok(None);
        };
        let provider: &dyn Any = provider.as_ref();
        if let (Some(helper), LogicalPlan::TableScan(scan)) = (provider.downcast_ref::<HelperTable>(), node) {
            let kept = self.helper(helper)?;
            return Ok(Some(instead(scan, kept, Vec::new())?));
        }
        let Some(table) = provider.downcast_ref::<LakeTable>() else {
            return Ok(None);
        };
        let read = self
            .tables
            .entry((table.definition().name.clone(), table.schema().fields().len()))
            .or_insert_with(|| Read::new(table));
        let is_wide = scan.projected_schema.fields().iter().any(|field| table.is_wide(field.name()));
        if is_wide {
            return if is_narrow(node, table) { Ok(Some(leaf(read, node, scan)?)) } else { Ok(None) };
        }
        let LogicalPlan::TableScan(scan) = node else {
            return Ok(None);
        };
        read.narrow.add(scan);
        // Where its rows are not kept, the table is scanned with the filters after all.
        Ok(Some(instead(scan, Arc::clone(&read.narrow) as Arc<dyn TableProvider>, scan.filters.clone())?))
    }

    fn helper(&mut self, helper: &HelperTable) -> Result<Arc<Kept>> {
        if let Some(known) = self.helpers.iter().find(|known| known.name == helper.name) {
            return Ok(Arc::clone(&known.kept));
        }
        let rows = match &helper.from {
            MadeFrom::Query(plan) => {
                let plan = self.session.optimize(plan)?;
                HelperRows::Plan(self.cut(plan)?)
            }
            MadeFrom::Code { reads, make } => {
                let mut kept = Vec::with_capacity(reads.len());
                for read in reads {
                    let read: &dyn Any = read.as_ref();
                    let read = read.downcast_ref::<HelperTable>();
                    kept.push(self.helper(read.ok_or_else(|| Error::corrupt("code reads helper tables alone"))?)?);
                }
                HelperRows::Made { reads: kept, make: Arc::clone(make) }
            }
        };
        let kept = Kept::new(Arc::clone(&helper.schema));
        self.helpers.push(Helper { name: helper.name, rows, kept: Arc::clone(&kept) });
        Ok(kept)
    }
}

/// What a plan counts by run alone: the rows that come of it are few, however many go in.
fn counted_by_run(node: &LogicalPlan) -> Option<&LogicalPlan> {
    let LogicalPlan::Aggregate(aggregate) = node else {
        return None;
    };
    let is_run = |expr: &Expr| matches!(expr, Expr::Column(column) if column.name == "run_id");
    let is_counted = |expr: &Expr| match expr {
        Expr::Alias(alias) => is_small_state(&alias.expr),
        other => is_small_state(other),
    };
    (aggregate.group_expr.iter().all(is_run) && aggregate.aggr_expr.iter().all(is_counted)).then_some(&*aggregate.input)
}

/// Whether an aggregate holds one value for each group.
fn is_small_state(expr: &Expr) -> bool {
    let Expr::AggregateFunction(function) = expr else {
        return false;
    };
    let is_plain = !function.params.distinct && function.params.order_by.is_empty();
    is_plain && ["count", "min", "max", "sum"].contains(&function.func.name()) && is_of_its_row(expr)
}

/// The scan below a chain of filters, projections and unnests; none where the chain has anything else.
fn pipeline_scan(node: &LogicalPlan) -> Option<&TableScan> {
    match node {
        LogicalPlan::TableScan(scan) => scan.fetch.is_none().then_some(scan),
        LogicalPlan::Projection(projection) if projection.expr.iter().all(is_of_its_row) => {
            pipeline_scan(&projection.input)
        }
        LogicalPlan::Filter(filter) if is_of_its_row(&filter.predicate) => pipeline_scan(&filter.input),
        LogicalPlan::SubqueryAlias(alias) => pipeline_scan(&alias.input),
        LogicalPlan::Unnest(unnest) => pipeline_scan(&unnest.input),
        _ => None,
    }
}

fn is_of_its_row(expr: &Expr) -> bool {
    let mut is_of_its_row = !expr.is_volatile();
    let visited = expr.apply(|expr| {
        if matches!(
            expr,
            Expr::Exists(_) | Expr::InSubquery(_) | Expr::ScalarSubquery(_) | Expr::OuterReferenceColumn(..)
        ) {
            is_of_its_row = false;
        }
        Ok(TreeNodeRecursion::Continue)
    });
    is_of_its_row && visited.is_ok()
}

/// Whether what comes out of a pipeline is worth keeping: no long column as it went in.
fn is_narrow(node: &LogicalPlan, table: &LakeTable) -> bool {
    let count = node.schema().fields().len();
    let is_long = |index| passed(node, index).is_some_and(|name| table.is_wide(&name));
    count > 0 && !(0..count).any(is_long)
}

/// The column of the scan that a pipeline's column is, unchanged.
fn passed(node: &LogicalPlan, index: usize) -> Option<String> {
    match node {
        LogicalPlan::TableScan(scan) => scan.projected_schema.fields().get(index).map(|field| field.name().clone()),
        LogicalPlan::Projection(projection) => match projection.expr.get(index)?.clone().unalias() {
            Expr::Column(column) => {
                passed(&projection.input, projection.input.schema().maybe_index_of_column(&column)?)
            }
            _ => None,
        },
        LogicalPlan::Filter(filter) => passed(&filter.input, index),
        LogicalPlan::SubqueryAlias(alias) => passed(&alias.input, index),
        LogicalPlan::Unnest(unnest) => {
            let below = *unnest.dependency_indices.get(index)?;
            let same = unnest.input.schema().field(below).data_type() == unnest.schema.field(index).data_type();
            if same { passed(&unnest.input, below) } else { None }
        }
        _ => None,
    }
}

fn leaf(read: &mut Read, node: &LogicalPlan, scan: &TableScan) -> Result<LogicalPlan> {
    let known = read.leaves.iter().find(|leaf| leaf.plan == *node);
    let kept = if let Some(known) = known {
        Arc::clone(&known.kept)
    } else {
        // The names of a plan's columns may repeat; those of a table may not.
        let fields = node.schema().fields().iter().enumerate();
        let fields = fields
            .map(|(index, field)| Field::new(format!("c{index}"), field.data_type().clone(), field.is_nullable()));
        let kept = Kept::new(Arc::new(Schema::new(fields.collect::<Vec<_>>())));
        let all = || (0..read.table.schema().fields().len()).collect();
        read.leaves.push(Leaf {
            plan: node.clone(),
            kept: Arc::clone(&kept),
            columns: scan.projection.clone().unwrap_or_else(all),
            filters: scan.filters.clone(),
        });
        kept
    };
    let source = provider_as_source(kept as Arc<dyn TableProvider>);
    let names = node.schema().iter().enumerate().map(|(index, (qualifier, field))| {
        let column = ident(format!("c{index}"));
        match qualifier {
            Some(qualifier) => column.alias_qualified(Some(qualifier.clone()), field.name()),
            None => column.alias(field.name()),
        }
    });
    Ok(LogicalPlanBuilder::scan("kept", source, None)?.project(names.collect::<Vec<_>>())?.build()?)
}

/// The same scan of another source. Filters that no source is sure to apply stand above the scan as well.
fn instead(scan: &TableScan, source: Arc<dyn TableProvider>, filters: Vec<Expr>) -> Result<LogicalPlan> {
    let scan = TableScanBuilder::new(scan.table_name.clone(), provider_as_source(source))
        .with_projection(scan.projection.clone())
        .with_filters(filters)
        .build()?;
    Ok(LogicalPlan::TableScan(scan))
}
