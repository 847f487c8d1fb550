//! docs/functions.md, from `rollbook functions --format json`.

use std::fmt::Write;

use serde_json::Value;

use super::{Program, cell, head};
use crate::Outcome;

pub(super) fn page(program: &Program) -> Outcome<String> {
    let functions: Value = serde_json::from_str(&program.says(&["functions", "--format", "json"])?)?;
    let functions = functions.as_array().ok_or("rollbook functions prints no list")?;
    let mut text = head("SQL functions");
    text.push_str(
        "Arguments may be given by place or by name (`name => value`); those with a default may be left out. The\n\
         example of each is the first record of its test.\n\n| function | family | what it gives |\n|---|---|---|\n",
    );
    for function in functions {
        let [name, family, doc] = ["name", "family", "doc"].map(|key| string(function, key));
        // Writing to a String cannot fail, here and below.
        writeln!(text, "| [{name}](#{name}) | {family} | {} |", cell(doc)).ok();
    }
    for function in functions {
        section(&mut text, function);
    }
    Ok(text)
}

fn section(text: &mut String, function: &Value) {
    let [name, syntax, doc, definition] =
        ["name", "syntax", "doc", "definition"].map(|key| string(function, key).trim());
    write!(text, "\n## {name}\n\n```sql\n{syntax}\n```\n\n{doc}\n").ok();
    let params = function["params"].as_array().map(Vec::as_slice).unwrap_or_default();
    if !params.is_empty() {
        text.push_str("\n| argument | type | default | meaning |\n|---|---|---|---|\n");
    }
    for param in params {
        let [name, kind, doc] = ["name", "type", "doc"].map(|key| cell(string(param, key)));
        let default = param["default"].as_str().map_or_else(|| "required".to_owned(), |value| format!("`{value}`"));
        writeln!(text, "| {name} | {kind} | {default} | {doc} |").ok();
    }
    if !definition.is_empty() {
        write!(text, "\n{definition}\n").ok();
    }
    if let Some(source) = function["source"].as_str() {
        write!(text, "\nSource: {source}\n").ok();
    }
    let [sql, result] = ["sql", "result"].map(|key| string(&function["example"], key).trim());
    write!(text, "\n```sql\n{sql}\n```\n\n```text\n{result}\n```\n").ok();
}

fn string<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}
