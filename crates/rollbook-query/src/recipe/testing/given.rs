//! The rows a test gives, completed to what the exchange format needs.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

/// One row of a test, and where it stands.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Row {
    pub(super) line: usize,
    pub(super) fields: Map<String, Value>,
}

/// The run of rows that name none.
pub(super) const RUN: &str = "run";
/// The name of the rewards or credits that a test gives.
pub(super) const UPSTREAM: &str = "given";

/// Whether a word names rows that can be given.
pub(super) fn is_table(word: &str) -> bool {
    matches!(word, "reward" | "credit") || rollbook_schema::table(word).is_some()
}

/// Completes the rows of a test; the result has the rows of each table of the exchange format.
pub(super) fn complete(given: &BTreeMap<String, Vec<Row>>) -> BTreeMap<&str, Vec<Map<String, Value>>> {
    let mut tables: BTreeMap<&str, Vec<Map<String, Value>>> = BTreeMap::new();
    let mut rollouts: BTreeMap<(String, String), Map<String, Value>> = BTreeMap::new();
    let named: BTreeSet<(String, String)> =
        given.get("rollouts").into_iter().flatten().filter_map(|row| key(&row.fields)).collect();
    for (word, rows) in given {
        let table = table_of(word);
        for row in rows {
            let mut fields = row.fields.clone();
            fields.entry("run_id").or_insert_with(|| json!(RUN));
            if table != "rollouts" {
                if let Some(key) = key(&row.fields).filter(|key| !named.contains(key)) {
                    complete_rollout(rollouts.entry(key).or_default(), &fields);
                }
                let of_rollouts: Vec<String> = fields
                    .keys()
                    .filter(|name| !has_column(table, name) && has_column("rollouts", name))
                    .cloned()
                    .collect();
                for name in of_rollouts {
                    fields.remove(&name);
                }
            }
            complete_row(table, &mut fields, tables.get(table).map_or(0, Vec::len));
            tables.entry(table).or_default().push(fields);
        }
    }
    if !rollouts.is_empty() {
        tables.entry("rollouts").or_default().extend(rollouts.into_values());
    }
    tables
}

fn table_of(word: &str) -> &str {
    match word {
        "reward" => "rewards",
        "credit" => "credits",
        other => other,
    }
}

fn key(fields: &Map<String, Value>) -> Option<(String, String)> {
    let text = |name: &str| fields.get(name).and_then(Value::as_str).map(str::to_owned);
    Some((text("run_id").unwrap_or_else(|| RUN.to_owned()), text("rollout_id")?))
}

fn has_column(table: &str, name: &str) -> bool {
    rollbook_schema::table(table).is_some_and(|table| table.logical().field_with_name(name).is_ok())
}

/// Takes what a row says of its rollout; the first that says it stands.
fn complete_rollout(rollout: &mut Map<String, Value>, fields: &Map<String, Value>) {
    for name in ["run_id", "rollout_id", "step", "group_id"] {
        if let Some(value) = fields.get(name) {
            rollout.entry(name).or_insert_with(|| value.clone());
        }
    }
    // What only rollouts have can be written on any row of theirs.
    for (name, value) in fields {
        if has_column("rollouts", name) && !has_column("calls", name) && !has_column("scores", name) {
            rollout.entry(name.as_str()).or_insert_with(|| value.clone());
        }
    }
}

fn complete_row(table: &str, fields: &mut Map<String, Value>, place: usize) {
    match table {
        "rewards" | "credits" => {
            fields.entry("name").or_insert_with(|| json!(UPSTREAM));
        }
        "scores" => {
            fields.entry("score_id").or_insert_with(|| json!(format!("score-{place}")));
        }
        "calls" => {
            for name in ["prompt_exactness", "output_exactness", "logprobs_source"] {
                fields.entry(name).or_insert_with(|| json!("engine"));
            }
            for (length, ids) in [("prompt_len", "prompt_token_ids"), ("output_len", "output_token_ids")] {
                let tokens = fields.get(length).and_then(Value::as_u64);
                if let Some(tokens) = tokens.filter(|_| !fields.contains_key(ids)) {
                    fields.insert(ids.to_owned(), json!(vec![0; usize::try_from(tokens).unwrap_or(0)]));
                }
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(value: Value) -> Row {
        Row { line: 1, fields: value.as_object().unwrap().clone() }
    }

    #[test]
    fn rollouts_are_made_of_what_other_rows_say() {
        let given = BTreeMap::from([
            (
                "reward".to_owned(),
                vec![
                    row(json!({"rollout_id": "a", "group_id": "g", "task_id": "t", "value": 1})),
                    row(json!({"rollout_id": "b", "value": 0})),
                ],
            ),
            ("rollouts".to_owned(), vec![row(json!({"rollout_id": "b", "step": 4}))]),
            ("calls".to_owned(), vec![row(json!({"rollout_id": "a", "call_id": "c", "output_len": 2}))]),
        ]);
        let tables = complete(&given);
        let rollouts = json!(tables["rollouts"]);
        let expected = json!([
            {"rollout_id": "b", "step": 4, "run_id": "run"},
            {"run_id": "run", "rollout_id": "a", "group_id": "g", "task_id": "t"}
        ]);
        assert_eq!(rollouts, expected);
        assert_eq!(
            json!(tables["rewards"][0]),
            json!({"rollout_id": "a", "group_id": "g", "value": 1, "run_id": "run", "name": "given"})
        );
        assert_eq!(tables["calls"][0]["output_token_ids"], json!([0, 0]));
        assert_eq!(tables["calls"][0]["output_exactness"], json!("engine"));
    }
}
