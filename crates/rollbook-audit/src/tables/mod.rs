//! Tables that checks read and that are worked out when they are read.
//!
//! | table               | a row is                                                                                  |
//! |---------------------|-------------------------------------------------------------------------------------------|
//! | `audit('a/b')`      | a finding of the check                                                                    |
//! | `far_prefix_breaks` | a call whose prompt leaves the context of a parent in another file                        |
//! | `row_prefix_breaks` | a trainer row and a call in it whose trained tokens follow other tokens than they did     |
//!
//! The prefix breaks look at digests and lengths first, and read tokens only of what these accuse.

mod audit_function;
mod far_parents;
mod lazy;
mod rows;
mod spans;
mod tokens;
mod weights;

use std::sync::Arc;

use datafusion::catalog::streaming::StreamingTable;
use rollbook_lake::{Lake, Snapshot};
use rollbook_query::{Result, Session, SessionOptions};

pub(crate) use audit_function::AuditFunction;
use lazy::lazy_table;

/// Whence a table reads: it opens a session of its own, so that no session holds itself.
#[derive(Debug, Clone)]
pub(crate) struct Origin {
    lake: Lake,
    snapshot: Snapshot,
    options: SessionOptions,
    run: Option<String>,
}

impl Origin {
    /// The origin that a session reads.
    pub(crate) fn of(session: &Session, run: Option<&str>) -> Self {
        Self {
            lake: session.lake().clone(),
            snapshot: session.snapshot().clone(),
            options: session.options().clone(),
            run: run.map(str::to_owned),
        }
    }

    async fn session(&self) -> Result<Session> {
        let session = Session::at(&self.lake, self.snapshot.clone(), self.options.clone()).await?;
        crate::register::register_for(&session, self.run.as_deref())?;
        Ok(session)
    }

    /// A condition that keeps the rows of the run, true where there is none.
    fn of_run(&self, column: &str) -> String {
        match &self.run {
            Some(run) => format!("{column} = {}", quoted(run)),
            None => "true".to_owned(),
        }
    }
}

/// A text as an SQL literal.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// The tables by name.
pub(crate) fn all(origin: &Origin) -> Result<[(&'static str, Arc<StreamingTable>); 5]> {
    Ok([
        ("far_prefix_breaks", lazy_table(origin, far_parents::schema(), far_parents::breaks)?),
        ("row_prefix_breaks", lazy_table(origin, rows::schema(), rows::breaks)?),
        ("trained_span", spans::trained(origin)?),
        ("row_segment", spans::segments(origin)?),
        ("row_weights", lazy_table(origin, weights::schema(), weights::rows)?),
    ])
}
