//! What `reward`, `credit` and `build` share: parameters from the command line, and what they print.

use std::collections::BTreeMap;

use rollbook_query::recipe::Derived;
use serde_json::json;

use super::schema::TextFormat;
use crate::error::{CommandError, Result};
use crate::output::{line, note};

/// Reads `name=value` words.
pub(super) fn parameters(words: &[String]) -> Result<BTreeMap<String, String>> {
    let mut parameters = BTreeMap::new();
    for word in words {
        let (name, value) = word
            .split_once('=')
            .ok_or_else(|| CommandError::usage(format!("{word} is no parameter")).hint("--param name=value"))?;
        if parameters.insert(name.to_owned(), value.to_owned()).is_some() {
            return Err(CommandError::usage(format!("parameter {name} is given twice")));
        }
    }
    Ok(parameters)
}

/// Prints what a recipe's run wrote.
pub(super) fn show(derived: &Derived, kind: &str, format: TextFormat) -> Result<()> {
    for text in &derived.notes {
        note(&format!("note: {text}"));
    }
    match format {
        TextFormat::Table => {
            line(&format!("{kind} {}: {} rows in snapshot {}", derived.name, derived.row_count, derived.n))?;
            if let Some(build_id) = &derived.build_id {
                line(&format!("  build       {build_id}"))?;
            }
            line(&format!("  derivation  {}", derived.derivation_id))?;
            line(&format!("  content     {}", derived.content_digest))
        }
        TextFormat::Json => line(
            &json!({
                "kind": kind,
                "name": derived.name,
                "derivation_id": derived.derivation_id,
                "build_id": derived.build_id,
                "row_count": derived.row_count,
                "content_digest": derived.content_digest,
                "snapshot": derived.n,
                "notes": derived.notes,
            })
            .to_string(),
        ),
    }
}
