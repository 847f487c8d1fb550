//! `audit('family/name')`: a check's findings as a table.

use std::fmt;
use std::sync::Arc;

use datafusion::arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::catalog::streaming::StreamingTable;
use datafusion::catalog::{TableFunctionArgs, TableFunctionImpl, TableProvider};
use datafusion::common::{DataFusionError, Result as PlanResult, ScalarValue, plan_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::PartitionStream;
use futures::{StreamExt, TryStreamExt, stream};
use rollbook_query::Session;

use super::Origin;
use crate::catalog;
use crate::check::Check;
use crate::prepare::{COLUMNS, Prepared, prepare};
use crate::register::session_for_checks;

/// The table function.
#[derive(Debug)]
pub(crate) struct AuditFunction {
    origin: Origin,
}

impl AuditFunction {
    /// Makes the function for an origin.
    pub(crate) fn new(origin: Origin) -> Self {
        Self { origin }
    }
}

impl TableFunctionImpl for AuditFunction {
    fn call_with_args(&self, args: TableFunctionArgs) -> PlanResult<Arc<dyn TableProvider>> {
        let [Expr::Literal(ScalarValue::Utf8(Some(code)) | ScalarValue::Utf8View(Some(code)), _)] = args.exprs() else {
            return plan_err!("audit takes a check's code, as in audit('token/prefix')");
        };
        let Some(check) = catalog::check(code) else {
            let known: Vec<&str> = catalog::checks().iter().map(|check| check.code).collect();
            return plan_err!("no check is called {code}; there are: {}", known.join(", "));
        };
        let fields = COLUMNS.iter().map(|(name, kind)| Field::new(*name, kind.clone(), true));
        let schema: SchemaRef = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let part = Findings { origin: self.origin.clone(), schema: Arc::clone(&schema), check };
        Ok(Arc::new(StreamingTable::try_new(schema, vec![Arc::new(part)])?))
    }
}

struct Findings {
    origin: Origin,
    schema: SchemaRef,
    check: &'static Check,
}

impl fmt::Debug for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Findings").field("check", &self.check.code).finish_non_exhaustive()
    }
}

impl PartitionStream for Findings {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
        let schema = Arc::clone(&self.schema);
        let plans = stream::once(plans(self.origin.clone(), self.check));
        let batches = plans
            .map_ok(|(session, plans)| {
                // One after the other, as an audit runs them: each may then hold what the session has.
                stream::iter(plans)
                    .then(move |plan| {
                        let session = session.clone();
                        async move { Ok::<_, DataFusionError>(session.run_optimized(&plan).await?) }
                    })
                    .try_flatten()
            })
            .try_flatten()
            .and_then(move |batch| {
                let schema = Arc::clone(&schema);
                async move { Ok(batch.with_schema(schema)?) }
            });
        Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&self.schema), batches.boxed()))
    }
}

async fn plans(origin: Origin, check: &'static Check) -> PlanResult<(Session, Vec<LogicalPlan>)> {
    let session = session_for_checks(&origin.session().await?, origin.snapshot().clone()).await?;
    let prepared = prepare(&session, &[check], None).await?;
    let plans = prepared.iter().flat_map(Prepared::findings).cloned().collect();
    Ok((session, plans))
}
