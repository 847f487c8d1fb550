//! A run's expectations: what they are, which checks each one switches on, and how they are set.
//!
//! Setting one appends a revision of the run's row in `runs`; what was declared before stays in `runs_history`.

use std::sync::Arc;

use arrow::array::{Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema};
use arrow::json::{LineDelimitedWriter, ReaderBuilder};
use async_trait::async_trait;
use rollbook_lake::{Change, Entry, Intent, Lake, Outcome as Published, Prepare, Snapshot};
use rollbook_query::{Error, Result, Session};
use rollbook_schema::Table;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::catalog::checks;

/// Columns of `runs` that declare nothing.
const NOT_EXPECTATIONS: [&str; 10] = [
    "run_id",
    "name",
    "trainer",
    "trainer_version",
    "metadata",
    "extra",
    "revision",
    "import_id",
    "derivation_id",
    "created_at",
];

/// Words that an expectation may be, where only some are; `number` stands for any number.
const WORDS: [(&str, &[&str]); 9] = [
    ("logprobs_mode", &["raw", "temperature", "processed", "constrained"]),
    ("objective_unit", &["token", "row", "rollout", "group", "constant"]),
    ("objective_scope", &["step", "micro_batch", "rank"]),
    ("credit_rule.center", &["group_mean", "leave_one_out", "batch_mean", "none"]),
    ("credit_rule.std_scope", &["group", "batch", "none"]),
    ("credit_rule.singleton", &["number", "null", "raw"]),
    ("credit_rule.incomplete_group", &["keep", "drop", "refill"]),
    ("credit_rule.null", &["excluded", "number"]),
    ("credit_rule.truncated", &["keep", "mask", "number"]),
];

/// The least that an expectation may be, where there is such a thing; ids of a list are each at least that.
const LEAST: [(&str, i32); 11] = [
    ("expected_group_size", 1),
    ("expected_optimizer_steps", 1),
    ("max_staleness", 0),
    ("vocab_size", 1),
    ("eos_token_ids", 0),
    ("bos_token_id", 0),
    ("pad_token_id", 0),
    ("max_context_tokens", 1),
    ("max_output_tokens", 1),
    ("credit_rule.ddof", 0),
    ("credit_rule.eps", 0),
];

/// One expectation that a run can declare.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Rule {
    /// Column of `runs`, or field of one after a dot.
    pub name: String,
    /// What it must be.
    #[serde(rename = "type")]
    pub kind: String,
    /// What the run declares; null = nothing.
    pub value: Value,
    /// Checks that need it.
    pub checks: Vec<&'static str>,
    /// What it means.
    pub meaning: String,
}

/// Changes to a run's expectations.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RuleChanges {
    /// Names and values to declare.
    pub set: Vec<(String, String)>,
    /// Names that are no longer declared.
    pub unset: Vec<String>,
}

/// A name that can be declared, with its type.
struct Slot {
    name: String,
    kind: DataType,
    meaning: String,
}

fn runs() -> Result<&'static Table> {
    rollbook_schema::table("runs").ok_or_else(|| Error::corrupt("the schema has no table runs"))
}

fn slots() -> Result<Vec<Slot>> {
    let mut slots = Vec::new();
    let table = runs()?;
    for field in table.logical().fields() {
        let name = field.name().as_str();
        if NOT_EXPECTATIONS.contains(&name) {
            continue;
        }
        let meaning = table.column(name).map(|column| column.comment.clone()).unwrap_or_default();
        match field.data_type() {
            DataType::Struct(fields) => slots.extend(fields.iter().map(|inner| Slot {
                name: format!("{name}.{}", inner.name()),
                kind: inner.data_type().clone(),
                meaning: meaning.clone(),
            })),
            kind => slots.push(Slot { name: name.to_owned(), kind: kind.clone(), meaning }),
        }
    }
    Ok(slots)
}

/// Reads what a run declares.
///
/// # Errors
///
/// A run that is not in the lake.
pub async fn rules(session: &Session, run: &str) -> Result<Vec<Rule>> {
    let row = row_of(session, run).await?;
    let declared = |name: &str| {
        let mut value = row.as_ref().map(|row| Value::Object(row.clone())).unwrap_or_default();
        for part in name.split('.') {
            value = value.get(part).cloned().unwrap_or_default();
        }
        value
    };
    let rule = |slot: Slot| Rule {
        value: declared(&slot.name),
        kind: described(&slot),
        checks: switched_on(&slot.name),
        meaning: slot.meaning,
        name: slot.name,
    };
    Ok(slots()?.into_iter().map(rule).collect())
}

/// The checks that need an expectation, or the whole of the struct that it is a field of.
fn switched_on(name: &str) -> Vec<&'static str> {
    let column = name.split('.').next().unwrap_or(name);
    let is_needed = |need: &String| {
        need.strip_prefix("runs.").is_some_and(|need| need == name || (need == column && column != name))
    };
    checks().iter().filter(|check| check.needs.iter().any(is_needed)).map(|check| check.code).collect()
}

