//! What `reward`, `credit` and `build` share: parameters from the command line, and what they print.

use std::collections::BTreeMap;

use rollbook_query::recipe::{Derived, Recipe, variants};
use serde_json::json;

use super::schema::TextFormat;
use crate::error::{CommandError, Result};
use crate::output::{line, note, small_table};

/// Reads `name=value` words; a name that comes again has several values.
fn parameters(words: &[String]) -> Result<BTreeMap<String, Vec<String>>> {
    let mut parameters: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for word in words {
        let (name, value) = word
            .split_once('=')
            .ok_or_else(|| CommandError::usage(format!("{word} is no parameter")).hint("--param name=value"))?;
        parameters.entry(name.to_owned()).or_default().push(value.to_owned());
    }
    Ok(parameters)
}

/// One run of a recipe: its name, and the values of the parameters that are lists.
pub(super) struct Run {
    pub(super) name: Option<String>,
    pub(super) parameters: BTreeMap<String, String>,
    listed: Vec<(String, String)>,
}

/// Lists the runs that the words of `--param` ask for.
pub(super) fn runs(recipe: &Recipe, name: Option<&str>, words: &[String]) -> Result<Vec<Run>> {
    let variants = variants(recipe, &parameters(words)?)?;
    Ok(variants
        .into_iter()
        .map(|variant| Run {
            name: match (name, variant.suffix.as_str()) {
                (name, "") => name.map(str::to_owned),
                (name, suffix) => Some(format!("{}{suffix}", name.unwrap_or_else(|| recipe.name()))),
            },
            parameters: variant.parameters,
            listed: variant.listed,
        })
        .collect())
}

/// Prints what the runs of a recipe wrote: one as it is, several as a table.
pub(super) fn show_all(results: &[(Run, Derived)], kind: &str, format: TextFormat) -> Result<()> {
    if let [(run, derived)] = results
        && run.listed.is_empty()
    {
        return show(derived, kind, format);
    }
    if format == TextFormat::Json {
        return results.iter().try_for_each(|(_, derived)| show(derived, kind, format));
    }
    let Some((first, _)) = results.first() else {
        return Ok(());
    };
    let mut header: Vec<&str> = vec![kind];
    header.extend(first.listed.iter().map(|(name, _)| name.as_str()));
    header.extend(["rows", "snapshot", if kind == "build" { "build" } else { "derivation" }]);
    let rows: Vec<Vec<String>> = results
        .iter()
        .map(|(run, derived)| {
            let mut row = vec![derived.name.clone()];
            row.extend(run.listed.iter().map(|(_, value)| value.clone()));
            let id = derived.build_id.as_ref().unwrap_or(&derived.derivation_id);
            row.extend([derived.row_count.to_string(), derived.n.to_string(), id.clone()]);
            row
        })
        .collect();
    for (_, derived) in results {
        for text in &derived.notes {
            note(&format!("note: {}: {text}", derived.name));
        }
    }
    line(&small_table(&header, &rows))
}

/// Prints what a recipe's run wrote.
fn show(derived: &Derived, kind: &str, format: TextFormat) -> Result<()> {
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
