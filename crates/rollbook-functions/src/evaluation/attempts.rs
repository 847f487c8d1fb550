//! The attempts of one group, each once.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, ListArray, StringArray};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion_common::{Result, ScalarValue, exec_err, internal_err};
use datafusion_expr::Accumulator;

use super::udaf::Answer;

/// Attempts by their id, and what is to be made of them.
#[derive(Debug)]
pub(super) struct Attempts {
    function: &'static str,
    answer: Answer,
    known: BTreeMap<String, bool>,
    /// Bytes of the ids.
    held: usize,
}

/// Returns the fields of a partial result: ids, and which of them are successes.
pub(super) fn state_fields(name: &str) -> Vec<FieldRef> {
    let list = |item| DataType::List(Arc::new(Field::new("element", item, false)));
    vec![
        Arc::new(Field::new(format!("{name}[ids]"), list(DataType::Utf8), false)),
        Arc::new(Field::new(format!("{name}[successes]"), list(DataType::Boolean), false)),
    ]
}

impl Attempts {
    pub(super) fn new(function: &'static str, answer: Answer) -> Self {
        Self { function, answer, known: BTreeMap::new(), held: 0 }
    }

    fn add(&mut self, successes: &BooleanArray, ids: &StringArray) -> Result<()> {
        for row in 0..ids.len() {
            if ids.is_null(row) {
                return exec_err!("{}: a rollout_id is null", self.function);
            }
            if successes.is_null(row) {
                continue;
            }
            let (id, success) = (ids.value(row), successes.value(row));
            match self.known.get(id) {
                Some(known) if *known == success => {}
                Some(_) => {
                    return exec_err!("{}: rollout {id:?} is a success in one row and none in another", self.function);
                }
                None => {
                    self.held += id.len();
                    self.known.insert(id.to_owned(), success);
                }
            }
        }
        Ok(())
    }
}

impl Accumulator for Attempts {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let [successes, ids, ..] = values else {
            return internal_err!("{} over {} columns", self.function, values.len());
        };
        match (successes.as_boolean_opt(), ids.as_string_opt::<i32>()) {
            (Some(successes), Some(ids)) => self.add(successes, ids),
            _ => internal_err!("{} over {} and {}", self.function, successes.data_type(), ids.data_type()),
        }
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let successes = self.known.values().filter(|success| **success).count();
        Ok(self.answer.of(self.known.len(), successes))
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.held + self.known.len() * (size_of::<String>() + size_of::<bool>() + 8)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let ids: StringArray = self.known.keys().map(Some).collect();
        let successes: BooleanArray = self.known.values().map(|success| Some(*success)).collect();
        Ok(vec![one_list(Arc::new(ids))?, one_list(Arc::new(successes))?])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let [ids, successes] = states else {
            return internal_err!("{}: a partial result of {} columns", self.function, states.len());
        };
        let (ids, successes) = (ids.as_list::<i32>(), successes.as_list::<i32>());
        for row in 0..ids.len() {
            self.add(successes.value(row).as_boolean(), ids.value(row).as_string::<i32>())?;
        }
        Ok(())
    }
}

fn one_list(items: ArrayRef) -> Result<ScalarValue> {
    let field = Field::new("element", items.data_type().clone(), false);
    let offsets = OffsetBuffer::from_lengths([items.len()]);
    Ok(ScalarValue::List(Arc::new(ListArray::try_new(Arc::new(field), offsets, items, None)?)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evaluation::estimate::Question;

    fn part(rows: &[(Option<bool>, &str)]) -> Result<Attempts> {
        let mut attempts = Attempts::new("pass_at_k", Answer::Estimate { question: Question::Any, k: 1 });
        let successes: BooleanArray = rows.iter().map(|row| row.0).collect();
        let ids: StringArray = rows.iter().map(|row| Some(row.1)).collect();
        attempts.update_batch(&[Arc::new(successes), Arc::new(ids)])?;
        Ok(attempts)
    }

    #[test]
    fn parts_merge_to_the_same_and_a_rollout_counts_once() {
        let mut first = part(&[(Some(true), "a"), (Some(false), "b"), (None, "c")]).unwrap();
        let mut second = part(&[(Some(true), "a"), (Some(false), "d"), (Some(false), "e")]).unwrap();
        let mut merged = part(&[]).unwrap();
        for part in [&mut first, &mut second] {
            let states: Vec<ArrayRef> = part.state().unwrap().iter().map(|state| state.to_array().unwrap()).collect();
            merged.merge_batch(&states).unwrap();
        }
        assert_eq!(merged.evaluate().unwrap(), ScalarValue::from(0.25));
        assert!(merged.size() > 4);
    }

    #[test]
    fn a_rollout_that_is_both_is_named() {
        let error = part(&[(Some(true), "a"), (Some(false), "a")]).unwrap_err().to_string();
        assert!(error.contains("rollout \"a\" is a success in one row and none in another"), "{error}");
    }
}
