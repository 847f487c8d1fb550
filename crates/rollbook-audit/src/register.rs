//! Puts the checks' functions and tables into a session.

use std::sync::Arc;

use datafusion::catalog::TableProvider;
use rollbook_query::Result;
use rollbook_query::Session;

use crate::functions;
use crate::tables::{self, AuditFunction, Origin};

/// Makes `audit('family/name')` and what the checks rest on known to a session.
///
/// ```sql
/// SELECT call_id, position, message FROM audit('token/prefix')
/// ```
pub fn register(session: &Session) -> Result<()> {
    register_for(session, None)
}

/// The same, restricted to one run.
pub(crate) fn register_for(session: &Session, run: Option<&str>) -> Result<()> {
    let context = session.context();
    for function in functions::all() {
        context.register_udf(function);
    }
    let origin = Origin::of(session, run);
    context.register_udtf("audit", Arc::new(AuditFunction::new(origin.clone())));
    for (name, table) in tables::all(&origin)? {
        if !context.table_exist(name)? {
            let table: Arc<dyn TableProvider> = table;
            context.register_table(name, table)?;
        }
    }
    Ok(())
}
