//! Reading lists and structs of whatever item names, and writing lists of structs.

use std::ops::Range;
use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Int32Array, ListArray, StringArray, StructArray,
};
use datafusion::arrow::buffer::{BooleanBuffer, OffsetBuffer};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Field, Fields, Int32Type};
use datafusion::arrow::util::bit_iterator::BitSliceIterator;
use datafusion::common::{Result, exec_datafusion_err};

/// A list type with nullable items.
pub(super) fn list(item: DataType) -> DataType {
    DataType::List(Arc::new(Field::new("element", item, true)))
}

/// The fields of a struct, all nullable.
pub(super) fn fields(of: &[(&str, DataType)]) -> Fields {
    of.iter().map(|(name, kind)| Field::new(*name, kind.clone(), true)).collect()
}

/// Any struct: what stands in a signature for one whose fields are found by name.
pub(super) fn any_struct() -> DataType {
    DataType::Struct(Fields::empty())
}

/// The argument at a place.
pub(super) fn argument(arrays: &[ArrayRef], place: usize) -> Result<&ArrayRef> {
    arrays.get(place).ok_or_else(|| exec_datafusion_err!("argument {place} is missing"))
}

/// An argument as a list column.
pub(super) fn lists(arrays: &[ArrayRef], place: usize) -> Result<&ListArray> {
    argument(arrays, place)?.as_list_opt::<i32>().ok_or_else(|| exec_datafusion_err!("argument {place} is no list"))
}

/// An argument as integers.
pub(super) fn integers(arrays: &[ArrayRef], place: usize) -> Result<Int32Array> {
    Ok(cast(argument(arrays, place)?, &DataType::Int32)?.as_primitive::<Int32Type>().clone())
}

/// The list of a row, none where it is null.
pub(super) fn item(lists: &ListArray, row: usize) -> Option<ArrayRef> {
    lists.is_valid(row).then(|| lists.value(row))
}

/// The number of a row as an index, none where it is null or negative.
pub(super) fn index(values: &Int32Array, row: usize) -> Option<usize> {
    (row < values.len() && values.is_valid(row)).then(|| usize::try_from(values.value(row)).ok()).flatten()
}

/// A length as a column holds it.
pub(crate) fn int(n: usize) -> i32 {
    i32::try_from(n).unwrap_or(i32::MAX)
}

/// A struct's integers by name; all null where it has no such field.
pub(super) fn int_field(items: &StructArray, name: &str) -> Result<Int32Array> {
    match items.column_by_name(name) {
        Some(column) => Ok(cast(column, &DataType::Int32)?.as_primitive::<Int32Type>().clone()),
        None => Ok(Int32Array::new_null(items.len())),
    }
}

/// A struct's texts by name; all null where it has no such field.
pub(super) fn text_field(items: &StructArray, name: &str) -> Result<StringArray> {
    match items.column_by_name(name) {
        Some(column) => Ok(cast(column, &DataType::Utf8)?.as_string::<i32>().clone()),
        None => Ok(StringArray::new_null(items.len())),
    }
}

/// A struct's booleans by name; all null where it has no such field.
pub(super) fn bool_field(items: &StructArray, name: &str) -> Result<BooleanArray> {
    match items.column_by_name(name) {
        Some(column) => Ok(cast(column, &DataType::Boolean)?.as_boolean().clone()),
        None => Ok(BooleanArray::new_null(items.len())),
    }
}

/// The item as a struct array.
pub(super) fn structs(items: &ArrayRef) -> Result<&StructArray> {
    items
        .as_struct_opt()
        .ok_or_else(|| exec_datafusion_err!("a list of structs was expected, not {}", items.data_type()))
}

/// A mask's value; what lies beyond its end, and a null, is false.
pub(super) fn is_set(mask: &BooleanArray, at: usize) -> bool {
    at < mask.len() && mask.is_valid(at) && mask.value(at)
}

/// Whether the policy sampled an output token: a null mask means all.
pub(super) fn is_sampled(mask: Option<&BooleanArray>, at: usize) -> bool {
    mask.is_none_or(|mask| is_set(mask, at))
}

/// A row's mask.
pub(super) fn mask(lists: &ListArray, row: usize) -> Result<Option<BooleanArray>> {
    let Some(items) = item(lists, row) else {
        return Ok(None);
    };
    match items.as_boolean_opt() {
        Some(mask) => Ok(Some(mask.clone())),
        None => Ok(Some(cast(&items, &DataType::Boolean)?.as_boolean().clone())),
    }
}

/// The bits of a mask; a null is false.
pub(super) fn bits(mask: &BooleanArray) -> BooleanBuffer {
    match mask.nulls() {
        Some(nulls) => mask.values() & nulls.inner(),
        None => mask.values().clone(),
    }
}

/// Runs of true among some of the bits: where each starts, and its length.
pub(super) fn true_runs(bits: &BooleanBuffer, of: Range<usize>) -> impl Iterator<Item = (usize, usize)> + '_ {
    let Range { start, end } = of;
    let (start, end) = (start.min(bits.len()), end.min(bits.len()));
    let runs = BitSliceIterator::new(bits.values(), bits.offset() + start, end.saturating_sub(start));
    runs.map(move |(from, to)| (start + from, to - from))
}

/// Rows of structs: how many each row has, and their columns one after another.
pub(super) fn list_of_structs(lengths: Vec<usize>, fields: Fields, columns: Vec<ArrayRef>) -> Result<ArrayRef> {
    let items = StructArray::try_new(fields.clone(), columns, None)?;
    let field = Arc::new(Field::new("element", DataType::Struct(fields), true));
    Ok(Arc::new(ListArray::try_new(field, OffsetBuffer::from_lengths(lengths), Arc::new(items), None)?))
}
