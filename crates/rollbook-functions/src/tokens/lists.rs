//! Lists of tokens as slices of their Arrow buffers.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int32Array};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::datatypes::{DataType, Field, Int32Type};
use datafusion_common::{Result, ScalarValue, exec_err, internal_err};
use datafusion_expr::ColumnarValue;

use crate::argument::wrong_type;
use crate::function::Function;

/// Returns the type that a list of tokens is read as.
pub(crate) fn token_list_type(function: &Function, position: usize, given: &DataType) -> Result<DataType> {
    let cast = |value: &DataType| value.is_integer() || value.is_null();
    let list = || DataType::List(Arc::new(Field::new_list_field(DataType::Int32, true)));
    match given {
        DataType::List(item) | DataType::LargeList(item) if item.data_type() == &DataType::Int32 => Ok(given.clone()),
        DataType::LargeList(item) if cast(item.data_type()) => {
            Ok(DataType::LargeList(Arc::new(Field::new_list_field(DataType::Int32, true))))
        }
        DataType::List(item) | DataType::FixedSizeList(item, _) if cast(item.data_type()) => Ok(list()),
        DataType::Null => Ok(list()),
        other => wrong_type(function, position, "a list of token ids", other),
    }
}

/// Offsets of either list type.
enum Offsets {
    Narrow(OffsetBuffer<i32>),
    Wide(OffsetBuffer<i64>),
}

/// One argument: a list for each row, or one list for all.
pub(crate) struct TokenLists {
    offsets: Offsets,
    tokens: Int32Array,
    nulls: Option<NullBuffer>,
    /// Whether the first list stands for every row.
    is_scalar: bool,
}

impl TokenLists {
    /// Reads an argument; nothing is copied.
    pub(crate) fn of(argument: &ColumnarValue) -> Result<Self> {
        let (array, is_scalar): (ArrayRef, bool) = match argument {
            ColumnarValue::Array(array) => (Arc::clone(array), false),
            ColumnarValue::Scalar(scalar) => (scalar.to_array()?, true),
        };
        let (offsets, values) = match array.data_type() {
            DataType::List(_) => {
                let list = array.as_list::<i32>();
                (Offsets::Narrow(list.offsets().clone()), list.values())
            }
            DataType::LargeList(_) => {
                let list = array.as_list::<i64>();
                (Offsets::Wide(list.offsets().clone()), list.values())
            }
            other => return internal_err!("a token list of type {other}"),
        };
        let Some(tokens) = values.as_primitive_opt::<Int32Type>() else {
            return internal_err!("a token list of {}", values.data_type());
        };
        Ok(Self { offsets, tokens: tokens.clone(), nulls: array.nulls().cloned(), is_scalar })
    }

    /// Returns the tokens of a row; `None` where the list is null. A null within the list is an error.
    pub(crate) fn row(&self, row: usize) -> Result<Option<&[i32]>> {
        let row = if self.is_scalar { 0 } else { row };
        if self.nulls.as_ref().is_some_and(|nulls| nulls.is_null(row)) {
            return Ok(None);
        }
        let range = match &self.offsets {
            Offsets::Narrow(offsets) => bound(offsets.get(row))..bound(offsets.get(row + 1)),
            Offsets::Wide(offsets) => bound(offsets.get(row))..bound(offsets.get(row + 1)),
        };
        if let Some(nulls) = self.tokens.nulls().filter(|nulls| nulls.null_count() > 0)
            && let Some(position) = range.clone().position(|at| nulls.is_null(at))
        {
            return exec_err!("a token list holds a null at position {position}");
        }
        let Some(tokens) = self.tokens.values().get(range) else {
            return internal_err!("row {row} lies outside its list");
        };
        Ok(Some(tokens))
    }
}

fn bound<T: Copy + TryInto<usize>>(offset: Option<&T>) -> usize {
    offset.and_then(|offset| (*offset).try_into().ok()).unwrap_or(0)
}

/// Returns the result of a call: one value where every argument was one.
pub(crate) fn result(array: ArrayRef, arguments: &[ColumnarValue]) -> Result<ColumnarValue> {
    let all_scalar = arguments.iter().all(|argument| matches!(argument, ColumnarValue::Scalar(_)));
    if all_scalar && array.len() == 1 {
        return Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&array, 0)?));
    }
    Ok(ColumnarValue::Array(array))
}

/// Returns how many rows a call has to answer for: one where every argument is one value.
pub(crate) fn rows(number_rows: usize, arguments: &[ColumnarValue]) -> usize {
    let all_scalar = arguments.iter().all(|argument| matches!(argument, ColumnarValue::Scalar(_)));
    if all_scalar { 1 } else { number_rows }
}
