//! A table of which only some rows are read, whatever a statement asks for.

use std::sync::Arc;

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::Expr;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::projection::ProjectionExec;

use super::table::LakeTable;

/// Scans the rows for which `within` holds.
pub(super) async fn scan(
    table: &LakeTable,
    within: &Expr,
    state: &dyn Session,
    projection: Option<&Vec<usize>>,
    filters: &[Expr],
) -> Result<Arc<dyn ExecutionPlan>> {
    let schema: SchemaRef = table.schema();
    let asked: Vec<usize> = projection.map_or_else(|| (0..schema.fields().len()).collect(), Clone::clone);
    let mut read = asked.clone();
    // In the schema's order, so that the plan is the same each time.
    let wanted: std::collections::BTreeSet<usize> =
        within.column_refs().into_iter().map(|column| schema.index_of(&column.name)).collect::<Result<_, _>>()?;
    read.extend(wanted.into_iter().filter(|index| !asked.contains(index)));
    let mut below = filters.to_vec();
    below.push(within.clone());
    let rows = table.scan(state, Some(&read), &below, None).await?;
    let predicate = state.create_physical_expr(within.clone(), &DFSchema::try_from(rows.schema())?)?;
    let kept = Arc::new(FilterExec::try_new(predicate, rows)?);
    if read.len() == asked.len() {
        return Ok(kept);
    }
    let columns = asked.iter().enumerate().map(|(place, index)| {
        let name = schema.field(*index).name();
        (Arc::new(Column::new(name, place)) as Arc<dyn PhysicalExpr>, name.clone())
    });
    Ok(Arc::new(ProjectionExec::try_new(columns.collect::<Vec<_>>(), kept)?))
}
