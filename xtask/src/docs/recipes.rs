//! docs/recipes.md, from `rollbook recipes --format json`.

use std::fmt::Write;

use serde_json::Value;

use super::{Program, cell, head};
use crate::Outcome;

pub(super) fn page(program: &Program) -> Outcome<String> {
    let recipes: Value = serde_json::from_str(&program.says(&["recipes", "--format", "json"])?)?;
    let recipes = recipes.as_array().ok_or("rollbook recipes prints no list")?;
    let mut text = head("Recipes");
    text.push_str(
        "A recipe is a SQL file that makes a reward, a credit or a build: `rollbook recipes NAME` prints one whole, a copy of it\n\
         is your own. Tests stand in its leading comment and run with `rollbook recipes test`. What it returns may not depend on\n\
         the order of rows: LIMIT, row_number(), array_agg(), pack() and the like need an ORDER BY, and rows that tie are told\n\
         apart by their content, or named in the error that refuses them.\n\n\
         | recipe | makes | formula |\n|---|---|---|\n",
    );
    for recipe in recipes {
        let [name, kind, formula] = ["name", "kind", "formula"].map(|key| string(recipe, key));
        // Writing to a String cannot fail, here and below.
        writeln!(text, "| [{name}](#{}) | {kind} | {} |", anchor(name), cell(formula)).ok();
    }
    for recipe in recipes {
        section(&mut text, recipe);
    }
    Ok(text)
}

/// The place in the page that a heading makes.
fn anchor(name: &str) -> String {
    name.chars().filter(|c| c.is_alphanumeric() || matches!(c, '_' | '-')).collect::<String>().to_lowercase()
}

fn section(text: &mut String, recipe: &Value) {
    let [name, doc] = ["name", "doc"].map(|key| string(recipe, key));
    write!(text, "\n## {name}\n\n{doc}\n").ok();
    let facts = [("Formula", "formula"), ("Source", "source"), ("Differs", "differs")];
    for (title, key) in facts.into_iter().filter(|(_, key)| !string(recipe, key).is_empty()) {
        write!(text, "\n{title}: {}\n", string(recipe, key)).ok();
    }
    let params = recipe["parameters"].as_array().map(Vec::as_slice).unwrap_or_default();
    if !params.is_empty() {
        text.push_str("\n| parameter | type | default | meaning |\n|---|---|---|---|\n");
    }
    for param in params {
        let [name, kind, doc] = ["name", "type", "doc"].map(|key| cell(string(param, key)));
        let default = param["default"].as_str().map_or_else(|| "required".to_owned(), |value| format!("`{value}`"));
        writeln!(text, "| {name} | {kind} | {default} | {doc} |").ok();
    }
}

fn string<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_a_recipe_does_not_say_is_left_away() {
        let mut text = String::new();
        let param = json!({ "name": "eps", "type": "double", "default": "1e-6", "doc": "added" });
        section(
            &mut text,
            &json!({ "name": "a/b", "doc": "D.", "formula": "r", "source": null, "parameters": [param] }),
        );
        assert_eq!(
            text,
            "\n## a/b\n\nD.\n\nFormula: r\n\n| parameter | type | default | meaning |\n|---|---|---|---|\n\
             | eps | double | `1e-6` | added |\n"
        );
        assert_eq!(anchor("verl/grpo_passk"), "verlgrpo_passk");
    }
}
