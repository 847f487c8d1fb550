//! Running a reward or a credit recipe: its rows, completed by the engine, and the derivation that records them.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, StringArray};
use datafusion::common::{Column, JoinType};
use datafusion::execution::SendableRecordBatchStream;
use datafusion::logical_expr::{LogicalPlan, LogicalPlanBuilder, col};
use futures::TryStreamExt;

use crate::error::{Error, Result};
use crate::recipe::columns::{OutputColumn, output_of};
use crate::recipe::derivation::{Derivation, Publication, functions_used, table, table_batch, times};
use crate::recipe::parameter::Bindings;
use crate::recipe::rows::Rows;
use crate::recipe::scope::{Part, Scope, bind, make_checks, plan_query};
use crate::recipe::statement::parse_query;
use crate::recipe::upstream::{Purposes, Upstream, quoted, text_column};
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
    /// Reward that a reward recipe starts from: `NAME` or `NAME@DERIVATION_ID`.
    pub reward: Option<String>,
    /// Credit that a credit recipe starts from, likewise.
    pub credit: Option<String>,
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

/// Runs a reward recipe, over the reward of the options where it has one, and records its rows.
pub async fn run_reward(session: &Session, recipe: &Recipe, options: &DeriveOptions) -> Result<Derived> {
    let inputs = Inputs::new(session, recipe, Kind::Reward, options.reward.as_deref(), options).await?;
    derive(session, recipe, &inputs, options).await
}

/// Runs a credit recipe over the rewards that `reward` names (`NAME` or `NAME@DERIVATION_ID`), or the credit of the options, and
/// records its rows.
pub async fn run_credit<'a>(
    session: &Session,
    recipe: &Recipe,
    reward: impl Into<Option<&'a str>>,
    options: &DeriveOptions,
) -> Result<Derived> {
    let inputs = Inputs::new(session, recipe, Kind::Credit, reward.into(), options).await?;
    derive(session, recipe, &inputs, options).await
}

/// Runs a reward or credit recipe and returns its rows instead of recording them.
pub(crate) async fn rows_of(
    session: &Session,
    recipe: &Recipe,
    reward: Option<&str>,
    options: &DeriveOptions,
) -> Result<Vec<RecordBatch>> {
    let inputs = Inputs::new(session, recipe, recipe.kind(), reward, options).await?;
    let mut running = Running::start(session, recipe, &inputs).await?;
    let mut batches = Vec::new();
    while let Some((_, columns)) = running.next().await? {
        batches.push(RecordBatch::try_from_iter_with_nullable(
            columns.into_iter().map(|(name, array)| (name, array, true)),
        )?);
    }
    Ok(batches)
}

/// What a recipe runs over.
pub(super) struct Inputs {
    pub(super) bindings: Bindings,
    pub(super) scope: Scope,
    pub(super) upstream_ids: Vec<String>,
}

impl Inputs {
    async fn new(
        session: &Session,
        recipe: &Recipe,
        kind: Kind,
        reward: Option<&str>,
        options: &DeriveOptions,
    ) -> Result<Self> {
        let bindings = bind(recipe, kind, &options.parameters)?;
        let credit = options.credit.as_deref();
        check_upstreams(recipe, reward, credit)?;
        let run = options.run.as_deref();
        let mut scope = Scope::new(session, run).await?;
        let mut upstream_ids = Vec::new();
        if let Some(credit) = credit {
            let upstream = Upstream::find(session, "credits", credit, run).await?;
            scope = scope.with_upstream("credit", &upstream, Purposes::Train)?;
            // The rewards behind it too: they know why a rollout has none.
            upstream_ids = rewards_behind(session, &upstream.derivation_ids).await?;
            upstream_ids.extend(upstream.derivation_ids);
        }
        if let Some(reward) = reward {
            let upstream = Upstream::find(session, "rewards", reward, run).await?;
            let purposes = if kind == Kind::Reward { Purposes::All } else { Purposes::Train };
            scope = scope.with_upstream("reward", &upstream, purposes)?;
            upstream_ids.retain(|id| !upstream.derivation_ids.contains(id));
            upstream_ids.extend(upstream.derivation_ids);
        }
        Ok(Self { bindings, scope, upstream_ids })
    }
}

/// Fails unless the caller named what the recipe starts from, and nothing else.
fn check_upstreams(recipe: &Recipe, reward: Option<&str>, credit: Option<&str>) -> Result<()> {
    let name = recipe.name();
    let wrong = |message: &str| Err(Error::invalid(format!("recipe {name} {message}")));
    let (reads_reward, reads_credit) = (recipe.reads("reward"), recipe.reads("credit"));
    let starts_from_reward = reads_reward || (recipe.kind() == Kind::Credit && !reads_credit);
    match (recipe.kind(), reward.is_some(), credit.is_some()) {
        (Kind::Credit, _, false) if reads_credit => wrong("starts from another credit: name it with --credit"),
        (Kind::Credit, _, true) if !reads_credit => wrong("reads no other credit: leave --credit away"),
        (Kind::Credit, false, _) if starts_from_reward => wrong("starts from a reward: name it with --reward"),
        (Kind::Credit, true, _) if !starts_from_reward => wrong("reads no reward: leave --reward away"),
        (Kind::Reward, false, _) if reads_reward => wrong("starts from another reward: name it with --reward"),
        (Kind::Reward, true, _) if !reads_reward => wrong("reads no other reward: leave --reward away"),
        _ => Ok(()),
    }
}

