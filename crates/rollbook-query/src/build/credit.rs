//! The credit of each rollout, call or token of a run, and the reason where there is none.

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;

use arrow::array::{Array, ArrayRef, AsArray, Float32Array};
use arrow::datatypes::{DataType, Float32Type, Float64Type};
use futures::TryStreamExt;

use crate::build::plan::Plan;
use crate::build::verdict::{Reason, column, list, text};
use crate::build::{key_of, pair_key, token_values};
use crate::error::{Error, Result};
use crate::external_sort::ExternalSort;
use crate::recipe::{Purposes, Upstream, quoted, text_column};
use crate::session::Session;

/// What a rollout or call gets.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Credit {
    Value(f64),
    /// So many token values, which come with the sorted pieces.
    Tokens(u32),
    None,
}

/// The credit of one call's output tokens.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum CallCredit<'a> {
    /// One value for every token.
    Value(f64),
    /// A value for each of `count` tokens, but for the gaps.
    Tokens { count: u32, gaps: &'a [Range<u32>] },
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Level {
    #[default]
    Rollout,
    Call,
    Token,
}

/// Credits of one run, by rollout or by call.
#[derive(Debug, Default)]
pub(super) struct Credits {
    pub(super) name: String,
    level: Level,
    by_id: HashMap<u128, Credit>,
    /// Positions without a value, of calls that have some.
    gaps: HashMap<u128, Vec<Range<u32>>>,
    /// Why the reward has no value, by rollout, as a number into `reasons`.
    excluded: HashMap<u128, u16>,
    reasons: Vec<String>,
}

impl Credits {
    /// Reads the credits that `upstream` names. Those of single tokens stay out of memory: a sort, with batches of at most
    /// `rows` rows, brings them into the order of the plan.
    pub(super) async fn read(
        session: &Session,
        upstream: &Upstream,
        run: &str,
        plan: &Plan,
        rows: usize,
    ) -> Result<(Self, Option<ExternalSort>)> {
        let view = upstream.view_sql(Purposes::Train)?;
        let level = Self::level(session, &view, upstream).await?;
        let mut credits = Self { name: upstream.name.clone(), level, ..Self::default() };
        let mut order = None;
        if level == Level::Token {
            let sorted = token_values::start(session, rows)?;
            credits.read_tokens(session, &view, plan, &sorted).await?;
            order = Some(sorted);
        } else {
            credits.read_values(session, &view).await?;
        }
        credits.read_reasons(session, upstream, run).await?;
        Ok((credits, order))
    }

    async fn read_values(&mut self, session: &Session, view: &str) -> Result<()> {
        let mut rows = session.stream(&format!("SELECT rollout_id, call_id, value FROM ({view})")).await?;
        while let Some(batch) = rows.try_next().await? {
            let (rollouts, calls) = (text(&batch, "rollout_id")?, text(&batch, "call_id")?);
            let values = arrow::compute::cast(column(&batch, "value")?, &DataType::Float64)?;
            let values = values.as_primitive::<Float64Type>();
            for row in 0..batch.num_rows() {
                let call = (self.level == Level::Call).then_some(&calls);
                // A row that does not say whose it is credits nothing.
                if rollouts.is_null(row) || call.is_some_and(|calls| calls.is_null(row)) {
                    continue;
                }
                let call = call.map(|calls| calls.value(row));
                let credit = if values.is_null(row) { Credit::None } else { Credit::Value(values.value(row)) };
                if matches!(credit, Credit::Value(value) if !value.is_finite()) {
                    let place = place(rollouts.value(row), call);
                    return Err(Error::invalid(format!("credit {} of {place} is no finite number", self.name)));
                }
                self.insert(rollouts.value(row), call, credit)?;
            }
        }
        Ok(())
    }

    async fn read_tokens(&mut self, session: &Session, view: &str, plan: &Plan, sorted: &ExternalSort) -> Result<()> {
        let mut rows = session.stream(&format!("SELECT rollout_id, call_id, token_values FROM ({view})")).await?;
        while let Some(batch) = rows.try_next().await? {
            let (rollouts, calls) = (text(&batch, "rollout_id")?, text(&batch, "call_id")?);
            let lists = list(&batch, "token_values")?;
            let (mut planned, mut numbers) = (Vec::new(), Vec::new());
            for row in (0..batch.num_rows()).filter(|row| rollouts.is_valid(*row) && calls.is_valid(*row)) {
                let (rollout, call) = (rollouts.value(row), calls.value(row));
                if lists.is_null(row) {
                    self.insert(rollout, Some(call), Credit::None)?;
                    continue;
                }
                let values = floats(&lists.value(row))?;
                let gaps = token_values::gaps(&values).map_err(|position| {
                    Error::invalid(format!(
                        "credit {} of {} is no finite number at output token {position}",
                        self.name,
                        place(rollout, Some(call))
                    ))
                })?;
                let count = u32::try_from(values.len()).unwrap_or(u32::MAX);
                self.insert(rollout, Some(call), Credit::Tokens(count))?;
                if !gaps.is_empty() {
                    self.gaps.insert(pair_key(rollout, call), gaps);
                }
                let number = plan.number(call);
                let number = number.filter(|number| plan.rollout_id(plan.sequence_of(*number).1.rollout) == rollout);
                if let Some(number) = number {
                    planned.push(u32::try_from(row).unwrap_or(u32::MAX));
                    numbers.push(number);
                }
            }
            if !numbers.is_empty() && !sorted.push(token_values::batch(&lists, planned, numbers)?).await? {
                // The sort has ended early; its own end says why.
                break;
            }
        }
        Ok(())
    }

    fn insert(&mut self, rollout: &str, call: Option<&str>, credit: Credit) -> Result<()> {
        let key = call.map_or_else(|| key_of(rollout), |call| pair_key(rollout, call));
        if self.by_id.insert(key, credit).is_none() {
            return Ok(());
        }
        Err(Error::invalid(format!("credit {} has two rows for {}", self.name, place(rollout, call))))
    }

    /// Finds the one level of the credit; only advantages are built.
    async fn level(session: &Session, view: &str, upstream: &Upstream) -> Result<Level> {
        let sql = format!("SELECT DISTINCT COALESCE(quantity, 'advantage'), COALESCE(level, '') FROM ({view})");
        let found = session.collect(&sql).await?;
        let quantities: BTreeSet<String> = text_column(&found, 0)?.into_iter().collect();
        let mut levels: BTreeSet<String> = text_column(&found, 1)?.into_iter().collect();
        if levels.remove("") {
            levels.extend(Self::filled_level(session, view).await?);
        }
        let name = &upstream.name;
        if quantities.len() > 1 || levels.len() > 1 {
            let words: Vec<_> = quantities.into_iter().chain(levels).collect();
            return Err(Error::invalid(format!("credit {name} mixes quantities or levels: {}", words.join(", "))));
        }
        if let Some(quantity) = quantities.first().filter(|quantity| *quantity != "advantage") {
            return Err(Error::invalid(format!("credit {name} is a {quantity}; a build takes an advantage")));
        }
        match levels.first().map(String::as_str) {
            None | Some("rollout") => Ok(Level::Rollout),
            Some("call") => Ok(Level::Call),
            Some("token") => Ok(Level::Token),
            Some(other) => {
                Err(Error::invalid(format!("credit {name} is of level {other}; a build takes rollout, call or token")))
            }
        }
    }

    /// Reads the level of rows that do not say it from the columns that are filled.
    async fn filled_level(session: &Session, view: &str) -> Result<Vec<String>> {
        let sql = format!(
            "SELECT CASE WHEN bool_or(token_values IS NOT NULL) THEN 'token' \
             WHEN bool_or(call_id IS NOT NULL) THEN 'call' ELSE 'rollout' END FROM ({view}) WHERE level IS NULL"
        );
        text_column(&session.collect(&sql).await?, 0)
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

    /// Returns the advantage of a call's tokens, or why it has none.
    pub(super) fn of(&self, rollout_id: &str, call_id: &str) -> Result<CallCredit<'_>, Reason> {
        let by_call = self.level != Level::Rollout;
        let key = if by_call { pair_key(rollout_id, call_id) } else { key_of(rollout_id) };
        match self.by_id.get(&key) {
            Some(Credit::Value(value)) => Ok(CallCredit::Value(*value)),
            Some(Credit::Tokens(count)) => {
                Ok(CallCredit::Tokens { count: *count, gaps: self.gaps.get(&key).map_or(&[], Vec::as_slice) })
            }
            Some(Credit::None) | None => Err(self.missing(rollout_id)),
        }
    }

    /// Why a rollout, or a token of it, has no credit: the reward's reason where there is one.
    pub(super) fn missing(&self, rollout_id: &str) -> Reason {
        Reason::NoCredit(self.excluded.get(&key_of(rollout_id)).copied())
    }

    /// The reasons the reward gave, by their numbers.
    pub(super) fn reasons(&self) -> &[String] {
        &self.reasons
    }
}

fn place(rollout: &str, call: Option<&str>) -> String {
    call.map_or_else(|| format!("rollout {rollout}"), |call| format!("rollout {rollout}, call {call}"))
}

fn floats(values: &ArrayRef) -> Result<Float32Array> {
    Ok(arrow::compute::cast(values, &DataType::Float32)?.as_primitive::<Float32Type>().clone())
}
