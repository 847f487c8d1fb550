//! The rows of a reward or credit as they come: checked, counted, digested, and completed with what the recipe left out.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, ListArray, RecordBatch, StringArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float32Type, Float64Type, Int32Type};

use crate::error::{Error, Result};
use crate::recipe::columns::{OutputColumn, conform};
use crate::recipe::content::ContentDigest;
use crate::recipe::derive::{GROUP, OUTPUT_LEN, RUN, STEP};
use crate::recipe::scope::Part;
use crate::recipe::{Kind, Recipe};

/// Checks the rows of a derivation as they come, and turns them into columns of its table.
pub(super) struct Rows<'a> {
    recipe: &'a Recipe,
    output: Vec<OutputColumn>,
    hashed: Vec<&'static str>,
    pub(super) content: ContentDigest,
    last: Option<(Option<String>, String, Option<String>)>,
    quantity_and_level: Option<(String, String)>,
    without_value: BTreeMap<String, u64>,
}

impl<'a> Rows<'a> {
    pub(super) fn new(recipe: &'a Recipe, output: Vec<OutputColumn>) -> Self {
        let mut hashed = vec!["run_id", "step", "group_id"];
        hashed.extend(output.iter().map(|column| column.name).filter(|name| *name != "run_id"));
        if recipe.kind() == Kind::Credit {
            hashed.extend(["quantity", "level"]);
            hashed.dedup();
        }
        Self {
            recipe,
            output,
            hashed,
            content: ContentDigest::default(),
            last: None,
            quantity_and_level: None,
            without_value: BTreeMap::new(),
        }
    }

    /// Says where in the recipe an error lies that its rows met.
    pub(super) fn locate(&self, error: Error) -> Error {
        Part::Body.locate(self.recipe, error)
    }

    pub(super) fn columns(&mut self, batch: &RecordBatch) -> Result<BTreeMap<&'static str, ArrayRef>> {
        let mut columns: BTreeMap<&'static str, ArrayRef> = BTreeMap::new();
        for column in &self.output {
            if let Some(array) = conform(self.recipe.name(), batch, column)? {
                columns.insert(column.name, array);
            }
        }
        let given = |name: &str| {
            batch.column_by_name(name).cloned().ok_or_else(|| Error::corrupt(format!("the plan lost column {name}")))
        };
        columns.insert("step", cast(&given(STEP)?, &DataType::Int64)?);
        columns.insert("group_id", cast(&given(GROUP)?, &DataType::Utf8)?);
        if !columns.contains_key("run_id") {
            columns.insert("run_id", cast(&given(RUN)?, &DataType::Utf8)?);
        }
        self.check_keys(&columns)?;
        if self.recipe.kind() == Kind::Credit {
            self.check_credit(&mut columns, batch.num_rows())?;
            check_tokens(self.recipe.name(), batch, &columns)?;
        }
        self.count_missing(&columns);
        let hashed = RecordBatch::try_from_iter_with_nullable(
            columns.iter().map(|(name, array)| (*name, Arc::clone(array), true)),
        )?;
        self.content.add(&hashed, &self.hashed)?;
        Ok(columns)
    }

    /// Rows come in order, so that a key that occurs twice stands beside itself.
    fn check_keys(&mut self, columns: &BTreeMap<&'static str, ArrayRef>) -> Result<()> {
        let text = |name: &str, row: usize| {
            let array = columns.get(name)?.as_string::<i32>();
            array.is_valid(row).then(|| array.value(row).to_owned())
        };
        let rows = columns.get("rollout_id").map_or(0, Array::len);
        let recipe = self.recipe.name();
        for row in 0..rows {
            let Some(rollout) = text("rollout_id", row) else {
                return Err(Error::invalid(format!("recipe {recipe} returns a row whose rollout_id is null")));
            };
            let Some(run) = text("run_id", row) else {
                return Err(Error::invalid(format!(
                    "recipe {recipe} returns rollout {rollout} without a run: return run_id too"
                )));
            };
            let key = (Some(run), rollout, text("call_id", row));
            if self.last.as_ref() == Some(&key) {
                let call = key.2.map_or_else(String::new, |call| format!(" call {call}"));
                return Err(Error::invalid(format!(
                    "recipe {recipe} returns two rows for rollout {}{call}: it must return one",
                    key.1
                )));
            }
            self.last = Some(key);
        }
        Ok(())
    }

    /// One quantity and one level a derivation; they default to the advantage of a rollout.
    fn check_credit(&mut self, columns: &mut BTreeMap<&'static str, ArrayRef>, rows: usize) -> Result<()> {
        for (name, default) in [("quantity", "advantage"), ("level", "rollout")] {
            columns.entry(name).or_insert_with(|| Arc::new(StringArray::from(vec![default; rows])));
        }
        let recipe = self.recipe.name();
        for row in 0..rows {
            let text = |name: &str| {
                let array = columns.get(name).map(AsArray::as_string::<i32>);
                array.filter(|array| array.is_valid(row)).map(|array| array.value(row).to_owned())
            };
            let pair = (text("quantity").unwrap_or_default(), text("level").unwrap_or_default());
            let known = ["advantage", "return", "weight"].contains(&pair.0.as_str())
                && ["rollout", "call", "token"].contains(&pair.1.as_str());
            if !known {
                return Err(Error::invalid(format!(
                    "recipe {recipe} returns quantity `{}` and level `{}`; expected advantage, return or weight, and \
                     rollout, call or token",
                    pair.0, pair.1
                )));
            }
            if (pair.1 == "rollout") == text("call_id").is_some() {
                return Err(Error::invalid(format!(
                    "recipe {recipe} returns level {} {} call_id for rollout {}",
                    pair.1,
                    if pair.1 == "rollout" { "with a" } else { "without" },
                    text("rollout_id").unwrap_or_default()
                )));
            }
            let first = self.quantity_and_level.get_or_insert_with(|| pair.clone());
            if *first != pair {
                return Err(Error::invalid(format!(
                    "recipe {recipe} returns {} of level {} beside {} of level {}: a credit has one of each",
                    first.0, first.1, pair.0, pair.1
                )));
            }
        }
        Ok(())
    }

    fn count_missing(&mut self, columns: &BTreeMap<&'static str, ArrayRef>) {
        let Some(values) = columns.get("value") else {
            return;
        };
        let reasons = columns.get("exclusion_reason").map(AsArray::as_string::<i32>);
        let tokens = columns.get("token_values");
        for row in (0..values.len()).filter(|row| values.is_null(*row)) {
            if tokens.is_some_and(|tokens| tokens.is_valid(row)) {
                continue;
            }
            let reason = reasons.filter(|reasons| reasons.is_valid(row)).map_or("no reason", |r| r.value(row));
            *self.without_value.entry(reason.to_owned()).or_default() += 1;
        }
    }

    pub(super) fn notes(&self) -> Vec<String> {
        let total: u64 = self.without_value.values().sum();
        if total == 0 {
            return Vec::new();
        }
        if self.recipe.kind() == Kind::Credit {
            return vec![format!("{total} of {} rows have no value", self.content.rows())];
        }
        let reasons: Vec<_> = self.without_value.iter().map(|(reason, count)| format!("{reason}: {count}")).collect();
        vec![format!("{total} of {} rows have no value ({})", self.content.rows(), reasons.join(", "))]
    }
}

