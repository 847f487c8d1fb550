//! Running a reward or a credit recipe: its rows, completed by the engine, and the derivation that records them.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::StringArray;
use datafusion::common::{Column, JoinType};
use datafusion::logical_expr::{LogicalPlan, LogicalPlanBuilder, col};
use futures::TryStreamExt;

use crate::error::{Error, Result};
use crate::recipe::columns::{OutputColumn, output_of};
use crate::recipe::derivation::{Derivation, Publication, functions_used, table, table_batch, times};
use crate::recipe::parameter::Bindings;
use crate::recipe::rows::Rows;
use crate::recipe::scope::{Scope, bind, make_checks, plan_query};
use crate::recipe::statement::parse_query;
use crate::recipe::upstream::{Upstream, text_column};
use crate::recipe::{Kind, Recipe};
use crate::session::Session;

/// How a recipe is run.
#[derive(Debug, Clone, Default)]
pub struct DeriveOptions {
    /// Name of the result; the recipe's where there is none.
    pub name: Option<String>,
    /// Run to which it is restricted; all of the lake where there is none.
    pub run: Option<String>,
    /// Values of parameters, as text.
    pub parameters: BTreeMap<String, String>,
}

/// What a recipe's run has made.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Derived {
    /// Id of the derivation.
    pub derivation_id: String,
    /// Id of the build, of builds only.
    pub build_id: Option<String>,
    /// Name it goes by.
    pub name: String,
    /// Rows of its table.
    pub row_count: u64,
    /// Digest of its rows, the same in whatever order they were made.
    pub content_digest: String,
    /// Snapshot that holds it.
    pub n: u64,
    /// What the user should know: rows without a value, by reason.
    pub notes: Vec<String>,
}

/// Runs a reward recipe and records its rows.
pub async fn run_reward(session: &Session, recipe: &Recipe, options: &DeriveOptions) -> Result<Derived> {
    let bindings = bind(recipe, Kind::Reward, &options.parameters)?;
    let scope = Scope::new(session, options.run.as_deref()).await?;
    let derivation = Derivation::start(session, recipe, options.name.as_deref(), options.run.as_deref());
    derive(session, recipe, &bindings, &scope, derivation).await
}

/// Runs a credit recipe over the rewards that `reward` names (`NAME` or `NAME@DERIVATION_ID`) and records its rows.
pub async fn run_credit(session: &Session, recipe: &Recipe, reward: &str, options: &DeriveOptions) -> Result<Derived> {
    let bindings = bind(recipe, Kind::Credit, &options.parameters)?;
    let scope = Scope::new(session, options.run.as_deref()).await?;
    let upstream = Upstream::find(session, "rewards", reward, options.run.as_deref()).await?;
    let scope = scope.with_upstream("reward", &upstream)?;
    let mut derivation = Derivation::start(session, recipe, options.name.as_deref(), options.run.as_deref());
    derivation.upstream_ids.clone_from(&upstream.derivation_ids);
    derive(session, recipe, &bindings, &scope, derivation).await
}

async fn derive(
    session: &Session,
    recipe: &Recipe,
    bindings: &Bindings,
    scope: &Scope,
    mut derivation: Derivation,
) -> Result<Derived> {
    make_checks(session, recipe, bindings, scope).await?;
    let inner = plan_query(session, recipe, &recipe.query, bindings, scope).await?;
    let output = output_of(recipe, inner.schema().as_arrow())?;
    derivation.functions = functions_used(&inner)?;
    let plan = complete(session, recipe, bindings, scope, inner, &output).await?;
    let table = table(if recipe.kind() == Kind::Reward { "rewards" } else { "credits" })?;
    let mut writer = session.lake().writer(table);
    let mut rows = Rows::new(recipe, output);
    let mut stream = session.frame(plan)?.execute_stream().await?;
    while let Some(batch) = stream.try_next().await? {
        if batch.num_rows() == 0 {
            continue;
        }
        let mut columns = rows.columns(&batch)?;
        let count = batch.num_rows();
        columns.insert("name", Arc::new(StringArray::from(vec![derivation.name.as_str(); count])));
        columns.insert("derivation_id", Arc::new(StringArray::from(vec![derivation.id.as_str(); count])));
        columns.insert("created_at", times(derivation.created_at, count));
        writer.write(&table_batch(table, count, columns)?).await?;
    }
    if rows.content.rows() == 0 {
        return Err(Error::invalid(format!(
            "recipe {} returns no rows over snapshot {}: there is nothing to record",
            recipe.name(),
            session.snapshot().n
        )));
    }
    derivation.rows = rows.content.rows();
    derivation.content_digest = rows.content.text();
    let mut publication = Publication::default();
    publication.add(&table.name, &derivation.id, writer.finish().await?);
    let (n, warnings) = publication.publish(session.lake(), recipe, bindings, &derivation).await?;
    let mut notes = rows.notes();
    notes.extend(warnings);
    Ok(Derived::new(derivation, None, n, notes))
}

