//! Running a build recipe: plan, check, stream, commit.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, Float64Array, Int32Array, RecordBatch, StringArray};
use datafusion::common::{Column, ScalarValue};
use datafusion::logical_expr::{LogicalPlanBuilder, col};
use futures::TryStreamExt;
use rollbook_lake::DataFile;

use crate::build::across::with_extensions;
use crate::build::assemble::{Assembler, Assembly};
use crate::build::credit::Credits;
use crate::build::objective::TrainedTokens;
use crate::build::pieces::{PIECES, Pass, number_of, repeated};
use crate::build::plan::Plan;
use crate::build::token_values::TokenValues;
use crate::build::{Objective, Unit, facts, key_of, verdict};
use crate::error::{Error, Result};
use crate::external_sort::ExternalSort;
use crate::quarantine::Quarantine;
use crate::recipe::{
    Bindings, ContentDigest, Derivation, Derived, Kind, OutputColumn, Part, Publication, Purposes, Recipe, Scope,
    Upstream, bind, functions_used, make_checks, new_id, output_of, plan_query, quoted, table, table_batch,
    text_column, times,
};
use crate::session::Session;

/// How a build is made.
#[derive(Debug, Clone)]
pub struct BuildOptions {
    /// Name of the build; the recipe's where there is none.
    pub name: Option<String>,
    /// Run it trains; the only one of the lake where there is none.
    pub run: Option<String>,
    /// Tokens a row may have.
    pub max_tokens: u32,
    /// What a unit of loss weight belongs to.
    pub objective: Objective,
    /// Whether tokens count whose source did not say where they come from.
    pub accept_assumed: bool,
    /// Whether calls train although they are quarantined.
    pub include_quarantined: bool,
    /// Values of the recipe's own parameters, as text.
    pub parameters: BTreeMap<String, String>,
}

impl BuildOptions {
    /// Makes options with the rollout objective and rows of at most so many tokens.
    pub fn new(max_tokens: u32) -> Self {
        Self {
            name: None,
            run: None,
            max_tokens,
            objective: Objective::rollout(),
            accept_assumed: false,
            include_quarantined: false,
            parameters: BTreeMap::new(),
        }
    }
}

/// Runs a build recipe over the credits that `credit` names (`NAME` or `NAME@DERIVATION_ID`) and records its rows.
pub async fn run_build(session: &Session, recipe: &Recipe, credit: &str, options: &BuildOptions) -> Result<Derived> {
    let (build, scope, upstream) = Build::start(session, recipe, credit, options).await?;
    build.run(&scope, &upstream).await
}

/// Runs a build recipe and returns the plan's rows, in the order of their place; nothing is built or recorded.
pub(crate) async fn plan_of(
    session: &Session,
    recipe: &Recipe,
    credit: &str,
    options: &BuildOptions,
) -> Result<Vec<RecordBatch>> {
    let (mut build, scope, _) = Build::start(session, recipe, credit, options).await?;
    let session = with_extensions(session, &build.run).await?;
    Ok(build.planned(&session, &scope).await?.1)
}

/// Finds the run a build trains.
async fn run_of(session: &Session, run: Option<&str>) -> Result<String> {
    if let Some(run) = run {
        return Ok(run.to_owned());
    }
    let runs = session.collect("SELECT DISTINCT run_id FROM rollouts ORDER BY 1 LIMIT 20").await?;
    let mut runs = text_column(&runs, 0)?;
    match (runs.pop(), runs.is_empty()) {
        (Some(run), true) => Ok(run),
        (None, _) => Err(Error::not_found("the lake has no run to build from")),
        (Some(run), false) => {
            runs.push(run);
            Err(Error::invalid(format!("the lake has several runs, name one of them: {}", runs.join(", "))))
        }
    }
}

struct Build<'a> {
    session: &'a Session,
    recipe: &'a Recipe,
    options: &'a BuildOptions,
    quarantine: Quarantine,
    bindings: Bindings,
    run: String,
    id: String,
    derivation: Derivation,
}

/// Columns of `samples` and `exclusions` that the content digest covers: what the build says, not when or by which id.
const SAMPLE_CONTENT: &[&str] = &[
    "run_id",
    "step",
    "group_id",
    "rollout_id",
    "epoch",
    "optimizer_step",
    "micro_batch",
    "rank",
    "row_index",
    "token_ids",
    "position_ids",
    "action_mask",
    "logprobs",
    "advantages",
    "loss_weights",
    "segments",
];
const EXCLUSION_CONTENT: &[&str] = &["run_id", "rollout_id", "call_id", "position", "length", "reason"];

