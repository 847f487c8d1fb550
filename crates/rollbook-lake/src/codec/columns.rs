//! Columns of a batch by name, in the shapes the codec works on.

use std::ops::Range;

use arrow::array::{Array, ArrayRef, AsArray, Int32Array, ListArray, RecordBatch, StringArray};
use arrow::buffer::{NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int32Type};

use super::fault::{Fault, Result};

/// Lists of token ids, a slice a row.
#[derive(Debug)]
pub(super) struct Tokens {
    offsets: OffsetBuffer<i32>,
    values: ScalarBuffer<i32>,
    nulls: Option<NullBuffer>,
}

impl Tokens {
    /// Reads column `name`, none where the batch lacks it.
    pub(super) fn read(batch: &RecordBatch, name: &'static str) -> Result<Option<Self>> {
        let Some(column) = batch.column_by_name(name) else {
            return Ok(None);
        };
        if column.data_type() == &DataType::Null {
            return Ok(None);
        }
        let fault = || Fault::Type { name, found: column.data_type().clone() };
        let lists = column.as_list_opt::<i32>().ok_or_else(fault)?;
        let items = lists.values().as_primitive_opt::<Int32Type>().ok_or_else(fault)?;
        let tokens =
            Self { offsets: lists.offsets().clone(), values: items.values().clone(), nulls: lists.nulls().cloned() };
        if let Some(nulls) = items.nulls().filter(|nulls| nulls.null_count() > 0) {
            let holds_null = |range: Range<usize>| nulls.slice(range.start, range.len()).null_count() > 0;
            let row = (0..lists.len()).find(|row| lists.is_valid(*row) && holds_null(tokens.range(*row)));
            if let Some(row) = row {
                return Err(Fault::NullToken { name, row });
            }
        }
        Ok(Some(tokens))
    }

    /// The tokens of `row`, none where they are null.
    pub(super) fn get(&self, row: usize) -> Option<&[i32]> {
        let valid = self.nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row));
        valid.then(|| &self.values[self.range(row)])
    }

    /// The tokens of `row` as a share of the column's memory.
    pub(super) fn share(&self, row: usize) -> Option<ScalarBuffer<i32>> {
        let range = self.range(row);
        self.get(row).map(|_| self.values.slice(range.start, range.len()))
    }

    fn range(&self, row: usize) -> Range<usize> {
        // Arrow checks that offsets are neither negative nor falling.
        let at = |index: usize| usize::try_from(self.offsets[index]).unwrap_or(0);
        at(row)..at(row + 1)
    }
}

/// A column of strings, whatever its encoding.
pub(super) fn texts(batch: &RecordBatch, name: &'static str) -> Result<Option<StringArray>> {
    let Some(column) = batch.column_by_name(name) else {
        return Ok(None);
    };
    as_texts(column, name).map(Some)
}

fn as_texts(column: &ArrayRef, name: &'static str) -> Result<StringArray> {
    let fault = || Fault::Type { name, found: column.data_type().clone() };
    if let Some(texts) = column.as_string_opt::<i32>() {
        return Ok(texts.clone());
    }
    match column.data_type() {
        DataType::Utf8View | DataType::LargeUtf8 | DataType::Dictionary(_, _) | DataType::Null => {
            let column = cast(column, &DataType::Utf8)?;
            column.as_string_opt::<i32>().cloned().ok_or_else(fault)
        }
        _ => Err(fault()),
    }
}

/// A column of lists of strings: the lists and their items.
pub(super) fn text_lists(batch: &RecordBatch, name: &'static str) -> Result<Option<(ListArray, StringArray)>> {
    let Some(column) = batch.column_by_name(name) else {
        return Ok(None);
    };
    if column.data_type() == &DataType::Null {
        return Ok(None);
    }
    let fault = || Fault::Type { name, found: column.data_type().clone() };
    let lists = column.as_list_opt::<i32>().ok_or_else(fault)?;
    Ok(Some((lists.clone(), as_texts(lists.values(), name)?)))
}

/// A column of integers.
pub(super) fn integers(batch: &RecordBatch, name: &'static str) -> Result<Option<Int32Array>> {
    let Some(column) = batch.column_by_name(name) else {
        return Ok(None);
    };
    if column.data_type() == &DataType::Null {
        return Ok(None);
    }
    let integers = column.as_primitive_opt::<Int32Type>();
    integers.cloned().map(Some).ok_or_else(|| Fault::Type { name, found: column.data_type().clone() })
}

/// Fails where `column` is missing.
pub(super) fn required<T>(column: Option<T>, name: &'static str) -> Result<T> {
    column.ok_or(Fault::Missing(name))
}

/// The text in `row`.
pub(super) fn text_at(column: Option<&StringArray>, row: usize) -> Option<&str> {
    column.filter(|texts| texts.is_valid(row)).map(|texts| texts.value(row))
}

/// The integer in `row`.
pub(super) fn integer_at(column: Option<&Int32Array>, row: usize) -> Option<i32> {
    column.filter(|integers| integers.is_valid(row)).map(|integers| integers.value(row))
}
