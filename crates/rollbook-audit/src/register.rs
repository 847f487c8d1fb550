//! Puts the checks' functions and tables into a session.

use std::collections::BTreeMap;
use std::sync::Arc;

use datafusion::logical_expr::Expr;
use rollbook_lake::Snapshot;
use rollbook_query::{Result, Session};

use crate::functions;
use crate::tables::{AuditFunction, Form, HelperTables, Origin};

/// Makes `audit('family/name')` and what the checks rest on known to a session.
///
/// ```sql
/// SELECT call_id, position, message FROM audit('token/prefix')
/// ```
pub fn register(session: &Session) -> Result<()> {
    let origin = Origin::of(session);
    session.context().register_udtf("audit", Arc::new(AuditFunction::new(origin.clone())));
    register_for(session, origin, Form::Views)
}

/// Opens a session for checks: the helper tables that they name are made once for all of them.
pub(crate) async fn session_for_checks(session: &Session, snapshot: Snapshot) -> Result<Session> {
    session_for_checks_within(session, snapshot, BTreeMap::new()).await
}

/// The same, reading of some tables only the rows for which a condition holds.
pub(crate) async fn session_for_checks_within(
    session: &Session,
    snapshot: Snapshot,
    within: BTreeMap<&'static str, Expr>,
) -> Result<Session> {
    let own = Session::at_within(session.lake(), snapshot, session.options().clone(), within).await?;
    register_for(&own, Origin::of(&own), Form::Shared)?;
    Ok(own)
}

fn register_for(session: &Session, origin: Origin, form: Form) -> Result<()> {
    functions::all().into_iter().for_each(|function| session.context().register_udf(function));
    session.hide_tables(HelperTables::new(session, origin, form))
}
