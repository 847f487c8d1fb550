//! Running a recorded reward or credit again, in memory: what its recipe makes of a snapshot today.

use std::collections::BTreeMap;

use arrow::array::RecordBatch;
use serde_json::Value;

use crate::error::{Error, Result};
use crate::recipe::derive::{Inputs, Running};
use crate::recipe::parameter::GROUP_KEY;
use crate::recipe::scope::{Scope, bind};
use crate::recipe::upstream::{Purposes, Upstream};
use crate::recipe::{Kind, ParameterType, Recipe};
use crate::session::Session;

/// What a row of `derivations` says of how it was made.
#[derive(Debug, Clone, Default)]
pub struct Recorded {
    /// Name it goes by.
    pub name: String,
    /// The recipe's text.
    pub recipe: String,
    /// Parameters as one JSON object; none = the defaults.
    pub parameters: Option<String>,
    /// Expression over rollouts that names the group; none = the recipe's default.
    pub group_key: Option<String>,
    /// Run it was restricted to.
    pub run: Option<String>,
    /// Derivations it read.
    pub upstream_ids: Vec<String>,
}

/// Runs a recorded derivation's recipe over the session's snapshot and hands its rows over, batch by batch, with the columns
/// of the recipe, `run_id`, `step` and `group_id`. Nothing is written. Returns the functions it called, with the versions
/// that they have now.
///
/// # Errors
///
/// `Invalid` for a recipe that cannot be run as recorded: its text, its parameters or its upstream is not known.
pub async fn rerun(
    session: &Session,
    recorded: &Recorded,
    each: &mut (dyn FnMut(&RecordBatch) -> Result<()> + Send),
) -> Result<BTreeMap<&'static str, u32>> {
    let recipe = Recipe::parse(&recorded.name, &recorded.recipe)?;
    let bindings = bind(&recipe, recipe.kind(), &parameters(&recipe, recorded)?)?;
    let mut scope = Scope::new(session, recorded.run.as_deref()).await?;
    let purposes = match recipe.kind() {
        Kind::Reward => Purposes::All,
        Kind::Credit => Purposes::Train,
        Kind::Build => {
            let name = &recorded.name;
            return Err(Error::invalid(format!("derivation {name} is a build, which has no rows to compare")));
        }
    };
    if !recorded.upstream_ids.is_empty() {
        let upstream = |table| Upstream::of_ids(table, &recorded.upstream_ids);
        scope = scope.with_upstream("reward", &upstream("rewards"), purposes)?;
        scope = scope.with_upstream("credit", &upstream("credits"), purposes)?;
    } else if recipe.kind() == Kind::Credit || recipe.reads("reward") {
        let kind = if recipe.reads("credit") { "credit" } else { "reward" };
        return Err(Error::invalid(format!("derivation {} names no {kind} that it was made from", recorded.name)));
    }
    let inputs = Inputs { bindings, scope, upstream_ids: recorded.upstream_ids.clone() };
    let mut running = Running::start(session, &recipe, &inputs).await?;
    while let Some((_, columns)) = running.next().await? {
        each(&RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(name, array)| (name, array, true)))?)?;
    }
    Ok(running.functions)
}

/// The recorded values as a caller would give them.
fn parameters(recipe: &Recipe, recorded: &Recorded) -> Result<BTreeMap<String, String>> {
    let read = || serde_json::from_str::<BTreeMap<String, Value>>(recorded.parameters.as_deref().unwrap_or("{}"));
    let values = read().map_err(|error| {
        Error::invalid(format!("the parameters of derivation {} are no JSON object: {error}", recorded.name))
    })?;
    let mut given = BTreeMap::new();
    for (name, value) in values {
        let is_expression =
            recipe.parameters().iter().any(|known| known.name == name && known.ty == ParameterType::Expression);
        given.insert(name, text(&value, is_expression));
    }
    if let Some(group_key) = &recorded.group_key {
        given.insert(GROUP_KEY.to_owned(), group_key.clone());
    }
    Ok(given)
}

fn text(value: &Value, is_expression: bool) -> String {
    match value {
        Value::String(text) if is_expression => text.clone(),
        // Quoted, so that a text such as null stays one.
        Value::String(text) => format!("'{}'", text.replace('\'', "''")),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recorded_parameters_are_given_as_they_were() {
        let recipe = Recipe::parse(
            "r",
            "-- @kind reward\n-- @param eps double = 1 : x\n-- @param verifier string = null : x\n\
             -- @param key expression = step : x\n-- @param on boolean = true : x\nSELECT 1",
        )
        .unwrap();
        let recorded = Recorded {
            parameters: Some(r#"{"eps":1e-6,"verifier":"it's","key":"group_id","on":null}"#.to_owned()),
            group_key: Some("task_id".to_owned()),
            ..Recorded::default()
        };
        let given = parameters(&recipe, &recorded).unwrap();
        let expected =
            [("eps", "1e-6"), ("group_key", "task_id"), ("key", "group_id"), ("on", "null"), ("verifier", "'it''s'")];
        assert_eq!(given, expected.map(|(name, value)| (name.to_owned(), value.to_owned())).into());
        let wrong = Recorded { parameters: Some("[1]".to_owned()), ..Recorded::default() };
        assert!(parameters(&recipe, &wrong).is_err());
    }
}
