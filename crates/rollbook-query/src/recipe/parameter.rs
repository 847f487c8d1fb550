//! Parameters of a recipe: their types, and the values that stand for them in the SQL.

use std::collections::BTreeMap;

use datafusion::common::ScalarValue;

use crate::error::{Error, Result};
use crate::session::{PlanOptions, parse_expression};

/// The type a parameter's value must have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParameterType {
    /// A finite double.
    Double,
    /// A 64-bit integer.
    Long,
    /// true or false.
    Boolean,
    /// Text.
    String,
    /// JSON, handed to the recipe as text.
    Json,
    /// A SQL expression, put in as it is.
    Expression,
}

impl ParameterType {
    /// The types a header can name.
    pub(crate) const LIST: &'static str = "it is double, long, boolean, string, json or expression";

    /// Returns the word that headers use.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Double => "double",
            Self::Long => "long",
            Self::Boolean => "boolean",
            Self::String => "string",
            Self::Json => "json",
            Self::Expression => "expression",
        }
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        [Self::Double, Self::Long, Self::Boolean, Self::String, Self::Json, Self::Expression]
            .into_iter()
            .find(|ty| ty.as_str() == text)
    }
}

/// One declared parameter.
#[derive(Debug, Clone, PartialEq)]
pub struct Parameter {
    /// Name, without the `$` it has in the SQL.
    pub name: String,
    /// Type of its values.
    pub ty: ParameterType,
    /// Text of the default; `None` = the caller must give a value.
    pub default: Option<String>,
    /// What it does.
    pub doc: String,
}

/// A value that is put into the SQL.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Bound {
    /// A typed literal.
    Literal(ScalarValue),
    /// An expression.
    Expression(String),
}

impl Parameter {
    /// Reads a value's text as the parameter's type; `null` is no value of any type.
    pub(crate) fn value(&self, text: &str) -> Result<Bound, String> {
        let text = text.trim();
        let wrong = || format!("`{text}` is no {}", self.ty.as_str());
        let none = text.eq_ignore_ascii_case("null");
        Ok(Bound::Literal(match self.ty {
            ParameterType::Expression => {
                parse_expression(text).map_err(|error| format!("{}: {error}", wrong()))?;
                return Ok(Bound::Expression(text.to_owned()));
            }
            ParameterType::Double if none => ScalarValue::Float64(None),
            ParameterType::Long if none => ScalarValue::Int64(None),
            ParameterType::Boolean if none => ScalarValue::Boolean(None),
            ParameterType::String | ParameterType::Json if none => ScalarValue::Utf8(None),
            ParameterType::Double => {
                let value = text.parse::<f64>().ok().filter(|value| value.is_finite());
                ScalarValue::Float64(Some(value.ok_or_else(wrong)?))
            }
            ParameterType::Long => {
                ScalarValue::Int64(Some(text.parse().map_err(|error| format!("{}: {error}", wrong()))?))
            }
            ParameterType::Boolean => {
                ScalarValue::Boolean(Some(text.parse().map_err(|error| format!("{}: {error}", wrong()))?))
            }
            ParameterType::String => ScalarValue::Utf8(Some(unquote(text))),
            ParameterType::Json => {
                let json: serde_json::Value =
                    serde_json::from_str(&unquote(text)).map_err(|error| format!("{}: {error}", wrong()))?;
                ScalarValue::Utf8(Some(json.to_string()))
            }
        }))
    }
}

/// Takes the quotes of a SQL text literal away, where it has them: `'a'` and `a` are the same value.
fn unquote(text: &str) -> String {
    match text.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\'')) {
        Some(inner) => inner.replace("''", "'"),
        None => text.to_owned(),
    }
}

/// The values of all parameters of one run of a recipe.
#[derive(Debug, Clone, Default)]
pub(crate) struct Bindings {
    values: BTreeMap<String, Bound>,
}

/// The parameter that every recipe has: the expression over rollouts that names the group.
pub(crate) const GROUP_KEY: &str = "group_key";

impl Bindings {
    /// Binds each declared parameter to the given value or its default.
    pub(crate) fn new(recipe: &str, declared: &[Parameter], given: &BTreeMap<String, String>) -> Result<Self> {
        for name in given.keys() {
            if !declared.iter().any(|parameter| &parameter.name == name) {
                return Err(Error::invalid(format!("recipe {recipe} has no parameter `{name}`; {}", known(declared))));
            }
        }
        let mut values = BTreeMap::new();
        for parameter in declared {
            let text = given.get(&parameter.name).or(parameter.default.as_ref()).ok_or_else(|| {
                Error::invalid(format!(
                    "recipe {recipe} needs parameter `{}` ({}); {}",
                    parameter.name,
                    parameter.ty.as_str(),
                    known(declared)
                ))
            })?;
            let bound = parameter.value(text).map_err(|message| {
                Error::invalid(format!("recipe {recipe}, parameter `{}`: {message}", parameter.name))
            })?;
            values.insert(parameter.name.clone(), bound);
        }
        Ok(Self { values })
    }

    /// Adds a value that the engine gives.
    pub(crate) fn set(&mut self, name: &str, value: ScalarValue) {
        self.values.insert(name.to_owned(), Bound::Literal(value));
    }