/// Returns the derivations of rewards that credits were made from.
async fn rewards_behind(session: &Session, credits: &[String]) -> Result<Vec<String>> {
    if credits.is_empty() {
        return Ok(Vec::new());
    }
    let ids: Vec<String> = credits.iter().map(|id| quoted(id)).collect();
    let sql = format!(
        "SELECT DISTINCT id FROM (SELECT unnest(upstream_derivation_ids) AS id FROM derivations WHERE derivation_id IN ({})) \
         WHERE id NOT IN (SELECT derivation_id FROM derivations WHERE kind = 'credit') ORDER BY id",
        ids.join(", ")
    );
    text_column(&session.collect(&sql).await?, 0)
}

/// A recipe's rows as they come.
pub(super) struct Running<'a> {
    pub(super) functions: BTreeMap<&'static str, u32>,
    rows: Rows<'a>,
    stream: SendableRecordBatchStream,
}

impl<'a> Running<'a> {
    pub(super) async fn start(session: &Session, recipe: &'a Recipe, inputs: &Inputs) -> Result<Self> {
        let Inputs { bindings, scope, .. } = inputs;
        make_checks(session, recipe, bindings, scope).await?;
        let inner = plan_query(session, recipe, Part::Body, bindings, scope).await?;
        let output = output_of(recipe, inner.schema().as_arrow())?;
        let functions = functions_used(&inner)?;
        let plan = complete(session, recipe, bindings, scope, inner, &output).await?;
        let rows = Rows::new(recipe, output);
        let stream = session.run(&plan).await.map_err(|error| rows.locate(error))?;
        Ok(Self { functions, rows, stream })
    }

    /// Returns the number of the next rows and their columns.
    pub(super) async fn next(&mut self) -> Result<Option<(usize, BTreeMap<&'static str, ArrayRef>)>> {
        while let Some(batch) = self.stream.try_next().await.map_err(|error| self.rows.locate(error.into()))? {
            if batch.num_rows() > 0 {
                return Ok(Some((batch.num_rows(), self.rows.columns(&batch)?)));
            }
        }
        Ok(None)
    }
}

async fn derive(session: &Session, recipe: &Recipe, inputs: &Inputs, options: &DeriveOptions) -> Result<Derived> {
    let mut derivation = Derivation::start(session, recipe, options.name.as_deref(), options.run.as_deref());
    derivation.upstream_ids.clone_from(&inputs.upstream_ids);
    let mut running = Running::start(session, recipe, inputs).await?;
    let table = table(if recipe.kind() == Kind::Reward { "rewards" } else { "credits" })?;
    let mut writer = session.lake().writer(table);
    while let Some((count, mut columns)) = running.next().await? {
        columns.insert("name", Arc::new(StringArray::from(vec![derivation.name.as_str(); count])));
        columns.insert("derivation_id", Arc::new(StringArray::from(vec![derivation.id.as_str(); count])));
        columns.insert("created_at", times(derivation.created_at, count));
        writer.write(&table_batch(table, count, columns)?).await?;
    }
    let Running { functions, rows, .. } = running;
    derivation.functions = functions;
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
    let (n, warnings) = publication.publish(session.lake(), recipe, &inputs.bindings, &derivation).await?;
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
pub(super) const OUTPUT_LEN: &str = "rollbook_output_len";

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
    let members = plan_query(session, recipe, Part::Engine(&members), bindings, scope).await?;
    let has_run = output.iter().any(|column| column.name == "run_id");
    let (left, right) = if has_run {
        (vec![RUN, "rollbook_rollout"], vec!["run_id", "rollout_id"])
    } else {
        only_run(session, recipe, scope).await?;
        (vec!["rollbook_rollout"], vec!["rollout_id"])
    };
    // The side on the left is held in memory, so the recipe's rows, which may have token values, stand on the right.
    let columns = |names: Vec<&str>| names.into_iter().map(Column::from_name).collect::<Vec<_>>();
    let mut builder =
        LogicalPlanBuilder::from(members).join(inner, JoinType::Right, (columns(left), columns(right)), None)?;
    let run = if has_run { "run_id" } else { RUN };
    let returns = |name: &str| output.iter().any(|column| column.name == name);
    if returns("token_values") && returns("call_id") {
        // Of an id that several calls have, the length is none of theirs.
        let lengths = format!(
            "SELECT run_id AS rollbook_call_run, rollout_id AS rollbook_call_rollout, call_id AS rollbook_call, \
             CASE WHEN count(*) = 1 THEN min(output_len) END AS {OUTPUT_LEN} FROM calls GROUP BY 1, 2, 3"
        );
        let lengths = parse_query(recipe.name(), &lengths)?;
        let lengths = plan_query(session, recipe, Part::Engine(&lengths), bindings, scope).await?;
        let keys = (
            columns(vec!["rollbook_call_run", "rollbook_call_rollout", "rollbook_call"]),
            columns(vec![run, "rollout_id", "call_id"]),
        );
        builder = LogicalPlanBuilder::from(lengths).join(builder.build()?, JoinType::Right, keys, None)?;
    }
    let mut order = vec![run, STEP, GROUP, "rollout_id"];
    if returns("call_id") {
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
