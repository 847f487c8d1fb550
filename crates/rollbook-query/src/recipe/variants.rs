//! Lists of values on the command line: one run of a recipe for each value, or for each combination of several lists.
//!
//! ```text
//! double, long, boolean    0.9,0.95,1                 a comma separates
//! string                   a,b\,c,'d,e'               three: a comma in a value is written \, or the value is quoted as in SQL
//! json                     {"a": 1},{"a": [1, 2]}     two: a comma within brackets or quotes separates nothing
//! expression               group_id,concat(a, b)      two: likewise
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
pub fn variants(recipe: &Recipe, given: &BTreeMap<String, String>) -> Result<Vec<Variant>> {
    let mut variants = vec![Variant { suffix: String::new(), parameters: BTreeMap::new(), listed: Vec::new() }];
    for (name, text) in given {
        let declared = recipe.parameters().iter().find(|parameter| &parameter.name == name);
        // An unknown one is refused below, with the list of those there are.
        let values = declared.map_or_else(|| vec![text.clone()], |parameter| split(parameter.ty, text));
        let wrong = |what: &str| Error::invalid(format!("recipe {}, parameter `{name}`: {what}", recipe.name()));
        if values.len() > 1 && values.iter().any(|value| value.trim().is_empty()) {
            return Err(wrong(&format!("the list {text} has an empty value")));
        }
        if let Some(twice) = values.iter().enumerate().find(|(at, value)| values[..*at].contains(value)) {
            return Err(wrong(&format!("the list {text} has the value {} twice", twice.1)));
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
        ParameterType::String => split_strings(text),
        ParameterType::Json => split_nested(text, &['"']),
        ParameterType::Expression => split_nested(text, &['\'', '"']),
    }
}

fn split_strings(text: &str) -> Vec<String> {
    let mut values = vec![String::new()];
    let mut quoted = false;
    let mut characters = text.chars().peekable();
    while let Some(c) = characters.next() {
        let Some(value) = values.last_mut() else {
            break;
        };
        match c {
            // Only a value that begins with a quote is quoted: it's is a word.
            '\'' if quoted || value.trim().is_empty() => {
                quoted = !quoted;
                value.push(c);
            }
            // The second of two quotes within a quoted value.
            '\'' if value.ends_with('\'') && value.trim_start().starts_with('\'') => {
                quoted = true;
                value.push(c);
            }
            '\\' if !quoted && characters.peek() == Some(&',') => {
                characters.next();
                value.push(',');
            }
            ',' if !quoted => values.push(String::new()),
            other => value.push(other),
        }
    }
    values.into_iter().map(|value| value.trim().to_owned()).collect()
}

fn split_nested(text: &str, quotes: &[char]) -> Vec<String> {
    let mut values = vec![String::new()];
    let (mut depth, mut quote, mut escaped) = (0_usize, None, false);
    for c in text.chars() {
        let ends = c == ',' && depth == 0 && quote.is_none();
        if ends {
            values.push(String::new());
            continue;
        }
        match (c, quote) {
            (_, Some(open)) => {
                if c == open && !escaped {
                    quote = None;
                }
                // Only JSON has the backslash; in SQL a doubled quote closes and opens again.
                escaped = c == '\\' && !escaped && quotes.len() == 1;
            }
            (c, None) if quotes.contains(&c) => quote = Some(c),
            ('(' | '[' | '{', None) => depth += 1,
            (')' | ']' | '}', None) => depth = depth.saturating_sub(1),
            _ => {}
        }
        if let Some(value) = values.last_mut() {
            value.push(c);
        }
    }
    values.into_iter().map(|value| value.trim().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case(ParameterType::Double, "0.9, 0.95,1", &["0.9", "0.95", "1"])]
    #[case(ParameterType::Boolean, "true,false", &["true", "false"])]
    #[case(ParameterType::Long, "null,3", &["null", "3"])]
    #[case(ParameterType::String, r"a,b\,c,'d,e'", &["a", "b,c", "'d,e'"])]
    #[case(ParameterType::String, "it's,'it''s, ok',x", &["it's", "'it''s, ok'", "x"])]
    #[case(ParameterType::String, r"\d+\w", &[r"\d+\w"])]
    #[case(ParameterType::Json, r#"{"a": 1, "b": [2, 3]},{"a": "x,\",y"}"#, &[r#"{"a": 1, "b": [2, 3]}"#, r#"{"a": "x,\",y"}"#])]
    #[case(ParameterType::Json, "[1, 2]", &["[1, 2]"])]
    #[case(ParameterType::Expression, "group_id,concat(a, ',b')", &["group_id", "concat(a, ',b')"])]
    #[case(ParameterType::Expression, "'it''s, so',b", &["'it''s, so'", "b"])]
    fn a_list_is_cut_where_its_type_allows(#[case] ty: ParameterType, #[case] text: &str, #[case] expected: &[&str]) {
        assert_eq!(split(ty, text), expected);
    }

    fn recipe() -> Recipe {
        let text = "-- @kind reward\n-- @param gamma double = 1\n-- @param lam double = 1\n-- @param weights json = {}\nSELECT 1";
        Recipe::parse("r", text).unwrap()
    }

    fn given(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn lists_multiply_and_name_what_they_make() {
        let found =
            variants(&recipe(), &given(&[("gamma", "0.9,1"), ("lam", "0.5"), ("weights", r#"{"a":1},{"b":2}"#)]));
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