/// Bytes that a sorted batch of pieces may take.
const PIECE_BATCH_BYTES: usize = 8 << 20;

impl<'a> Build<'a> {
    async fn start(
        session: &'a Session,
        recipe: &'a Recipe,
        credit: &str,
        options: &'a BuildOptions,
    ) -> Result<(Self, Scope, Upstream)> {
        let mut bindings = bind(recipe, Kind::Build, &options.parameters)?;
        if options.max_tokens == 0 {
            return Err(Error::invalid("max-tokens must be at least 1"));
        }
        let text = |text: &str| ScalarValue::Utf8(Some(text.to_owned()));
        bindings.set("max_tokens", ScalarValue::Int64(Some(i64::from(options.max_tokens))));
        bindings.set("accept_assumed", ScalarValue::Boolean(Some(options.accept_assumed)));
        bindings.set("objective", text(options.objective.unit().as_str()));
        bindings.set("objective_scope", text(options.objective.scope().as_str()));
        bindings.set("objective_constant", ScalarValue::Float64(options.objective.constant()));
        let run = run_of(session, options.run.as_deref()).await?;
        let upstream = Upstream::find(session, "credits", credit, Some(&run)).await?;
        let quarantine =
            if options.include_quarantined { Quarantine::default() } else { Quarantine::of_run(session, &run).await? };
        let scope = Scope::new(session, Some(&run)).await?.with_upstream("credit", &upstream, Purposes::Train)?;
        let scope = scope.without(&quarantine)?;
        let mut derivation = Derivation::start(session, recipe, options.name.as_deref(), Some(&run));
        derivation.upstream_ids.clone_from(&upstream.derivation_ids);
        let id = new_id("build", derivation.created_at);
        Ok((Self { session, recipe, options, quarantine, bindings, run, id, derivation }, scope, upstream))
    }

    async fn run(mut self, scope: &Scope, upstream: &Upstream) -> Result<Derived> {
        let plan = self.plan(scope).await?;
        let (credits, token_values) =
            Credits::read(self.session, upstream, &self.run, &plan, self.piece_rows()).await?;
        let doubled = self.keys("SELECT call_id FROM calls WHERE {run} GROUP BY call_id HAVING count(*) > 1").await?;
        let skipped = self.keys("SELECT rollout_id FROM rollouts WHERE {run} AND purpose <> 'train'").await?;
        let mut pass = Pass {
            run_id: &self.run,
            build_id: &self.id,
            derivation_id: &self.derivation.id,
            created_at: self.derivation.created_at,
            plan: &plan,
            credits: &credits,
            doubled: &doubled,
            skipped: &skipped,
            quarantine: &self.quarantine,
            accept_assumed: self.options.accept_assumed,
            trained: TrainedTokens::new(self.options.objective, self.groups(&plan).await?),
            excluded: BTreeMap::new(),
        };
        let (pieces, exclusions) = self.pass(&mut pass).await?;
        if pass.trained.total() == 0 {
            return Err(Error::invalid(format!(
                "nothing trains: run {} has no token with a credit; left out are {}",
                self.run,
                counted(&pass.excluded)
            )));
        }
        let mut content = ContentDigest::default();
        let token_values = match token_values {
            Some(order) => Some(order.finish().await?),
            None => None,
        };
        let token_values = TokenValues::new(token_values);
        let (sample_files, rows) = self.write_samples(pieces, token_values, &plan, &pass, &mut content).await?;
        let exclusion_files = self.write_exclusions(exclusions, &mut content).await?;
        let trained = pass.trained.total();
        let mut notes = vec![format!("{rows} rows train {trained} tokens")];
        if !pass.excluded.is_empty() {
            notes.push(format!("sampled tokens left out: {}", counted(&pass.excluded)));
        }
        let mut publication = Publication::default();
        publication.add("samples", &self.derivation.id, sample_files);
        publication.add("exclusions", &self.derivation.id, exclusion_files);
        self.derivation.rows = rows;
        self.derivation.content_digest = content.text();
        let mut writer = self.session.lake().writer(table("builds")?);
        writer.write(&self.build_row()?).await?;
        publication.add("builds", &self.derivation.id, writer.finish().await?);
        let (n, warnings) =
            publication.publish(self.session.lake(), self.recipe, &self.bindings, &self.derivation).await?;
        notes.extend(warnings);
        Ok(Derived::of_build(self.derivation, self.id, n, notes))
    }

