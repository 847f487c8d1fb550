//! What two results were made with, and where that is not the same.

use std::collections::{BTreeMap, BTreeSet};

use arrow::array::{Array, AsArray};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use serde_json::{Map, Value};

use crate::compare::side::Side;
use crate::error::Result;
use crate::recipe::{quoted, text_column};
use crate::session::Session;

/// One setting that differs; a side without it has none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// Which it is, such as `parameter eps`, or `reward: recipe` of what the result was made from.
    pub name: String,
    /// The first side's.
    pub a: Option<String>,
    /// The second side's.
    pub b: Option<String>,
}

/// Lists the settings that are not the same on both sides.
pub(super) async fn differences(session: &Session, a: &Side, b: &Side) -> Result<Vec<Setting>> {
    let (a, b) = (of(session, a).await?, of(session, b).await?);
    let names: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
    Ok(names
        .into_iter()
        .map(|name| Setting { name: name.clone(), a: a.get(name).cloned(), b: b.get(name).cloned() })
        .filter(|setting| setting.a != setting.b)
        .collect())
}

async fn of(session: &Session, side: &Side) -> Result<BTreeMap<String, String>> {
    let mut settings = side.facts();
    let mut open: Vec<String> = side.derivation_ids().to_vec();
    let mut prefix = String::new();
    let mut seen = BTreeSet::new();
    // A build is made of a credit, that of rewards, those perhaps of other rewards.
    while !open.is_empty() {
        open.retain(|id| seen.insert(id.clone()));
        let mut next = Vec::new();
        for (place, id) in open.iter().enumerate() {
            let several = if place == 0 { String::new() } else { format!("{} ", place + 1) };
            next.extend(add(session, id, &format!("{prefix}{several}"), &mut settings).await?);
        }
        prefix = format!("{prefix}from: ");
        open = next;
    }
    Ok(settings)
}

/// Adds what one derivation was made with; returns what it was made from.
async fn add(
    session: &Session,
    id: &str,
    prefix: &str,
    settings: &mut BTreeMap<String, String>,
) -> Result<Vec<String>> {
    let found = session
        .collect(&format!(
            "SELECT name, recipe_digest, group_key, CAST(snapshot AS VARCHAR), engine_version, run_id, parameters, \
             functions FROM derivations WHERE derivation_id = {} LIMIT 1",
            quoted(id)
        ))
        .await?;
    let Some(row) = found.iter().find(|batch| batch.num_rows() > 0) else {
        return Ok(Vec::new());
    };
    let text = |column: usize| -> Result<Option<String>> {
        let texts = cast(row.column(column), &DataType::Utf8)?;
        let texts = texts.as_string::<i32>();
        Ok(texts.is_valid(0).then(|| texts.value(0).to_owned()))
    };
    let names = [(0, "name"), (1, "recipe"), (2, "group key"), (3, "snapshot"), (4, "engine"), (5, "run")];
    for (column, name) in names {
        if let Some(value) = text(column)?.filter(|_| !(prefix.is_empty() && name == "name")) {
            settings.insert(format!("{prefix}{name}"), value);
        }
    }
    for (column, name) in [(6, "parameter"), (7, "function")] {
        let object: Map<String, Value> =
            text(column)?.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default();
        for (key, value) in object {
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            settings.insert(format!("{prefix}{name} {key}"), value);
        }
    }
    let upstream = session
        .collect(&format!(
            "SELECT unnest(upstream_derivation_ids) AS id FROM derivations WHERE derivation_id = {} ORDER BY id",
            quoted(id)
        ))
        .await?;
    text_column(&upstream, 0)
}
