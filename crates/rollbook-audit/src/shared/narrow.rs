//! The narrow columns of a table, read once for all plans that want some of them.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use async_trait::async_trait;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{Session as PlanSession, TableProvider};
use datafusion::common::{Result as PlanResult, internal_datafusion_err};
use datafusion::datasource::{TableType, provider_as_source};
use datafusion::logical_expr::{Expr, LogicalPlan, TableProviderFilterPushDown, TableScan, TableScanBuilder};
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use futures::TryStreamExt;
use rollbook_query::{Error, LakeTable, Result, Session};

use super::kept::{Budget, Keeper, Kept};

/// A table whose narrow columns may be in memory.
pub(super) struct Narrow {
    table: LakeTable,
    wanted: Mutex<Wanted>,
    /// The columns that are kept, and their rows.
    kept: OnceLock<(Vec<usize>, Arc<Kept>)>,
}

#[derive(Default)]
struct Wanted {
    columns: BTreeSet<usize>,
    scans: usize,
}

impl Narrow {
    pub(super) fn new(table: &LakeTable) -> Arc<Self> {
        Arc::new(Self { table: table.clone(), wanted: Mutex::default(), kept: OnceLock::new() })
    }

    /// Counts a scan in.
    pub(super) fn add(&self, scan: &TableScan) {
        let mut wanted = self.wanted.lock().unwrap_or_else(PoisonError::into_inner);
        wanted.scans += 1;
        match &scan.projection {
            Some(columns) => wanted.columns.extend(columns),
            None => wanted.columns.extend(0..self.table.schema().fields().len()),
        }
    }

    /// How many scans want some of it.
    pub(super) fn scans(&self) -> usize {
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner).scans
    }

    /// Reads what the scans want, if there are several and it stays in memory.
    pub(super) async fn fill(&self, session: &Session, budget: &Arc<Budget>) -> Result<()> {
        let (columns, scans) = {
            let wanted = self.wanted.lock().unwrap_or_else(PoisonError::into_inner);
            (wanted.columns.iter().copied().collect::<Vec<_>>(), wanted.scans)
        };
        // A scan of no column counts rows, and that is known.
        if scans < 2 || columns.is_empty() {
            return Ok(());
        }
        let source = provider_as_source(Arc::new(self.table.clone()) as Arc<dyn TableProvider>);
        let name = self.table.definition().name.as_str();
        let scan = TableScanBuilder::new(name, source).with_projection(Some(columns.clone())).build()?;
        let (plan, task) = session.physical(&LogicalPlan::TableScan(scan)).await?;
        let kept = Kept::new(Arc::new(self.table.schema().project(&columns)?));
        let mut keeper = Keeper::new(session, kept.schema_ref(), Arc::clone(budget));
        let mut rows = execute_stream(plan, task)?;
        while let Some(batch) = rows.try_next().await? {
            keeper.push(&batch)?;
            if !keeper.is_in_memory() {
                return Ok(());
            }
        }
        let rows = keeper.finish()?;
        kept.fill(rows)?;
        self.kept.set((columns, kept)).ok().ok_or_else(|| Error::corrupt("narrow columns were read twice"))
    }
}

impl fmt::Debug for Narrow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Narrow").field("table", &self.table.definition().name).finish_non_exhaustive()
    }
}

#[async_trait]
impl TableProvider for Narrow {
    fn schema(&self) -> SchemaRef {
        self.table.schema()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> PlanResult<Vec<TableProviderFilterPushDown>> {
        self.table.supports_filters_pushdown(filters)
    }

    async fn scan(
        &self,
        state: &dyn PlanSession,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> PlanResult<Arc<dyn ExecutionPlan>> {
        let Some((columns, kept)) = self.kept.get() else {
            return self.table.scan(state, projection, filters, limit).await;
        };
        let all: Vec<usize> = (0..self.table.schema().fields().len()).collect();
        let place = |column: &usize| {
            let place = columns.binary_search(column);
            place.ok().ok_or_else(|| internal_datafusion_err!("column {column} was not asked for when plans were cut"))
        };
        let places = projection.unwrap_or(&all).iter().map(place).collect::<PlanResult<Vec<_>>>()?;
        kept.scan(state, Some(&places), &[], limit).await
    }
}