impl Derived {
    fn new(derivation: Derivation, build_id: Option<String>, n: u64, notes: Vec<String>) -> Self {
        Self {
            derivation_id: derivation.id,
            build_id,
            name: derivation.name,
            row_count: derivation.rows,
            content_digest: derivation.content_digest,
            n,
            notes,
        }
    }

    /// Tells what a build has made.
    pub(crate) fn of_build(derivation: Derivation, build_id: String, n: u64, notes: Vec<String>) -> Self {
        Self::new(derivation, Some(build_id), n, notes)
    }
}

/// Names of the columns that the engine adds beside the recipe's own.
pub(super) const RUN: &str = "rollbook_run";
pub(super) const STEP: &str = "rollbook_step";
pub(super) const GROUP: &str = "rollbook_group";

/// Joins the recipe's rows with their rollouts and puts them in the order of a file.
async fn complete(
    session: &Session,
    recipe: &Recipe,
    bindings: &Bindings,
    scope: &Scope,
    inner: LogicalPlan,
    output: &[OutputColumn],
) -> Result<LogicalPlan> {
    // A reward keeps the value of the group key; the rows of a credit lie under the rollout's recorded group.
    let group = if recipe.kind() == Kind::Reward { "CAST($group_key AS VARCHAR)" } else { "group_id" };
    let members = format!(
        "SELECT run_id AS {RUN}, rollout_id AS rollbook_rollout, step AS {STEP}, {group} AS {GROUP} FROM rollouts"
    );
    let members = parse_query(recipe.name(), &members)?;
    let members = plan_query(session, recipe, &members, bindings, scope).await?;
    let has_run = output.iter().any(|column| column.name == "run_id");
    let mut builder = LogicalPlanBuilder::from(inner);
    let (left, right) = if has_run {
        (vec!["run_id", "rollout_id"], vec![RUN, "rollbook_rollout"])
    } else {
        only_run(session, recipe, scope).await?;
        (vec!["rollout_id"], vec!["rollbook_rollout"])
    };
    let columns = |names: Vec<&str>| names.into_iter().map(Column::from_name).collect::<Vec<_>>();
    builder = builder.join(members, JoinType::Left, (columns(left), columns(right)), None)?;
    let run = if has_run { "run_id" } else { RUN };
    let mut order = vec![run, STEP, GROUP, "rollout_id"];
    if output.iter().any(|column| column.name == "call_id") {
        order.push("call_id");
    }
    let order = order.into_iter().map(|name| col(Column::from_name(name)).sort(true, false));
    Ok(builder.sort(order)?.build()?)
}

/// Makes sure that rows without a `run_id` can belong to one run only.
async fn only_run(session: &Session, recipe: &Recipe, scope: &Scope) -> Result<()> {
    if scope.run.is_some() {
        return Ok(());
    }
    let runs = session.collect("SELECT DISTINCT run_id FROM rollouts LIMIT 2").await?;
    if text_column(&runs, 0)?.len() > 1 {
        return Err(Error::invalid(format!(
            "recipe {} does not return run_id, and the lake holds several runs: name one, or return the column",
            recipe.name()
        )));
    }
    Ok(())
}
