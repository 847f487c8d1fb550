//! Helper tables: what several checks ask of the lake, worked out once an audit.
//!
//! | table               | a row is                                                                                  |
//! |---------------------|-------------------------------------------------------------------------------------------|
//! | `audit('a/b')`      | a finding of the check                                                                    |
//! | `doubled_call`      | an id that several calls of a run have                                                    |
//! | `equal_output`      | a digest that the outputs of several calls have                                           |
//! | `trained_span`      | a run of a trainer row's trained tokens that names a call's output                        |
//! | `trained_advantage` | the same with the advantages, and where only a rollout is named                           |
//! | `row_segment`       | a segment of a trainer row, by rollout and call                                           |
//! | `row_build`         | a build as a run with rows of it sees it: by its own row in `builds`, else by the id          |
//! | `build_credit`      | a credit that a build was made from                                                      |
//! | `row_weights`       | a rollout in a trainer row: its trained tokens and their weight                           |
//! | `reported_count`    | what a trainer says it counted of a term in a micro-batch on a rank                       |
//! | `row_context`       | a call in a trainer row: digest of what stands before its trained tokens                  |
//! | `input_digest_match`| a score with an input digest, and whose output that is the digest of                      |
//! | `rederived`         | a reward or credit that is not what it would be if it were made again                     |
//! | `stray_span`        | trained tokens of a row that are no named call's output                                   |
//! | `row_link`          | a trainer row and a call that trains in it after another call's output                    |
//! | `row_use`           | a stretch of a call's output in a trainer row, by digest                                  |
//! | `call_end`          | a call with ids: its last token, why it ended, and the limits it had                      |
//! | `call_tools`        | a call that calls tools: how many were parsed, and whether its text has marks of some    |
//! | `misplaced_record`  | a record of the environment that names a call of another rollout or place                |
//! | `logprob_format`    | a call with logprobs, and the coarser format that their values show                       |
//! | `unlikely_stretch`  | a stretch of a sampled output that chance does not give twice                             |
//! | `row_prefix_suspect`, `far_parent`, `row_output_suspect`, `open_end` | what the tables below are made from      |
//! | `policy_vocab`      | how many ids a policy of a run declares                                                   |
//! | `id_suspect`, `row_id_suspect` | a call or row with an id outside of what is declared                          |
//! | `far_prefix_breaks` | a call whose prompt leaves the context of a parent in another file                        |
//! | `encoding_parts`    | an encoding, and which of its files the lake holds                                        |
//! | `template_differences` | a prompt that is not what the template makes of its request                            |
//! | `parse_differences` | an output from which a parser took what it does not say                                   |
//! | `text_differences`  | an output whose text is not what its tokens spell                                         |
//! | `row_prefix_breaks` | a trainer row and a call in it whose trained tokens follow other tokens than they did     |
//! | `row_output_faults` | trained tokens of a row whose id or logprob is not the one that their call gave           |
//! | `lost_end`          | a call whose output lacks the end that the next prompt has right behind it                |
//! | `routing_fault`     | what is wrong with a call's routing records                                               |
//!
//! A new one is a file `sql/audits/tables/<name>.sql`, a query that may read tables and other helper tables, and a line in
//! [`QUERIES`]. An audit runs it once, whichever checks name it, over the shared scan (`shared`). In a session of a user it
//! is a view that no listing shows. What SQL cannot say is made by code here: the prefix breaks look at digests and lengths
//! first, and read tokens only of what these accuse.

mod accused;
mod arrows;
mod audit_function;
mod compare;
mod derive;
mod far_parents;
mod lazy;
mod lost_ends;
mod outputs;
mod routing;
mod rows;
mod tokens;

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::TableProvider;
use datafusion::catalog::view::ViewTable;
use datafusion::common::{Result as PlanResult, internal_datafusion_err};
use rollbook_lake::{Lake, Snapshot};
use rollbook_query::{HiddenTables, PlanOptions, Result, Session, SessionOptions, WeakSession, parse};
use tokio::sync::{Mutex, OnceCell};

pub(crate) use audit_function::AuditFunction;
use lazy::{Make, lazy_table};

use crate::functions;
use crate::shared::HelperTable;

macro_rules! queries {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../../../../sql/audits/tables/", $name, ".sql")))),*]
    };
}

/// Tables that a query makes; a test compares the list with `sql/audits/tables`.
const QUERIES: &[(&str, &str)] = queries![
    "doubled_call",
    "equal_output",
    "trained_span",
    "trained_advantage",
    "row_segment",
    "row_build",
    "build_credit",
    "row_weights",
    "reported_count",
    "row_context",
    "row_prefix_suspect",
    "far_parent",
    "input_digest_match",
    "stray_span",
    "row_link",
    "row_use",
    "row_output_suspect",
    "call_end",
    "open_end",
    "call_tools",
    "misplaced_record",
    "logprob_format",
    "unlikely_stretch",
    "policy_vocab",
    "id_suspect",
    "row_id_suspect",
];

/// A table that code makes from the rows of others.
struct MadeByCode {
    name: &'static str,
    schema: fn() -> SchemaRef,
    reads: &'static [&'static str],
    make: Make,
}

