//! The credit of each rollout or call of a run, and the reason where there is none.

use std::collections::HashMap;

use arrow::array::{Array, AsArray};
use arrow::datatypes::{DataType, Float64Type};
use futures::TryStreamExt;

use crate::build::key_of;
use crate::build::verdict::{Reason, column, text};
use crate::error::{Error, Result};
use crate::recipe::{Upstream, quoted, text_column};
use crate::session::Session;

/// What a rollout or call gets.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Credit {
    Value(f64),
    None,
}

/// Credits of one run, by rollout or by call.
#[derive(Debug, Default)]
pub(super) struct Credits {
    by_call: bool,
    by_id: HashMap<u128, Credit>,
    /// Why the reward has no value, by rollout, as a number into `reasons`.
    excluded: HashMap<u128, u16>,
    reasons: Vec<String>,
}

impl Credits {
    /// Reads the credits that `upstream` names.
    pub(super) async fn read(session: &Session, upstream: &Upstream, run: &str) -> Result<Self> {
        let view = upstream.view_sql()?;
        let mut credits = Self { by_call: Self::level(session, &view, upstream).await? == "call", ..Self::default() };
        let mut rows = session.stream(&format!("SELECT rollout_id, call_id, value FROM ({view})")).await?;
        while let Some(batch) = rows.try_next().await? {
            let ids = text(&batch, if credits.by_call { "call_id" } else { "rollout_id" })?;
            let values = arrow::compute::cast(column(&batch, "value")?, &DataType::Float64)?;
            let values = values.as_primitive::<Float64Type>();
            for row in 0..batch.num_rows() {
                let id = if ids.is_null(row) { "" } else { ids.value(row) };
                let credit = if values.is_null(row) { Credit::None } else { Credit::Value(values.value(row)) };
                if matches!(credit, Credit::Value(value) if !value.is_finite()) {
                    return Err(Error::invalid(format!("credit {} of {id} is no finite number", upstream.name)));
                }
                if credits.by_id.insert(key_of(id), credit).is_some() {
                    return Err(Error::invalid(format!("credit {} has two rows for {id}", upstream.name)));
                }
            }
        }
        credits.read_reasons(session, upstream, run).await?;
        Ok(credits)
    }

    /// Finds the one level of the credit; only advantages are built.
    async fn level(session: &Session, view: &str, upstream: &Upstream) -> Result<String> {
        let found = session
            .collect(&format!(
                "SELECT DISTINCT COALESCE(quantity, 'advantage'), COALESCE(level, 'rollout') FROM ({view}) ORDER BY 1, 2"
            ))
            .await?;
        let (quantities, levels) = (text_column(&found, 0)?, text_column(&found, 1)?);
        match (quantities.as_slice(), levels.as_slice()) {
            ([], []) => Ok("rollout".to_owned()),
            ([quantity], [level]) if quantity == "advantage" => match level.as_str() {
                "rollout" | "call" => Ok(level.clone()),
                other => Err(Error::unsupported(format!("credit {} is of level {other}", upstream.name))
                    .with("built are", "rollout and call")),
            },
            ([quantity], [_]) => {
                Err(Error::invalid(format!("credit {} is a {quantity}; a build takes an advantage", upstream.name)))
            }
            _ => Err(Error::invalid(format!(
                "credit {} mixes quantities or levels: {}",
                upstream.name,
                levels.join(", ")
            ))),
        }
    }

    async fn read_reasons(&mut self, session: &Session, upstream: &Upstream, run: &str) -> Result<()> {
        if upstream.derivation_ids.is_empty() {
            return Ok(());
        }
        let ids: Vec<_> = upstream.derivation_ids.iter().map(|id| quoted(id)).collect();
        let rewards = session
            .collect(&format!(
                "SELECT DISTINCT reward_id FROM (SELECT unnest(upstream_derivation_ids) AS reward_id FROM derivations \
                 WHERE derivation_id IN ({}))",
                ids.join(", ")
            ))
            .await?;
        let rewards: Vec<_> = text_column(&rewards, 0)?.iter().map(|id| quoted(id)).collect();
        if rewards.is_empty() {
            return Ok(());
        }
        let mut rows = session
            .stream(&format!(
                "SELECT rollout_id, exclusion_reason FROM rewards_history WHERE run_id = {} AND call_id IS NULL \
                 AND exclusion_reason IS NOT NULL AND derivation_id IN ({})",
                quoted(run),
                rewards.join(", ")
            ))
            .await?;
        let mut numbers: HashMap<String, u16> = HashMap::new();
        while let Some(batch) = rows.try_next().await? {
            let (rollouts, reasons) = (text(&batch, "rollout_id")?, text(&batch, "exclusion_reason")?);
            for row in (0..batch.num_rows()).filter(|row| rollouts.is_valid(*row)) {
                let reason = reasons.value(row);
                let next = u16::try_from(self.reasons.len()).map_err(|source| {
                    Error::unsupported("a reward has more than 65,536 different reasons").caused_by(source)
                })?;
                let number = *numbers.entry(reason.to_owned()).or_insert(next);
                if number == next {
                    self.reasons.push(reason.to_owned());
                }
                self.excluded.insert(key_of(rollouts.value(row)), number);
            }
        }
        Ok(())
    }

    /// Returns the advantage of a call, or why it has none.
    pub(super) fn of(&self, rollout_id: &str, call_id: &str) -> Result<f64, Reason> {
        let id = if self.by_call { call_id } else { rollout_id };
        match self.by_id.get(&key_of(id)) {
            Some(Credit::Value(value)) => Ok(*value),
            _ => Err(Reason::NoCredit(self.excluded.get(&key_of(rollout_id)).copied())),
        }
    }

    /// The reasons the reward gave, by their numbers.
    pub(super) fn reasons(&self) -> &[String] {
        &self.reasons
    }
}
