//! What a recipe may see, and the planning of its queries within it.

use std::collections::BTreeMap;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use datafusion::logical_expr::LogicalPlan;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{Query, Statement as SqlStatement};
use futures::TryStreamExt;

use crate::error::{Error, Result};
use crate::quarantine::Quarantine;
use crate::recipe::fault::Origin;
use crate::recipe::parameter::Bindings;
use crate::recipe::statement::{narrow, parse_query, relations};
use crate::recipe::upstream::{Purposes, Upstream, quoted, text_column};
use crate::recipe::{Kind, Recipe};
use crate::session::Session;

/// A view over the upstream that recipes know by name, too.
pub(super) struct View {
    pub(super) name: &'static str,
    /// Name of the upstream without which there is no such view.
    pub(super) over: &'static str,
    sql: &'static str,
}

/// What recipes over calls and tokens start from.
pub(super) const VIEWS: [View; 2] = [
    View { name: "rewarded_calls", over: "reward", sql: include_str!("../../../../sql/views/rewarded_calls.sql") },
    View { name: "credited_calls", over: "credit", sql: include_str!("../../../../sql/views/credited_calls.sql") },
];

/// What a recipe may see: the rows of a run, and its upstream.
#[derive(Debug, Default)]
pub(crate) struct Scope {
    tables: BTreeMap<String, Query>,
    pub(crate) run: Option<String>,
}

impl Scope {
    /// Makes the scope of one run, or of the whole lake.
    pub(crate) async fn new(session: &Session, run: Option<&str>) -> Result<Self> {
        if let Some(run) = run {
            let known = session
                .collect("SELECT DISTINCT run_id FROM rollouts ORDER BY 1")
                .await
                .and_then(|batches| text_column(&batches, 0))?;
            if !known.iter().any(|known| known == run) {
                let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
                return Err(Error::not_found(format!("the lake has no run {run}; its runs are {known}")));
            }
        }
        Ok(Self { tables: BTreeMap::new(), run: run.map(str::to_owned) })
    }

    /// Adds the upstream under the name that recipes know it by.
    pub(crate) fn with_upstream(mut self, name: &str, upstream: &Upstream, purposes: Purposes) -> Result<Self> {
        self.tables.insert(name.to_owned(), parse_query(name, &upstream.view_sql(purposes)?)?);
        Ok(self)
    }

    /// Hides the calls that are quarantined.
    pub(crate) fn without(mut self, quarantine: &Quarantine) -> Result<Self> {
        if let (Some(run), true) = (&self.run, quarantine.has_calls()) {
            self.tables.insert("calls".to_owned(), parse_query("calls", &quarantine.calls_left(run))?);
        }
        Ok(self)
    }

    /// Narrows a query to the scope.
    async fn apply(&self, session: &Session, recipe: &str, query: &Query) -> Result<Query> {
        let mut tables = self.tables.clone();
        let read = relations(&mut query.clone());
        for View { name, over, sql } in VIEWS {
            if tables.contains_key(over) && read.iter().any(|read| read == name) {
                let calls = self.narrowed(session, name, &parse_query(name, sql)?, self.tables.clone()).await?;
                tables.insert(name.to_owned(), calls);
            }
        }
        self.narrowed(session, recipe, query, tables).await
    }

    async fn narrowed(
        &self,
        session: &Session,
        recipe: &str,
        query: &Query,
        mut tables: BTreeMap<String, Query>,
    ) -> Result<Query> {
        let mut query = query.clone();
        if let Some(run) = &self.run {
            for name in relations(&mut query) {
                if !tables.contains_key(&name) && has_run(session, &name).await {
                    let sql = format!("SELECT * FROM {name} WHERE run_id = {}", quoted(run));
                    tables.insert(name, parse_query(recipe, &sql)?);
                }
            }
        }
        narrow(recipe, &mut query, &tables)?;
        Ok(query)
    }
}