    /// Returns the expression that names the group.
    pub(crate) fn group_key(&self) -> &str {
        match self.values.get(GROUP_KEY) {
            Some(Bound::Expression(text)) => text,
            _ => "group_id",
        }
    }

    /// Returns what the session needs to plan a recipe with these values.
    pub(crate) fn plan_options(&self) -> PlanOptions {
        let mut options = PlanOptions { deterministic: true, ..PlanOptions::default() };
        for (name, bound) in &self.values {
            let name = name.clone();
            match bound {
                Bound::Literal(value) => options.params.extend([(name, value.clone())]),
                Bound::Expression(text) => options.expressions.extend([(name, text.clone())]),
            }
        }
        options
    }

    /// Returns the values as one JSON object, in the order of their names, without the group key.
    pub(crate) fn to_json(&self) -> String {
        let values = self.values.iter().filter(|(name, _)| *name != GROUP_KEY);
        let object: serde_json::Map<_, _> = values.map(|(name, bound)| (name.clone(), json_value(bound))).collect();
        serde_json::Value::Object(object).to_string()
    }
}

fn json_value(bound: &Bound) -> serde_json::Value {
    match bound {
        Bound::Expression(text) | Bound::Literal(ScalarValue::Utf8(Some(text))) => text.as_str().into(),
        Bound::Literal(ScalarValue::Float64(Some(value))) => (*value).into(),
        Bound::Literal(ScalarValue::Int64(Some(value))) => (*value).into(),
        Bound::Literal(ScalarValue::Boolean(Some(value))) => (*value).into(),
        Bound::Literal(_) => serde_json::Value::Null,
    }
}

fn known(declared: &[Parameter]) -> String {
    if declared.is_empty() {
        return "it has none".to_owned();
    }
    let list: Vec<String> = declared
        .iter()
        .map(|parameter| match &parameter.default {
            Some(default) => format!("{} {} = {default}", parameter.name, parameter.ty.as_str()),
            None => format!("{} {}", parameter.name, parameter.ty.as_str()),
        })
        .collect();
    format!("its parameters are {}", list.join(", "))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn parameter(ty: ParameterType) -> Parameter {
        Parameter { name: "p".to_owned(), ty, default: None, doc: String::new() }
    }

    fn utf8(value: &str) -> ScalarValue {
        ScalarValue::Utf8(Some(value.to_owned()))
    }

    #[rstest]
    #[case(ParameterType::Double, "1e-6", ScalarValue::Float64(Some(0.000_001)))]
    #[case(ParameterType::Double, "0", ScalarValue::Float64(Some(0.0)))]
    #[case(ParameterType::Double, "null", ScalarValue::Float64(None))]
    #[case(ParameterType::Long, "-7", ScalarValue::Int64(Some(-7)))]
    #[case(ParameterType::Boolean, "true", ScalarValue::Boolean(Some(true)))]
    #[case(ParameterType::String, "it's", utf8("it's"))]
    #[case(ParameterType::String, "'it''s'", utf8("it's"))]
    #[case(ParameterType::String, "NULL", ScalarValue::Utf8(None))]
    #[case(ParameterType::Json, "{\"b\": 1, \"a\": 2}", utf8("{\"b\":1,\"a\":2}"))]
    fn a_value_becomes_a_typed_literal(#[case] ty: ParameterType, #[case] text: &str, #[case] value: ScalarValue) {
        assert_eq!(parameter(ty).value(text), Ok(Bound::Literal(value)));
    }

    #[rstest]
    #[case(ParameterType::Double, "x")]
    #[case(ParameterType::Double, "inf")]
    #[case(ParameterType::Long, "1.5")]
    #[case(ParameterType::Boolean, "yes")]
    #[case(ParameterType::Json, "{")]
    #[case(ParameterType::Expression, "a; DROP TABLE b")]
    #[case(ParameterType::Expression, "a b")]
    fn a_value_of_another_type_is_refused(#[case] ty: ParameterType, #[case] text: &str) {
        let message = parameter(ty).value(text).unwrap_err();
        assert!(message.contains(text), "{message}");
    }

    #[test]
    fn unknown_and_missing_parameters_list_the_known_ones() {
        let declared = [
            Parameter { default: Some("1e-6".to_owned()), ..parameter(ParameterType::Double) },
            Parameter { name: "weights".to_owned(), ..parameter(ParameterType::Json) },
        ];
        let given = |name: &str| BTreeMap::from([(name.to_owned(), "{}".to_owned())]);
        let unknown = Bindings::new("r", &declared, &given("wieghts")).unwrap_err().to_string();
        assert_eq!(unknown, "recipe r has no parameter `wieghts`; its parameters are p double = 1e-6, weights json");
        let missing = Bindings::new("r", &declared, &BTreeMap::new()).unwrap_err().to_string();
        assert!(missing.starts_with("recipe r needs parameter `weights` (json)"), "{missing}");
        let bound = Bindings::new("r", &declared, &given("weights")).unwrap();
        assert_eq!(bound.to_json(), r#"{"p":1e-6,"weights":"{}"}"#);
    }
}
