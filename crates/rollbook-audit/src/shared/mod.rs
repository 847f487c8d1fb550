//! One scan for all checks that read the same table.
//!
//! A check is plain SQL, and a check's author does nothing for the sharing. Before anything runs, the plans of all checks
//! are laid beside each other and cut where they read the lake:
//!
//! ```text
//!                                         what a plan reads                        what becomes of it
//! SELECT run_id, kind FROM calls          narrow columns                           one scan of all such columns of the table,
//!                                                                                  kept; each plan reads what was kept
//! SELECT call_id, f(prompt_token_ids)     lists, texts or JSON, made narrow by     one scan of all such columns of the table,
//! FROM calls WHERE …                      filters, projections and unnest over     its batches dealt to every such pipeline; the
//!                                         the one table (a pipeline), and counts   narrow rows that come out of each are kept
//!                                         by run of what comes out of one
//! SELECT a.output_token_ids … JOIN …      lists beyond their own row               a scan of its own
//! SELECT … FROM trained_span              a helper table (`tables`)                its query runs once, its rows are kept
//! ```
//!
//! So a check shares its scan of lists where the list has become a number, a digest or a row of narrow columns before the
//! first join, group, window or sort; counts by run may follow at once. Equal pipelines of several checks run once.
//!
//! What is kept lies in memory up to a quarter of the session's memory limit, beside its pool: first the narrow columns of
//! the tables that most scans read. Rows of pipelines and helper tables beyond that go to temporary files in the session's
//! spill folder. Narrow columns beyond it are not kept: each plan then scans those it needs.

mod cut;
mod deal;
mod kept;
mod narrow;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::catalog::TableProvider;
use datafusion::datasource::provider_as_source;
use datafusion::logical_expr::{LogicalPlan, LogicalPlanBuilder};
use futures::TryStreamExt;
use rollbook_query::{Result, Session};

use cut::{Cutter, HelperRows};
use kept::{Budget, Keeper, Kept};

pub(crate) use cut::HelperTable;

/// Runs what the plans share, and gives them back as plans over what was kept.
pub(crate) async fn share(session: &Session, plans: Vec<LogicalPlan>) -> Result<Vec<LogicalPlan>> {
    let mut cutter = Cutter::new(session);
    let plans = plans.into_iter().map(|plan| cutter.cut(plan)).collect::<Result<Vec<_>>>()?;
    let budget = Arc::new(Budget::new(session));
    for table in cutter.tables() {
        table.fill_narrow(session, &budget).await?;
    }
    for table in cutter.tables() {
        for leaves in table.pipelines() {
            deal::deal(session, &table.table, leaves, &budget).await?;
        }
    }
    for helper in cutter.helpers() {
        let mut keeper = Keeper::new(session, helper.kept.schema_ref(), Arc::clone(&budget));
        match &helper.rows {
            HelperRows::Plan(plan) => {
                let mut rows = session.run_optimized(plan).await?;
                while let Some(batch) = rows.try_next().await? {
                    keeper.push(&batch)?;
                }
            }
            HelperRows::Made { reads, make } => {
                let mut read = Vec::with_capacity(reads.len());
                for kept in reads {
                    read.push(rows_of(session, kept).await?);
                }
                for batch in make(read).await? {
                    keeper.push(&batch)?;
                }
            }
        }
        helper.kept.fill(keeper.finish()?)?;
    }
    Ok(plans)
}

async fn rows_of(session: &Session, kept: &Arc<Kept>) -> Result<Vec<RecordBatch>> {
    let source = provider_as_source(Arc::clone(kept) as Arc<dyn TableProvider>);
    let rows = session.run_optimized(&LogicalPlanBuilder::scan("kept", source, None)?.build()?).await?;
    Ok(rows.try_collect().await?)
}
