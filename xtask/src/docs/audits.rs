//! docs/audits.md, from `rollbook checks --format json`.

use std::fmt::Write;

use serde_json::Value;

use super::{Program, cell, head};
use crate::Outcome;

pub(super) fn page(program: &Program) -> Outcome<String> {
    let checks: Value = serde_json::from_str(&program.says(&["checks", "--format", "json"])?)?;
    let checks = checks.as_array().or_else(|| checks["checks"].as_array()).ok_or("rollbook checks prints no list")?;
    let mut text = head("Audits");
    text.push_str(
        "A check answers one question. Its outcome is a violation (the record contradicts itself), rule (a declared\n\
         expectation is broken) or undeclared (it cannot be judged, and the finding says what is missing).\n",
    );
    checks.iter().try_for_each(|check| section(&mut text, check))?;
    Ok(text)
}

/// Shows a check as it describes itself: short facts as a table, then longer texts.
fn section(text: &mut String, check: &Value) -> Outcome {
    let facts = check.as_object().ok_or("a check is no object")?;
    let code = facts.get("check").and_then(Value::as_str).ok_or("a check has no code")?;
    let facts = || facts.iter().filter(|(key, value)| *key != "check" && !value.is_null());
    // Writing to a String cannot fail, here and below.
    write!(text, "\n## {code}\n\n| fact | value |\n|---|---|\n").ok();
    for (key, value) in facts().filter(|(_, value)| !is_long(value)) {
        writeln!(text, "| {} | {} |", key.replace('_', " "), cell(&shown(value))).ok();
    }
    for (key, value) in facts().filter(|(_, value)| is_long(value)) {
        let body = shown(value);
        let body = body.trim();
        if key == "sql" {
            write!(text, "\n```sql\n{body}\n```\n").ok();
        } else {
            write!(text, "\n### {}\n\n{body}\n", key.replace('_', " ")).ok();
        }
    }
    Ok(())
}

fn is_long(value: &Value) -> bool {
    value.as_str().is_some_and(|text| text.trim().contains('\n'))
}

fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(shown).collect::<Vec<_>>().join(", "),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn short_facts_stand_in_the_table_and_sql_in_a_block() {
        let mut text = String::new();
        section(&mut text, &json!({ "check": "a/b", "needs": ["x", "y"], "example": null, "sql": "SELECT\n1" }))
            .unwrap();
        assert_eq!(text, "\n## a/b\n\n| fact | value |\n|---|---|\n| needs | x, y |\n\n```sql\nSELECT\n1\n```\n");
    }
}