async fn has_run(session: &Session, table: &str) -> bool {
    match session.context().table_provider(table).await {
        Ok(provider) => provider.schema().field_with_name("run_id").is_ok(),
        // The planner says what is wrong with the name, if anything is.
        Err(_) => false,
    }
}

/// Binds the parameters of a recipe of the wanted kind.
pub(crate) fn bind(recipe: &Recipe, kind: Kind, parameters: &BTreeMap<String, String>) -> Result<Bindings> {
    if recipe.kind() != kind {
        let made = recipe.kind().as_str();
        return Err(Error::invalid(format!(
            "recipe {} makes a {made}, not a {}; run it with `rollbook {made}`",
            recipe.name(),
            kind.as_str()
        )));
    }
    Bindings::new(recipe.name(), recipe.parameters(), parameters)
}

/// A query that is planned for a recipe.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Part<'a> {
    /// Its own.
    Body,
    /// One of its checks, by number.
    Check(usize),
    /// The engine's, in which stand only the recipe's parameters.
    Engine(&'a Query),
}

impl<'a> Part<'a> {
    fn query(self, recipe: &'a Recipe) -> &'a Query {
        match self {
            Self::Body => &recipe.query,
            Self::Check(number) => &recipe.checks[number].1,
            Self::Engine(query) => query,
        }
    }

    fn text(self, recipe: &'a Recipe) -> Option<&'a str> {
        match self {
            Self::Body => Some(&recipe.text),
            Self::Check(number) => Some(&recipe.header.checks[number].sql),
            Self::Engine(_) => None,
        }
    }

    /// Says where in the recipe an error lies that running the query met.
    pub(crate) fn locate(self, recipe: &Recipe, error: Error) -> Error {
        let origin = Origin { recipe: recipe.name(), text: self.text(recipe), expressions: &BTreeMap::new() };
        origin.locate(error)
    }
}

/// Plans a query of a recipe within its scope.
pub(crate) async fn plan_query(
    session: &Session,
    recipe: &Recipe,
    part: Part<'_>,
    bindings: &Bindings,
    scope: &Scope,
) -> Result<LogicalPlan> {
    let query = scope.apply(session, recipe.name(), part.query(recipe)).await?;
    let statement = Statement::Statement(Box::new(SqlStatement::Query(Box::new(query))));
    let options = bindings.plan_options();
    let origin = Origin { recipe: recipe.name(), text: part.text(recipe), expressions: &options.expressions };
    let plan = session.plan(statement, &options).await.map_err(|error| origin.locate(error))?;
    // Types are checked by the optimizer's first rules: what they find lies in the recipe too.
    let state = session.context().state();
    state.optimize(&plan).map_err(|error| origin.locate(Error::from(error)))?;
    Ok(plan)
}

/// Makes the checks a recipe asks for; the first row that one finds is the error.
pub(crate) async fn make_checks(session: &Session, recipe: &Recipe, bindings: &Bindings, scope: &Scope) -> Result<()> {
    for (number, (message, _)) in recipe.checks.iter().enumerate() {
        let plan = plan_query(session, recipe, Part::Check(number), bindings, scope).await?;
        let part = Part::Check(number);
        let mut rows = session.run(&plan).await.map_err(|error| part.locate(recipe, error))?;
        while let Some(batch) = rows.try_next().await.map_err(|error| part.locate(recipe, error.into()))? {
            if batch.num_rows() > 0 {
                return Err(Error::invalid(format!("recipe {}: {}", recipe.name(), filled(message, &batch)?)));
            }
        }
    }
    Ok(())
}

/// Puts the columns of a batch's first row into `{column}`.
fn filled(message: &str, batch: &RecordBatch) -> Result<String> {
    let mut filled = message.to_owned();
    for (field, column) in batch.schema().fields().iter().zip(batch.columns()) {
        let texts = cast(column, &DataType::Utf8)?;
        let texts = texts.as_string::<i32>();
        let text = if texts.is_null(0) { "null" } else { texts.value(0) };
        filled = filled.replace(&format!("{{{}}}", field.name()), text);
    }
    Ok(filled)
}
