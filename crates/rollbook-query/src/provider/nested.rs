//! Plans inside a scan: what a table is made of, left for the outer plan's rules to arrange.

use std::sync::Arc;

use datafusion::catalog::Session;
use datafusion::common::{Result, internal_err};
use datafusion::execution::{SessionState, SessionStateBuilder};
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::ExecutionPlan;

/// Returns the session behind a scan's state.
pub(crate) fn session(state: &dyn Session) -> Result<&SessionState> {
    if let Some(session) = state.as_any().downcast_ref::<SessionState>() {
        Ok(session)
    } else {
        internal_err!("Rollbook's tables need a session of DataFusion's own kind")
    }
}

/// Plans operators without arranging them.
///
/// The rules run once, over the whole plan: joins that they have already fitted with dynamic filters cannot be turned
/// around a second time.
pub(crate) async fn physical(session: &SessionState, plan: &LogicalPlan) -> Result<Arc<dyn ExecutionPlan>> {
    SessionStateBuilder::new_from_existing(session.clone())
        .with_physical_optimizer_rules(Vec::new())
        .build()
        .create_physical_plan(plan)
        .await
}