const MADE: [MadeByCode; 10] = [
    MadeByCode {
        name: "far_prefix_breaks",
        schema: far_parents::schema,
        reads: &["far_parent"],
        make: far_parents::breaks,
    },
    MadeByCode { name: "rederived", schema: derive::schema, reads: &[], make: derive::rows },
    MadeByCode { name: "row_prefix_breaks", schema: rows::schema, reads: &["row_prefix_suspect"], make: rows::breaks },
    MadeByCode { name: "encoding_parts", schema: arrows::parts_schema, reads: &[], make: arrows::parts },
    MadeByCode { name: "template_differences", schema: arrows::schema, reads: &[], make: arrows::template_differences },
    MadeByCode { name: "parse_differences", schema: arrows::schema, reads: &[], make: arrows::parse_differences },
    MadeByCode { name: "text_differences", schema: arrows::schema, reads: &[], make: arrows::text_differences },
    MadeByCode {
        name: "row_output_faults",
        schema: outputs::schema,
        reads: &["row_output_suspect"],
        make: outputs::faults,
    },
    MadeByCode { name: "lost_end", schema: lost_ends::schema, reads: &["open_end"], make: lost_ends::rows },
    MadeByCode { name: "routing_fault", schema: routing::schema, reads: &[], make: routing::faults },
];

/// Whence a table that code makes reads: a session of its own, so that no session holds itself.
#[derive(Debug, Clone)]
pub(crate) struct Origin {
    lake: Lake,
    snapshot: Snapshot,
    options: SessionOptions,
    session: Arc<OnceCell<Session>>,
}

impl Origin {
    /// The origin that a session reads.
    pub(crate) fn of(session: &Session) -> Self {
        Self {
            lake: session.lake().clone(),
            snapshot: session.snapshot().clone(),
            options: session.options().clone(),
            session: Arc::default(),
        }
    }

    fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// A session with the checks' functions and helper tables, opened once.
    async fn session(&self) -> Result<Session> {
        let open = async {
            let session = Session::at(&self.lake, self.snapshot.clone(), self.options.clone()).await?;
            functions::all().into_iter().for_each(|function| session.context().register_udf(function));
            // An origin of their own: a session that holds this one would never go.
            let origin = Self { session: Arc::default(), ..self.clone() };
            session.hide_tables(HelperTables::new(&session, origin, Form::Views))?;
            Ok::<_, rollbook_query::Error>(session)
        };
        self.session.get_or_try_init(|| open).await.cloned()
    }
}

/// A text as an SQL literal.
pub(crate) fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// How the tables that a query makes appear in plans.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// As views, part of the plan that names them.
    Views,
    /// As tables that are made once, before the plans that name them run.
    Shared,
}

/// The helper tables of a session.
#[derive(Debug)]
pub(crate) struct HelperTables {
    origin: Origin,
    session: WeakSession,
    form: Form,
    made: Mutex<BTreeMap<&'static str, Arc<dyn TableProvider>>>,
}

impl HelperTables {
    /// The tables for a session.
    pub(crate) fn new(session: &Session, origin: Origin, form: Form) -> Arc<Self> {
        Arc::new(Self { origin, session: session.downgrade(), form, made: Mutex::default() })
    }

    async fn make(&self, name: &str) -> Result<Option<(&'static str, Arc<dyn TableProvider>)>> {
        if let Some(made) = MADE.iter().find(|made| made.name == name) {
            return Ok(Some((made.name, self.make_by_code(made).await?)));
        }
        let Some((name, sql)) = QUERIES.iter().find(|(known, _)| *known == name) else {
            return Ok(None);
        };
        let session =
            self.session.upgrade().ok_or_else(|| internal_datafusion_err!("the session of {name} is gone"))?;
        let plan = session.plan(parse(sql)?, &PlanOptions::default()).await;
        let plan = plan.map_err(|error| error.with("table", *name))?;
        let table: Arc<dyn TableProvider> = match self.form {
            Form::Views => Arc::new(ViewTable::new(plan, Some((*sql).to_owned()))),
            Form::Shared => Arc::new(HelperTable::new(name, plan)),
        };
        Ok(Some((name, table)))
    }
}

impl HelperTables {
    async fn make_by_code(&self, made: &'static MadeByCode) -> Result<Arc<dyn TableProvider>> {
        if self.form == Form::Views {
            return Ok(lazy_table(&self.origin, (made.schema)(), made.reads, made.make)?);
        }
        let mut reads = Vec::with_capacity(made.reads.len());
        for name in made.reads {
            reads.extend(self.table(name).await?);
        }
        let (origin, make) = (self.origin.clone(), made.make);
        let make = Arc::new(move |read| make(origin.clone(), read));
        Ok(Arc::new(HelperTable::made(made.name, (made.schema)(), reads, make)))
    }
}

#[async_trait]
impl HiddenTables for HelperTables {
    fn has(&self, name: &str) -> bool {
        QUERIES.iter().any(|(known, _)| *known == name) || MADE.iter().any(|made| made.name == name)
    }

    async fn table(&self, name: &str) -> PlanResult<Option<Arc<dyn TableProvider>>> {
        if let Some(table) = self.made.lock().await.get(name) {
            return Ok(Some(Arc::clone(table)));
        }
        // Not under the lock: a table's query may name another one.
        let Some((name, table)) = self.make(name).await? else {
            return Ok(None);
        };
        Ok(Some(Arc::clone(self.made.lock().await.entry(name).or_insert(table))))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;

    use super::*;

    #[test]
    fn the_list_is_what_the_folder_holds() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../sql/audits/tables");
        let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let found: BTreeSet<String> =
            files.map(|file| file.file_stem().unwrap().to_str().unwrap().to_owned()).collect();
        assert_eq!(found, QUERIES.iter().map(|(name, _)| (*name).to_owned()).collect());
    }
}