    /// Runs the recipe; its rows come in the order of their place.
    async fn planned(&mut self, session: &Session, scope: &Scope) -> Result<(Vec<OutputColumn>, Vec<RecordBatch>)> {
        make_checks(session, self.recipe, &self.bindings, scope).await?;
        let inner = plan_query(session, self.recipe, Part::Body, &self.bindings, scope).await?;
        let output = output_of(self.recipe, inner.schema().as_arrow())?;
        self.derivation.functions = functions_used(&inner)?;
        let places = ["optimizer_step", "micro_batch", "rank", "row_index", "sequence_index"];
        let order = places
            .into_iter()
            .filter(|name| output.iter().any(|column| column.name == *name))
            .map(|name| col(Column::from_name(name)).sort(true, false));
        let sorted = LogicalPlanBuilder::from(inner).sort(order)?.build()?;
        let located = |error| Part::Body.locate(self.recipe, error);
        let rows = session.run(&sorted).await.map_err(located)?;
        let rows = rows.try_collect().await.map_err(|error| located(error.into()))?;
        Ok((output, rows))
    }

    /// Runs the recipe and checks its plan against the narrow facts of the calls, before anything is written.
    async fn plan(&mut self, scope: &Scope) -> Result<Plan> {
        let session = with_extensions(self.session, &self.run).await?;
        let (output, rows) = self.planned(&session, scope).await?;
        let mut plan = Plan::new(&session, self.recipe, &output, &rows)?;
        drop(rows);
        if plan.is_empty() {
            return Err(Error::invalid(format!(
                "recipe {} plans nothing: run {} has no call with exact tokens and a credit at snapshot {}{}",
                self.recipe.name(),
                self.run,
                session.snapshot().n,
                if self.options.accept_assumed {
                    ""
                } else {
                    "; ids or logprobs given without saying where from train with --accept-assumed only"
                }
            )));
        }
        let sql = format!("SELECT {} FROM calls WHERE run_id = {}", facts::COLUMNS.join(", "), quoted(&self.run));
        let mut calls = self.session.stream(&sql).await?;
        while let Some(batch) = calls.try_next().await? {
            plan.learn(&batch, self.options.accept_assumed)?;
        }
        plan.settle(self.options.max_tokens)?;
        Ok(plan)
    }

    /// Keys of the ids that a query finds; `{run}` stands for the condition on the run.
    async fn keys(&self, sql: &str) -> Result<HashSet<u128>> {
        let sql = sql.replace("{run}", &format!("run_id = {}", quoted(&self.run)));
        let found = self.session.collect(&sql).await?;
        Ok(text_column(&found, 0)?.iter().map(|id| key_of(id)).collect())
    }

    /// Rows of a sorted batch of pieces: each has at most the row's tokens as its prompt, and again as its output with
    /// logprobs and verdicts.
    fn piece_rows(&self) -> usize {
        let widest = self.options.max_tokens as usize * (4 + 4 + 4 + 1);
        (PIECE_BATCH_BYTES / widest).clamp(1, 8192)
    }

    /// Numbers of the planned rollouts' groups, where the objective counts groups; a rollout without one is its own.
    async fn groups(&self, plan: &Plan) -> Result<Vec<u32>> {
        if self.options.objective.unit() != Unit::Group {
            return Ok(Vec::new());
        }
        let run = quoted(&self.run);
        let sql = format!("SELECT rollout_id, group_id FROM rollouts WHERE run_id = {run} AND group_id IS NOT NULL");
        let mut rows = self.session.stream(&sql).await?;
        let mut known: HashMap<u128, u128> = HashMap::new();
        while let Some(batch) = rows.try_next().await? {
            let (rollouts, groups) = (verdict::text(&batch, "rollout_id")?, verdict::text(&batch, "group_id")?);
            for row in (0..batch.num_rows()).filter(|row| rollouts.is_valid(*row)) {
                known.insert(key_of(rollouts.value(row)), key_of(groups.value(row)));
            }
        }
        let mut numbers: HashMap<Result<u128, u32>, u32> = HashMap::new();
        let mut groups = Vec::new();
        for rollout in 0..plan.rollout_count() {
            let group = known.get(&key_of(plan.rollout_id(rollout))).copied().ok_or(rollout);
            let next = u32::try_from(numbers.len()).unwrap_or(u32::MAX);
            groups.push(*numbers.entry(group).or_insert(next));
        }
        Ok(groups)
    }