/// A credit of level token has a value for each output token of its call, one of another level none; a value that float
/// cannot hold is refused, where it was a number before.
fn check_tokens(recipe: &str, batch: &RecordBatch, columns: &BTreeMap<&'static str, ArrayRef>) -> Result<()> {
    let level = columns.get("level").map(AsArray::as_string::<i32>);
    let level = level.filter(|levels| !levels.is_empty()).map_or("rollout", |levels| levels.value(0));
    let Some(lists) = columns.get("token_values") else {
        if level == "token" && batch.num_rows() > 0 {
            return Err(Error::invalid(format!("recipe {recipe} returns level token without the column token_values")));
        }
        return Ok(());
    };
    let lists: &ListArray = lists.as_list();
    let lengths = batch.column_by_name(OUTPUT_LEN).map(|lengths| cast(lengths, &DataType::Int32)).transpose()?;
    let lengths = lengths.as_ref().map(AsArray::as_primitive::<Int32Type>);
    let place = |row: usize| {
        let text = |name: &str| {
            let array = columns.get(name).map(AsArray::as_string::<i32>);
            array.filter(|array| array.is_valid(row)).map_or("none", |array| array.value(row))
        };
        format!("rollout {}, call {}", text("rollout_id"), text("call_id"))
    };
    for row in (0..lists.len()).filter(|row| lists.is_valid(*row)) {
        if level != "token" {
            return Err(Error::invalid(format!(
                "recipe {recipe} returns token_values of level {level} for {}: they are of level token",
                place(row)
            )));
        }
        let count = lists.value_length(row);
        match lengths.filter(|lengths| lengths.is_valid(row)).map(|lengths| lengths.value(row)) {
            Some(length) if length == count => {}
            Some(length) => {
                return Err(Error::invalid(format!(
                    "recipe {recipe} returns {count} token_values for {}, which has {length} output tokens",
                    place(row)
                )));
            }
            None => {
                return Err(Error::invalid(format!(
                    "recipe {recipe} returns token_values for {}, whose output tokens are not known",
                    place(row)
                )));
            }
        }
    }
    match overflow(batch, lists) {
        Some(row) => Err(Error::invalid(format!(
            "recipe {recipe} returns a token value that is too large to be stored as float, for {}",
            place(row)
        ))),
        None => Ok(()),
    }
}

/// The first row with a finite double that became an infinite float.
fn overflow(batch: &RecordBatch, stored: &ListArray) -> Option<usize> {
    let given = batch.column_by_name("token_values")?.as_list_opt::<i32>()?;
    let doubles = given.values().as_primitive_opt::<Float64Type>()?;
    (0..stored.len().min(given.len())).filter(|row| given.is_valid(*row)).find(|row| {
        let (floats, place) = (stored.value(*row), given.value_offsets()[*row]);
        let floats = floats.as_primitive_opt::<Float32Type>();
        floats.is_some_and(|floats| {
            let place = usize::try_from(place).unwrap_or(0);
            (0..floats.len()).any(|item| {
                floats.is_valid(item) && floats.value(item).is_infinite() && doubles.value(place + item).is_finite()
            })
        })
    })
}
