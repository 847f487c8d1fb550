//! What one of the two names stands for.

use std::collections::BTreeMap;

use arrow::array::{Array, AsArray};
use arrow::compute::cast;
use arrow::datatypes::DataType;

use crate::compare::CompareOptions;
use crate::compare::items::{Level, Sorting};
use crate::error::{Error, Result};
use crate::recipe::{Upstream, quoted, text_column};
use crate::session::Session;

/// One of the results that are compared.
pub(super) enum Side {
    /// Rows of `rewards` or `credits`.
    Values { kind: &'static str, rows: Upstream },
    /// Rows of `samples`.
    Build { id: String, derivation_ids: Vec<String>, facts: BTreeMap<String, String> },
}

impl Side {
    /// Finds what a text names.
    pub(super) async fn find(session: &Session, spec: &str, options: &CompareOptions) -> Result<Self> {
        let wanted = |kind: &str| options.kind.as_deref().is_none_or(|wanted| wanted == kind);
        let run = options.run.as_deref();
        if let Some(kind) = options.kind.as_deref()
            && !["reward", "credit", "build"].contains(&kind)
        {
            return Err(Error::invalid(format!("there is no kind {kind}: it is reward, credit or build")));
        }
        let mut found = Vec::new();
        for (kind, table) in [("reward", "rewards"), ("credit", "credits")] {
            if wanted(kind)
                && let Some(rows) = Upstream::seek(session, table, spec, run).await?
            {
                found.push(Self::Values { kind, rows });
            }
        }
        if wanted("build") {
            found.extend(Self::build(session, spec, run).await?);
        }
        match (found.pop(), found.is_empty()) {
            (Some(side), true) => Ok(side),
            (Some(side), false) => Err(Error::invalid(format!(
                "{spec} is the name of a {} and of a {}: say which with --kind",
                found[0].kind(),
                side.kind()
            ))),
            (None, _) => Err(Self::missing(session, spec).await?),
        }
    }

    async fn build(session: &Session, spec: &str, run: Option<&str>) -> Result<Option<Self>> {
        let (name, id) = spec.rsplit_once('@').map_or((spec, spec), |(name, id)| (name, id));
        let of_run = run.map_or_else(|| "true".to_owned(), |run| format!("b.run_id = {}", quoted(run)));
        let picked = if name == id {
            format!("(b.build_id = {0} OR b.derivation_id = {0} OR d.name = {0})", quoted(spec))
        } else {
            format!("d.name = {} AND (b.build_id = {1} OR b.derivation_id = {1})", quoted(name), quoted(id))
        };
        let found = session
            .collect(&format!(
                "SELECT b.build_id, b.derivation_id, b.run_id, b.objective_unit, b.objective_scope, \
                 CAST(b.objective_constant AS VARCHAR) AS objective_constant, \
                 CAST(b.advantage_scale AS VARCHAR) AS advantage_scale, CAST(b.max_tokens AS VARCHAR) AS max_tokens, \
                 b.algorithm, b.kl_estimator, b.metadata \
                 FROM builds AS b LEFT JOIN derivations AS d ON d.derivation_id = b.derivation_id \
                 WHERE {picked} AND {of_run} ORDER BY b.created_at DESC, b.build_id DESC LIMIT 1"
            ))
            .await?;
        let Some(row) = found.iter().find(|batch| batch.num_rows() > 0) else {
            return Ok(None);
        };
        let mut facts = BTreeMap::new();
        for (field, column) in row.schema().fields().iter().zip(row.columns()) {
            let text = cast(column, &DataType::Utf8)?;
            let text = text.as_string::<i32>();
            if text.is_valid(0) {
                facts.insert(field.name().clone(), text.value(0).to_owned());
            }
        }
        let id = facts.remove("build_id").ok_or_else(|| Error::corrupt(format!("build {spec} has no id")))?;
        let derivation_ids = facts.remove("derivation_id").into_iter().collect();
        Ok(Some(Self::Build { id, derivation_ids, facts }))
    }

    async fn missing(session: &Session, spec: &str) -> Result<Error> {
        let known = session
            .collect(
                "SELECT DISTINCT kind || ' ' || name FROM derivations WHERE kind IS NOT NULL AND name IS NOT NULL \
                 ORDER BY 1 LIMIT 20",
            )
            .await?;
        let known = text_column(&known, 0)?;
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        Ok(Error::not_found(format!(
            "there is no reward, credit or build {spec} at snapshot {}; there are {known}",
            session.snapshot().n
        )))
    }

    /// Returns reward, credit or build.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Values { kind, .. } => kind,
            Self::Build { .. } => "build",
        }
    }

    /// Returns the derivations that made it; none where it was imported.
    pub(super) fn derivation_ids(&self) -> &[String] {
        match self {
            Self::Values { rows, .. } => &rows.derivation_ids,
            Self::Build { derivation_ids, .. } => derivation_ids,
        }
    }

    /// Returns what the build's own row says.
    pub(super) fn facts(&self) -> BTreeMap<String, String> {
        match self {
            Self::Values { .. } => BTreeMap::new(),
            Self::Build { facts, .. } => facts.clone(),
        }
    }

    /// Returns the query for the ids of everything it has a value for.
    pub(super) fn ids_sql(&self) -> String {
        match self {
            Self::Values { rows, .. } => rows.rows_sql("run_id, rollout_id, call_id"),
            Self::Build { id, .. } => format!(
                "SELECT run_id, s['rollout_id'] AS rollout_id, s['call_id'] AS call_id \
                 FROM (SELECT run_id, unnest(segments) AS s FROM samples WHERE build_id = {})",
                quoted(id)
            ),
        }
    }

    /// Finds what its values belong to.
    pub(super) async fn level(&self, session: &Session) -> Result<Level> {
        let rows = match self {
            Self::Build { .. } => return Ok(Level::Token),
            Self::Values { rows, .. } => rows,
        };
        let tokens = if self.kind() == "credit" { "token_values IS NOT NULL" } else { "false" };
        let sql = rows.rows_sql(&format!("bool_or({tokens}), bool_or(call_id IS NOT NULL)"));
        let found = session.collect(&sql).await?;
        let is_set = |column: usize| {
            found.iter().filter(|batch| batch.num_rows() > 0).any(|batch| {
                let array = batch.column(column).as_boolean();
                array.is_valid(0) && array.value(0)
            })
        };
        Ok(match (is_set(0), is_set(1)) {
            (true, _) => Level::Token,
            (false, true) => Level::Call,
            (false, false) => Level::Rollout,
        })
    }

    /// Reads its values, spread to a level.
    pub(super) async fn read(&self, session: &Session, level: Level, sorting: &mut Sorting) -> Result<()> {
        match self {
            Self::Build { id, .. } => sorting.read_build(session, id).await,
            Self::Values { rows, .. } => {
                let own = self.level(session).await?;
                if own == level {
                    sorting.read_values(session, rows, level).await
                } else {
                    sorting.read_spread(session, rows, own, level).await
                }
            }
        }
    }
}