/// Sets and unsets expectations of a run in a new revision of its row; `None` where nothing changes.
///
/// # Errors
///
/// A name that is no expectation, a value of another type (the message lists the right ones), a run that is not there, a
/// lake that cannot be written.
pub async fn set_rules(session: &Session, run: &str, changes: &RuleChanges) -> Result<Option<u64>> {
    let parsed = parsed(changes)?;
    let head = session.lake().snapshot().await?;
    let mut publication = Publication {
        lake: session.lake().clone(),
        session: session.clone(),
        run: run.to_owned(),
        parsed,
        failed: None,
    };
    let outcome = session.lake().commit(head, Intent::append(format!("rules {run}")), &mut publication).await;
    if let Some(error) = publication.failed {
        return Err(error);
    }
    match outcome? {
        Published::Published { n, .. } | Published::AlreadyIn { n } => Ok(Some(n)),
        Published::Nothing => Ok(None),
    }
}

/// Names with their new values, null where they are unset.
fn parsed(changes: &RuleChanges) -> Result<Vec<(String, Value)>> {
    let slots = slots()?;
    let find = |name: &str| {
        slots.iter().find(|slot| slot.name == name).ok_or_else(|| {
            let known: Vec<&str> = slots.iter().map(|slot| slot.name.as_str()).collect();
            Error::invalid(format!("no expectation is called {name}; there are: {}", known.join(", ")))
        })
    };
    let mut parsed = Vec::new();
    for (name, text) in &changes.set {
        let slot = find(name)?;
        let value = value_of(slot, text.trim())
            .ok_or_else(|| Error::invalid(format!("{name} is {}, which {text:?} is not", described(slot))))?;
        parsed.push((name.clone(), value));
    }
    for name in &changes.unset {
        find(name)?;
        if parsed.iter().any(|(set, _)| set == name) {
            return Err(Error::invalid(format!("{name} is both set and unset")));
        }
        parsed.push((name.clone(), Value::Null));
    }
    Ok(parsed)
}

fn words_of(slot: &Slot) -> Option<&'static [&'static str]> {
    WORDS.iter().find(|(name, _)| *name == slot.name).map(|(_, words)| *words)
}

/// What a value must be, for people.
fn described(slot: &Slot) -> String {
    let kind = match &slot.kind {
        DataType::Int32 | DataType::Int64 => "a whole number",
        DataType::Float32 | DataType::Float64 => "a number",
        DataType::Boolean => "true or false",
        DataType::List(_) => "whole numbers with commas between them",
        _ => "a text",
    };
    match (words_of(slot), least_of(slot)) {
        (Some(words), _) => format!("one of {}", words.join(", ")),
        (None, Some(least)) if matches!(slot.kind, DataType::List(_)) => format!("{kind}, each at least {least}"),
        (None, Some(least)) => format!("{kind}, at least {least}"),
        (None, None) => kind.to_owned(),
    }
}

fn least_of(slot: &Slot) -> Option<i32> {
    LEAST.iter().find(|(name, _)| *name == slot.name).map(|(_, least)| *least)
}

fn value_of(slot: &Slot, text: &str) -> Option<Value> {
    let least = least_of(slot).map(f64::from);
    let is_enough = |value: &Value| value.as_f64().is_none_or(|number| least.is_none_or(|least| number >= least));
    typed_value(slot, text).filter(|value| match value {
        Value::Array(items) => items.iter().all(is_enough),
        value => is_enough(value),
    })
}

fn typed_value(slot: &Slot, text: &str) -> Option<Value> {
    match &slot.kind {
        DataType::Int32 => text.parse::<i32>().ok().map(Value::from),
        DataType::Int64 => text.parse::<i64>().ok().map(Value::from),
        DataType::Float32 | DataType::Float64 => {
            text.parse::<f64>().ok().filter(|number| number.is_finite()).map(Value::from)
        }
        DataType::Boolean => text.parse::<bool>().ok().map(Value::from),
        DataType::List(_) => {
            let items = text.trim_start_matches('[').trim_end_matches(']').split(',');
            items
                .map(|item| item.trim().parse::<i32>().ok().map(Value::from))
                .collect::<Option<Vec<_>>>()
                .map(Value::from)
        }
        _ if text.is_empty() => None,
        _ => {
            let is_number = || text.parse::<f64>().is_ok_and(f64::is_finite);
            let is_allowed = |word: &&str| *word == text || (*word == "number" && is_number());
            words_of(slot)
                .is_none_or(|words| words.iter().any(|word| is_allowed(word) && text != "number"))
                .then(|| text.into())
        }
    }
}

