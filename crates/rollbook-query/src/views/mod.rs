//! The tables and views of a session.
//!
//! | name                        | shows                                                         |
//! |-----------------------------|---------------------------------------------------------------|
//! | a keyed table               | of each key the highest revision                              |
//! | scores, rewards, credits    | the newest score, the newest derivation                       |
//! | `<table>_history` of these  | all rows                                                      |
//! | any other table             | all rows                                                      |
//! | groups, contexts, …         | `sql/views/<name>.sql`                                        |
//! | tokens                      | a row for each output token, made by an operator of ours      |

mod current;
mod relation;
mod sampled;
mod tokens;

use std::sync::Arc;

use datafusion::catalog::view::ViewTable;
use datafusion::catalog::{SchemaProvider, TableProvider};
use rollbook_lake::DataFile;
use rollbook_schema::Table;

pub(crate) use tokens::TokensExec;

use crate::error::Result;
use crate::provider::{LakeTable, store_url};
use crate::session::{PlanOptions, Session, parse};

/// Views written in SQL, each after those it reads.
const VIEWS: [(&str, &str); 7] = [
    ("groups", include_str!("../../../../sql/views/groups.sql")),
    ("contexts", include_str!("../../../../sql/views/contexts.sql")),
    ("transitions", include_str!("../../../../sql/views/transitions.sql")),
    ("call_rows", include_str!("../../../../sql/views/call_rows.sql")),
    ("rollout_rows", include_str!("../../../../sql/views/rollout_rows.sql")),
    ("contract", include_str!("../../../../sql/views/contract.sql")),
    ("trajectories", include_str!("../../../../sql/views/trajectories.sql")),
];

/// Tables of which a view shows the current rows.
const CURRENT: [&str; 3] = ["scores", "rewards", "credits"];

/// Puts every table and view into a session's catalog.
pub(crate) async fn register(session: &Session) -> Result<()> {
    session.context().register_udf(relation::message_relation());
    session.context().register_udf(relation::text_relation());
    session.context().register_udf(sampled::sampled_count());
    session.context().register_udf(sampled::sampled_logprob_count());
    let schema = session.schema_provider()?;
    for table in rollbook_schema::tables() {
        let history = history_name(table);
        put(&schema, &history, Arc::new(lake_table(session, table)?))?;
    }
    for table in rollbook_schema::tables() {
        if table.keyed {
            put(&schema, &table.name, current::newest_revision(session, table).await?)?;
        } else if CURRENT.contains(&table.name.as_str()) {
            put(&schema, &table.name, current::newest(session, table).await?)?;
        }
    }
    put(&schema, "tokens", Arc::new(tokens::TokensView::new()))?;
    for (name, sql) in VIEWS {
        let view = view(session, sql).await.map_err(|error| error.with("view", name))?;
        put(&schema, name, view)?;
    }
    Ok(())
}

/// The name under which all rows of a table are found.
fn history_name(table: &Table) -> String {
    if table.keyed || CURRENT.contains(&table.name.as_str()) {
        format!("{}_history", table.name)
    } else {
        table.name.clone()
    }
}

fn lake_table(session: &Session, table: &'static Table) -> Result<LakeTable> {
    lake_table_of(session, table, &session.snapshot().table(&table.name).files)
}

fn lake_table_of(session: &Session, table: &'static Table, files: &[Arc<DataFile>]) -> Result<LakeTable> {
    Ok(LakeTable::new(table, files, store_url(session.lake())?).within(session.within(&table.name)))
}

fn put(schema: &Arc<dyn SchemaProvider>, name: &str, table: Arc<dyn TableProvider>) -> Result<()> {
    schema.register_table(name.to_owned(), table)?;
    Ok(())
}

async fn view(session: &Session, sql: &str) -> Result<Arc<dyn TableProvider>> {
    let plan = session.plan(parse(sql)?, &PlanOptions::default()).await?;
    Ok(Arc::new(ViewTable::new(plan, Some(sql.to_owned()))))
}