    /// Reads every call of the run once.
    async fn pass(&self, pass: &mut Pass<'_>) -> Result<(ExternalSort, ExternalSort)> {
        let pieces = ExternalSort::in_session(self.session, &PIECES, &["number"], self.piece_rows())?;
        let schema = table("exclusions")?.physical();
        let keys = ["run_id", "step", "group_id", "rollout_id", "call_id", "position"];
        let exclusions = ExternalSort::in_session(self.session, &schema, &keys, 8192)?;
        let sql = format!(
            "SELECT {}, prompt_token_ids FROM calls WHERE run_id = {}",
            verdict::COLUMNS.join(", "),
            quoted(&self.run)
        );
        let mut calls = self.session.stream(&sql).await?;
        while let Some(batch) = calls.try_next().await? {
            let (planned, left_out) = pass.take(&batch)?;
            let mut goes_on = true;
            if let Some(batch) = planned {
                goes_on &= pieces.push(batch).await?;
            }
            if let Some(batch) = left_out {
                goes_on &= exclusions.push(batch).await?;
            }
            if !goes_on {
                break;
            }
        }
        Ok((pieces, exclusions))
    }

    async fn write_samples(
        &self,
        pieces: ExternalSort,
        mut token_values: TokenValues,
        plan: &Plan,
        pass: &Pass<'_>,
        content: &mut ContentDigest,
    ) -> Result<(Vec<DataFile>, u64)> {
        let mut assembler = Assembler::new(Assembly {
            plan,
            trained: &pass.trained,
            run_id: &self.run,
            build_id: &self.id,
            derivation_id: &self.derivation.id,
            created_at: self.derivation.created_at,
        });
        let mut writer = self.session.lake().writer(table("samples")?);
        let mut sorted = pieces.finish().await?;
        while let Some(batch) = sorted.try_next().await? {
            for index in 0..batch.num_rows() {
                let values = token_values.of(number_of(&batch, index)?).await?;
                if let Some(rows) = assembler.push(&batch, index, values)? {
                    content.add(&rows, SAMPLE_CONTENT)?;
                    writer.write(&rows).await?;
                }
            }
        }
        if let Some(rows) = assembler.finish()? {
            content.add(&rows, SAMPLE_CONTENT)?;
            writer.write(&rows).await?;
        }
        Ok((writer.finish().await?, content.rows()))
    }

    async fn write_exclusions(&self, exclusions: ExternalSort, content: &mut ContentDigest) -> Result<Vec<DataFile>> {
        let mut writer = self.session.lake().writer(table("exclusions")?);
        let mut sorted = exclusions.finish().await?;
        while let Some(batch) = sorted.try_next().await? {
            content.add(&batch, EXCLUSION_CONTENT)?;
            writer.write(&batch).await?;
        }
        Ok(writer.finish().await?)
    }

    fn build_row(&self) -> Result<RecordBatch> {
        let text = |value: &str| repeated(value, 1);
        let metadata = serde_json::json!({ "accept_assumed": self.options.accept_assumed }).to_string();
        let max_tokens = i32::try_from(self.options.max_tokens).unwrap_or(i32::MAX);
        let columns: BTreeMap<&str, ArrayRef> = BTreeMap::from([
            ("build_id", text(&self.id)),
            ("run_id", text(&self.run)),
            ("origin", text("rollbook")),
            ("derivation_id", text(&self.derivation.id)),
            ("objective_unit", text(self.options.objective.unit().as_str())),
            ("objective_scope", text(self.options.objective.scope().as_str())),
            ("objective_constant", Arc::new(Float64Array::from(vec![self.options.objective.constant()])) as ArrayRef),
            ("advantage_scale", Arc::new(Float64Array::from(vec![1.0])) as ArrayRef),
            ("max_tokens", Arc::new(Int32Array::from(vec![max_tokens]))),
            ("metadata", Arc::new(StringArray::from(vec![metadata]))),
            ("created_at", times(self.derivation.created_at, 1)),
        ]);
        table_batch(table("builds")?, 1, columns)
    }
}

fn counted(excluded: &BTreeMap<String, u64>) -> String {
    let parts: Vec<_> = excluded.iter().map(|(reason, tokens)| format!("{reason} {tokens}")).collect();
    if parts.is_empty() { "none".to_owned() } else { parts.join(", ") }
}