/// The run's row as JSON; none where the run has rollouts or calls and no row.
async fn row_of(session: &Session, run: &str) -> Result<Option<Map<String, Value>>> {
    let literal = format!("'{}'", run.replace('\'', "''"));
    let batches =
        session.collect(&format!("SELECT * FROM runs WHERE run_id = {literal} ORDER BY created_at DESC")).await?;
    if let Some(batch) = batches.iter().find(|batch| batch.num_rows() > 0) {
        let mut text = Vec::new();
        let mut writer = LineDelimitedWriter::new(&mut text);
        writer.write(&batch.slice(0, 1))?;
        writer.finish()?;
        drop(writer);
        let row = serde_json::from_slice(&text).map_err(|error| Error::corrupt(format!("the run's row: {error}")))?;
        return Ok(Some(row));
    }
    for table in ["rollouts", "calls", "samples"] {
        let found = session.collect(&format!("SELECT run_id FROM {table} WHERE run_id = {literal} LIMIT 1")).await?;
        if found.iter().any(|batch| batch.num_rows() > 0) {
            return Ok(None);
        }
    }
    let known = session.collect("SELECT DISTINCT run_id FROM runs ORDER BY 1 LIMIT 20").await?;
    let known: Vec<String> = known
        .iter()
        .filter_map(|batch| arrow::compute::cast(batch.column(0), &DataType::Utf8).ok())
        .flat_map(|names| {
            let names = arrow::array::AsArray::as_string::<i32>(names.as_ref()).clone();
            (0..names.len()).map(move |at| names.value(at).to_owned()).collect::<Vec<_>>()
        })
        .collect();
    Err(Error::not_found(format!("no run is called {run}; there are: {}", known.join(", "))))
}

struct Publication {
    lake: Lake,
    session: Session,
    run: String,
    parsed: Vec<(String, Value)>,
    /// Why no row could be made: the lake's own error would not say it as well.
    failed: Option<Error>,
}

#[async_trait]
impl Prepare for Publication {
    /// The row is made from the newest one, so a revision that came in between is not lost.
    async fn changes(&mut self, head: &Snapshot, _: &[Entry]) -> rollbook_lake::Result<Vec<Change>> {
        match self.change(head).await {
            Ok(change) => Ok(change.into_iter().collect()),
            Err(error) => {
                self.failed = Some(error);
                Ok(Vec::new())
            }
        }
    }
}

impl Publication {
    async fn change(&self, head: &Snapshot) -> Result<Option<Change>> {
        let session = Session::at(&self.lake, head.clone(), self.session.options().clone()).await?;
        let before = row_of(&session, &self.run).await?;
        let mut row = before.clone().unwrap_or_default();
        for (name, value) in &self.parsed {
            put(&mut row, name, value.clone());
        }
        if before.as_ref() == Some(&row) || self.parsed.is_empty() {
            return Ok(None);
        }
        let bound = |name: &str| row.get(name).and_then(Value::as_f64);
        if let (Some(least), Some(most)) = (bound("score_min"), bound("score_max"))
            && least > most
        {
            return Err(Error::invalid(format!(
                "score_min {least} is above score_max {most}: no score could be right"
            )));
        }
        let revision = before.as_ref().map_or(0, |row| row.get("revision").and_then(Value::as_i64).unwrap_or(0) + 1);
        row.insert("run_id".to_owned(), self.run.clone().into());
        row.insert("revision".to_owned(), revision.into());
        row.insert("import_id".to_owned(), Value::Null);
        row.insert("created_at".to_owned(), self.lake.now_us().into());
        let mut writer = self.lake.writer(runs()?);
        writer.write(&stored(&row)?).await?;
        Ok(Some(Change { table: "runs".to_owned(), add: writer.finish().await?, remove: Vec::new() }))
    }
}

fn put(row: &mut Map<String, Value>, name: &str, value: Value) {
    match name.split_once('.') {
        None if value.is_null() => {
            row.remove(name);
        }
        None => {
            row.insert(name.to_owned(), value);
        }
        Some((column, field)) => {
            let mut inner = row.get(column).and_then(Value::as_object).cloned().unwrap_or_default();
            put(&mut inner, field, value);
            // A rule that says nothing is none.
            if inner.values().all(Value::is_null) {
                row.remove(column);
            } else {
                row.insert(column.to_owned(), inner.into());
            }
        }
    }
}

fn stored(row: &Map<String, Value>) -> Result<RecordBatch> {
    let fields: Vec<Field> = runs()?.physical().fields().iter().map(|field| field.as_ref().clone()).collect();
    let mut decoder = ReaderBuilder::new(Arc::new(Schema::new(fields))).build_decoder()?;
    decoder.serialize(std::slice::from_ref(row))?;
    decoder.flush()?.ok_or_else(|| Error::corrupt("the run's row is empty"))
}
