//! Lists of values on the command line: one run of a recipe for each value, or for each combination of several lists.
//!
//! ```text
//! --param gamma=0.9,0.95,1                      double, long, boolean: a comma separates, since no value has one
//! --param verifier=tests --param verifier=judge any type: the parameter is given again
//! --param rollout_rs=token_k1,seq_max_k2        text, JSON and expressions hold commas of their own: one value
//! ```
//!
//! A result is named after the recipe and the values it was made with: `gae:gamma=0.9,lam=1`. A value that is no plain word
//! is named by its place in the list: `weighted_sum:weights=#2`.

use std::collections::BTreeMap;

use crate::error::{Error, Result};
use crate::recipe::Recipe;
use crate::recipe::parameter::{Bindings, ParameterType};

/// Most runs that one command makes.
const MOST: usize = 256;
/// Longest value that is named by itself.
const PLAIN_VALUE: usize = 32;

/// One run of a recipe out of several.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Variant {
    /// What follows the name of the result, such as `:gamma=0.9`; empty where no parameter is a list.
    pub suffix: String,
    /// Values of all given parameters.
    pub parameters: BTreeMap<String, String>,
    /// The parameters that are lists, with this run's values.
    pub listed: Vec<(String, String)>,
}

/// Lists the runs that some parameters ask for: every combination of their lists, the last parameter changing fastest.
///
/// # Errors
///
/// An unknown parameter, a value of another type, a value twice, more than 256 runs.
pub fn variants(recipe: &Recipe, given: &BTreeMap<String, Vec<String>>) -> Result<Vec<Variant>> {
    let mut variants = vec![Variant { suffix: String::new(), parameters: BTreeMap::new(), listed: Vec::new() }];
    for (name, texts) in given {
        let declared = recipe.parameters().iter().find(|parameter| &parameter.name == name);
        // An unknown one is refused below, with the list of those there are.
        let cut = |text: &String| declared.map_or_else(|| vec![text.clone()], |parameter| split(parameter.ty, text));
        let values: Vec<String> = texts.iter().flat_map(cut).collect();
        let wrong = |what: &str| Error::invalid(format!("recipe {}, parameter `{name}`: {what}", recipe.name()));
        if values.len() > 1 && values.iter().any(|value| value.trim().is_empty()) {
            return Err(wrong("a list has an empty value"));
        }
        if let Some((_, twice)) = values.iter().enumerate().find(|(at, value)| values[..*at].contains(value)) {
            return Err(wrong(&format!("the value {twice} is given twice")));
        }
        if variants.len() * values.len() > MOST {
            return Err(wrong(&format!("these lists ask for more than {MOST} runs")));
        }
        variants = variants
            .iter()
            .flat_map(|variant| {
                values.iter().enumerate().map(|(at, value)| {
                    let mut variant = variant.clone();
                    variant.parameters.insert(name.clone(), value.clone());
                    if values.len() > 1 {
                        let mark = if variant.suffix.is_empty() { ':' } else { ',' };
                        variant.suffix.push_str(&format!("{mark}{name}={}", shown(value, at)));
                        variant.listed.push((name.clone(), value.clone()));
                    }
                    variant
                })
            })
            .collect();
    }
    for variant in &variants {
        Bindings::new(recipe.name(), recipe.parameters(), &variant.parameters)?;
    }
    Ok(variants)
}

fn shown(value: &str, at: usize) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_.+-".contains(c);
    let plain = !value.is_empty() && value.len() <= PLAIN_VALUE && value.chars().all(is_plain);
    if plain { value.to_owned() } else { format!("#{}", at + 1) }
}

/// Cuts a text into values of a type.
fn split(ty: ParameterType, text: &str) -> Vec<String> {
    match ty {
        ParameterType::Double | ParameterType::Long | ParameterType::Boolean => {
            text.split(',').map(|value| value.trim().to_owned()).collect()
        }
        ParameterType::String | ParameterType::Json | ParameterType::Expression => vec![text.to_owned()],
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case(ParameterType::Double, "0.9, 0.95,1", &["0.9", "0.95", "1"])]
    #[case(ParameterType::Boolean, "true,false", &["true", "false"])]
    #[case(ParameterType::Long, "null,3", &["null", "3"])]
    #[case(ParameterType::String, "token_k1,seq_max_k2", &["token_k1,seq_max_k2"])]
    #[case(ParameterType::Json, r#"{"a": 1, "b": 2}"#, &[r#"{"a": 1, "b": 2}"#])]
    #[case(ParameterType::Expression, "concat(a, b)", &["concat(a, b)"])]
    fn a_list_is_cut_where_no_value_has_a_comma(
        #[case] ty: ParameterType,
        #[case] text: &str,
        #[case] expected: &[&str],
    ) {
        assert_eq!(split(ty, text), expected);
    }

    fn recipe() -> Recipe {
        let text = "-- @kind reward\n-- @param gamma double = 1\n-- @param lam double = 1\n-- @param weights json = {}\nSELECT 1";
        Recipe::parse("r", text).unwrap()
    }

    fn given(pairs: &[(&str, &str)]) -> BTreeMap<String, Vec<String>> {
        let mut given: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (name, value) in pairs {
            given.entry((*name).to_owned()).or_default().push((*value).to_owned());
        }
        given
    }

    #[test]
    fn lists_multiply_and_name_what_they_make() {
        let found = variants(
            &recipe(),
            &given(&[("gamma", "0.9,1"), ("lam", "0.5"), ("weights", r#"{"a":1}"#), ("weights", r#"{"b":2}"#)]),
        );
        let suffixes: Vec<String> = found.unwrap().into_iter().map(|variant| variant.suffix).collect();
        assert_eq!(
            suffixes,
            [":gamma=0.9,weights=#1", ":gamma=0.9,weights=#2", ":gamma=1,weights=#1", ":gamma=1,weights=#2"]
        );
        let one = variants(&recipe(), &given(&[("gamma", "0.9")])).unwrap();
        assert_eq!((one.len(), one[0].suffix.as_str()), (1, ""));
    }

    #[rstest]
    #[case(&[("gamma", "0.9,")], "empty value")]
    #[case(&[("gamma", "0.9,0.9")], "twice")]
    #[case(&[("gamma", "0.9,x")], "`x` is no double")]
    #[case(&[("gama", "0.9")], "has no parameter `gama`")]
    fn a_wrong_list_is_refused_before_anything_runs(#[case] pairs: &[(&str, &str)], #[case] expected: &str) {
        let message = variants(&recipe(), &given(pairs)).unwrap_err().to_string();
        assert!(message.contains(expected), "{message}");
    }

    #[test]
    fn too_many_runs_are_refused() {
        let values: Vec<String> = (0..17).map(|value| value.to_string()).collect();
        let list = values.join(",");
        let message = variants(&recipe(), &given(&[("gamma", &list), ("lam", &list)])).unwrap_err().to_string();
        assert!(message.contains("more than 256"), "{message}");
    }
}
