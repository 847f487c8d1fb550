//! Step and group of rows that arrived before their rollout: looked up while reading, for the marked files alone.

use std::sync::Arc;

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::{Column, JoinType, Result, TableReference};
use datafusion::datasource::{TableType, provider_as_source};
use datafusion::execution::SessionState;
use datafusion::functions::core::expr_fn::coalesce;
use datafusion::logical_expr::utils::conjunction;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, TableProviderFilterPushDown};
use datafusion::physical_plan::ExecutionPlan;
use rollbook_schema::Table;

use super::nested;
use super::table::LakeTable;
use crate::session::parse;

/// Which columns of a table are filled: `rewards.group_id` is the reward's own key, `samples.step` the trainer's step.
pub(super) fn filled_columns(table: &Table) -> &'static [&'static str] {
    match table.name.as_str() {
        "rewards" => &["step"],
        "samples" => &["group_id"],
        _ => &["step", "group_id"],
    }
}

/// A rollout's first step and group that are not null stand.
///
/// They have names of their own: a filter on the filled column is pushed below the join by name, and would there read the
/// stored column alone.
const FIRST: &str = "
SELECT run_id, rollout_id,
       first_value(step ORDER BY revision) FILTER (WHERE step IS NOT NULL) AS first_step,
       first_value(group_id ORDER BY revision) FILTER (WHERE group_id IS NOT NULL) AS first_group_id
FROM rollouts_history GROUP BY run_id, rollout_id";

/// Scans a table some of whose files are unresolved.
pub(super) async fn scan(
    table: &LakeTable,
    state: &dyn Session,
    columns: &[String],
    filters: &[Expr],
) -> Result<Arc<dyn ExecutionPlan>> {
    let session = nested::session(state)?;
    let (open, closed): (Vec<_>, Vec<_>) = table.files().iter().cloned().partition(|file| file.unresolved);
    let columns_filled = filled_columns(table.definition());
    let early: Vec<Expr> = filters
        .iter()
        .filter(|filter| !filter.column_refs().iter().any(|column| columns_filled.contains(&column.name.as_str())))
        .cloned()
        .collect();
    let mut plan = filled(&table.with_files(open), session, columns, &early).await?;
    if !closed.is_empty() {
        let rest = side(&table.with_files(closed), columns, filters)?.build()?;
        plan = plan.union(rest)?;
    }
    nested::physical(session, &plan.build()?).await
}

/// Reads one side; step and group are read as stored, whatever the mark says.
fn side(table: &LakeTable, columns: &[String], filters: &[Expr]) -> Result<LogicalPlanBuilder> {
    let schema = table.schema();
    let mut wanted: Vec<&str> = columns.iter().map(String::as_str).collect();
    let filter_columns: Vec<String> =
        filters.iter().flat_map(|filter| filter.column_refs().into_iter().map(|c| c.name.clone())).collect();
    for name in filter_columns.iter().map(String::as_str).chain(["run_id", "rollout_id"]) {
        if !wanted.contains(&name) && schema.index_of(name).is_ok() {
            wanted.push(name);
        }
    }
    let indices = wanted.iter().map(|name| schema.index_of(name)).collect::<Result<Vec<_>, _>>()?;
    let source = provider_as_source(Arc::new(AsStored(table.clone())));
    let mut plan = LogicalPlanBuilder::scan("stored", source, Some(indices))?;
    if let Some(filter) = conjunction(filters.to_vec()) {
        plan = plan.filter(filter)?;
    }
    let output = columns.iter().map(|name| Expr::Column(Column::new(Some("stored"), name)).alias(name));
    plan.project(output.collect::<Vec<_>>())
}

async fn filled(
    table: &LakeTable,
    session: &SessionState,
    columns: &[String],
    filters: &[Expr],
) -> Result<LogicalPlanBuilder> {
    let first = first_values(session).await?;
    let mut wanted = columns.to_vec();
    for key in ["run_id", "rollout_id"] {
        if !wanted.iter().any(|name| name == key) {
            wanted.push(key.to_owned());
        }
    }
    let stored = side(table, &wanted, filters)?.alias("stored")?.build()?;
    let keys = |table: &str| {
        ["run_id", "rollout_id"].map(|name| Column::new(Some(TableReference::bare(table)), name)).to_vec()
    };
    // The rollouts are the side that is held: they are narrow, and prompts may be among the stored columns.
    let joined = LogicalPlanBuilder::from(first).alias("first")?.join(
        stored,
        JoinType::Right,
        (keys("first"), keys("stored")),
        None,
    )?;
    let columns_filled = filled_columns(table.definition());
    let output = columns.iter().map(|name| {
        let own = Expr::Column(Column::new(Some("stored"), name));
        if columns_filled.contains(&name.as_str()) {
            coalesce(vec![own, Expr::Column(Column::new(Some("first"), format!("first_{name}")))]).alias(name)
        } else {
            own.alias(name)
        }
    });
    joined.project(output.collect::<Vec<_>>())
}

async fn first_values(session: &SessionState) -> Result<LogicalPlan> {
    session.statement_to_plan(parse(FIRST)?).await
}

/// The same table with its marks taken as done.
#[derive(Debug)]
struct AsStored(LakeTable);

#[async_trait::async_trait]
impl TableProvider for AsStored {
    fn schema(&self) -> SchemaRef {
        self.0.schema()
    }

    fn table_type(&self) -> TableType {
        self.0.table_type()
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> Result<Vec<TableProviderFilterPushDown>> {
        self.0.supports_filters_pushdown(filters)
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        // Pruning still sees the marks: it happened before, and step and group never prune a marked file.
        self.0.scan_stored(state, projection, filters, limit).await
    }
}
