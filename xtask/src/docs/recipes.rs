//! docs/recipes.md, from `rollbook recipes --format json`.

use std::fmt::Write;

use serde_json::Value;

use super::{Program, cell, head};
use crate::Outcome;

/// How a recipe is written.
const WRITING: &str = r#"## Writing one

```sql
-- @kind credit
-- @doc Reward less the group's mean.
-- @formula A = r - mean + shift
-- @source where the definition comes from
-- @differs what recipes of the same name do otherwise
-- @param shift double = 0 : added at the end
-- @check the shift {shift} is above 1
--   SELECT $shift AS shift WHERE $shift > 1
-- @test the winner of two
--   reward {"rollout_id": "a", "group_id": "g", "value": 1} {"rollout_id": "b", "group_id": "g", "value": 0}
--   param shift=0.5
--   expect {"rollout_id": "a", "value": 1} {"rollout_id": "b", "value": 0}
-- @test a shift that is too large
--   reward {"rollout_id": "a", "value": 1}
--   param shift=2
--   error the shift 2.0 is above 1
SELECT run_id, rollout_id, value - avg(value) OVER (PARTITION BY run_id, $group_key) + $shift AS value
FROM reward
```

A line of the leading comment without `@` continues the one above it.

| tag | holds |
|---|---|
| `@kind` | reward, credit or build |
| `@doc`, `@formula`, `@source`, `@differs` | what it is, computes, comes from, and how recipes of the same name differ |
| `@param` | NAME TYPE [= DEFAULT] [: DOC]; types are double, long, boolean, string, json and expression (SQL over rollouts) |
| `@check` | a message, and below it a query: a row that it finds is an error, and fills the message's `{column}` |
| `@test` | a name, and below it rows in and rows out, for `rollbook recipes test` |

| makes | reads | must return | may return |
|---|---|---|---|
| reward | any table; `reward` with `--reward` | rollout_id, value | run_id, call_id, exclusion_reason, components, score_ids |
| credit | any table, `reward`, `credit` with `--credit`, or both | rollout_id, value | run_id, call_id, quantity, level, token_values, baseline_scope, baseline_key, baseline_count |
| build | any table, `credit`, `$max_tokens`, `$accept_assumed` | optimizer_step, row_index, sequence_index, rollout_id, call_ids | micro_batch, rank |

A credit of level token returns one value for each output token of its call in `token_values`, null where a token has none.
In a test a line is TABLE and rows of it as JSON (`reward` and `credit` are the upstream), param, expect and rows that must
come, or error and part of the message that must come. A line that begins with `{` continues the one above. The run, rollouts
that only other rows name, score ids and a call's exactness are filled in, and `"output_len": 3` without ids stands for three
tokens. Only the columns of an expected row are compared: numbers to 1e-9 of their size, stored floats to 1e-6.

"#;

pub(super) fn page(program: &Program) -> Outcome<String> {
    let recipes: Value = serde_json::from_str(&program.says(&["recipes", "--format", "json"])?)?;
    let recipes = recipes.as_array().ok_or("rollbook recipes prints no list")?;
    let mut text = head("Recipes");
    text.push_str(
        "A recipe is a SQL file that makes a reward, a credit or a build: `rollbook recipes NAME` prints one whole, a copy of it\n\
         is your own. Tests stand in its leading comment and run with `rollbook recipes test`. What it returns may not depend on\n\
         the order of rows: LIMIT, row_number(), array_agg(), pack() and the like need an ORDER BY, and rows that tie are told\n\
         apart by their content, or named in the error that refuses them.\n\n",
    );
    text.push_str(WRITING);
    text.push_str("## Shipped\n\n| recipe | makes | formula |\n|---|---|---|\n");
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
