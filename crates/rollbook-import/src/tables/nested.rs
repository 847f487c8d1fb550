//! Lists, structs and maps, converted part by part.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, Float64Array, ListArray, MapArray, StringArray, StructArray, make_array, new_null_array,
};
use arrow::buffer::{OffsetBuffer, ScalarBuffer};
use arrow::datatypes::{DataType, Field, FieldRef, Float64Type};
use arrow::error::ArrowError;

use crate::json::Fault;

use super::convert::{Faults, convert, floats, unpacked, wrong_type};

/// A list of any kind, as 32-bit offsets into its items.
fn parts(array: &ArrayRef) -> Result<Option<(Vec<i32>, ArrayRef)>, ArrowError> {
    let too_long = |_source| ArrowError::ComputeError("lists of more than 2^31 items in one batch".to_owned());
    Ok(Some(match array.data_type() {
        DataType::List(_) => {
            let list = array.as_list::<i32>();
            let first = list.value_offsets()[0];
            let ends = list.value_offsets().iter().map(|offset| offset - first).collect::<Vec<_>>();
            let (from, length) = (first, ends.last().copied().unwrap_or_default());
            let from = usize::try_from(from).map_err(too_long)?;
            (ends, list.values().slice(from, usize::try_from(length).map_err(too_long)?))
        }
        DataType::LargeList(_) => {
            let list = array.as_list::<i64>();
            let first = list.value_offsets()[0];
            let ends = list.value_offsets().iter().map(|offset| i32::try_from(offset - first));
            let ends = ends.collect::<Result<Vec<_>, _>>().map_err(too_long)?;
            let length = usize::try_from(ends.last().copied().unwrap_or_default()).map_err(too_long)?;
            (ends, list.values().slice(usize::try_from(first).map_err(too_long)?, length))
        }
        DataType::FixedSizeList(_, width) => {
            let list = array.as_fixed_size_list();
            let rows = i32::try_from(list.len()).map_err(too_long)?;
            let ends = (0..=rows).map(|row| row * width).collect();
            (ends, Arc::clone(list.values()))
        }
        _ => return Ok(None),
    }))
}

/// Converts lists of any offset width, their items included.
pub(super) fn lists(array: &ArrayRef, item: &FieldRef, faults: &mut Faults) -> Result<ArrayRef, ArrowError> {
    let target = DataType::List(Arc::clone(item));
    let Some((offsets, items)) = parts(array)? else {
        return Ok(wrong_type(array, &target, "an array", faults));
    };
    let mut item_faults = Faults::default();
    let mut values = convert(&items, item, false, &mut item_faults)?;
    if !item.is_nullable() && values.null_count() > 0 {
        if item_faults.0.is_empty() {
            for at in (0..items.len()).filter(|&at| items.is_null(at)) {
                item_faults.add(at, "null inside a list that cannot hold one");
            }
        }
        // The nulls lie in rows that are rejected or null themselves; the type just cannot say so.
        values = make_array(values.to_data().into_builder().nulls(None).build()?);
    }
    let mut row_faults = Faults::default();
    row_faults.lift(item_faults, &offsets);
    faults.0.extend(row_faults.0.into_iter().filter(|(row, _)| array.is_valid(*row)));
    let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
    Ok(Arc::new(ListArray::try_new(Arc::clone(item), offsets, values, array.nulls().cloned())?))
}

/// Converts structs member by member.
pub(super) fn structs(array: &ArrayRef, field: &Field, faults: &mut Faults) -> Result<ArrayRef, ArrowError> {
    let (DataType::Struct(fields), Some(source)) = (field.data_type(), array.as_struct_opt()) else {
        return Ok(wrong_type(array, field.data_type(), "a struct", faults));
    };
    for name in source.column_names() {
        if fields.find(name).is_none() {
            for at in (0..array.len()).filter(|&at| array.is_valid(at)) {
                faults.0.push((at, Fault::new("a member that this struct does not have").at_key(name)));
            }
        }
    }
    let mut children = Vec::with_capacity(fields.len());
    for member in fields {
        let Some(child) = source.column_by_name(member.name()) else {
            children.push(new_null_array(member.data_type(), array.len()));
            continue;
        };
        let mut below = Faults::default();
        children.push(convert(child, member, false, &mut below)?);
        let lifted = below.0.into_iter().map(|(at, fault)| (at, fault.at_key(member.name())));
        faults.0.extend(lifted.filter(|(at, _)| array.is_valid(*at)));
    }
    Ok(Arc::new(StructArray::try_new(fields.clone(), children, array.nulls().cloned())?))
}

/// Converts maps, and structs of numbers, to maps.
pub(super) fn maps(
    array: &ArrayRef,
    entries: &FieldRef,
    is_sorted: bool,
    faults: &mut Faults,
) -> Result<ArrayRef, ArrowError> {
    let target = DataType::Map(Arc::clone(entries), is_sorted);
    let DataType::Struct(pair) = entries.data_type() else {
        return Ok(wrong_type(array, &target, "a map", faults));
    };
    let (offsets, keys, values) = match array.data_type() {
        DataType::Map(_, _) => {
            let map = array.as_map();
            (map.value_offsets().to_vec(), Arc::clone(map.keys()), Arc::clone(map.values()))
        }
        DataType::Struct(_) => return struct_to_map(array, entries, is_sorted, faults),
        _ => return Ok(wrong_type(array, &target, "a map", faults)),
    };
    let first = offsets.first().copied().unwrap_or_default();
    let offsets: Vec<_> = offsets.iter().map(|offset| offset - first).collect();
    let from = usize::try_from(first).unwrap_or_default();
    let length = usize::try_from(offsets.last().copied().unwrap_or_default()).unwrap_or_default();
    let mut below = Faults::default();
    let keys = convert(&keys.slice(from, length), &pair[0], false, &mut below)?;
    let values = convert(&values.slice(from, length), &pair[1], false, &mut below)?;
    let mut lifted = Faults::default();
    lifted.lift(below, &offsets);
    faults.0.extend(lifted.0);
    let pairs = StructArray::try_new(pair.clone(), vec![keys, values], None)?;
    let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
    Ok(Arc::new(MapArray::try_new(Arc::clone(entries), offsets, pairs, array.nulls().cloned(), is_sorted)?))
}

/// A struct of numbers, as data frames write dictionaries: its null members are no entries.
fn struct_to_map(
    array: &ArrayRef,
    entries: &FieldRef,
    is_sorted: bool,
    faults: &mut Faults,
) -> Result<ArrayRef, ArrowError> {
    let source = array.as_struct();
    let mut columns = Vec::new();
    for (name, child) in source.column_names().into_iter().zip(source.columns()) {
        let mut below = Faults::default();
        columns.push((name, floats(&unpacked(child)?, &DataType::Float64, &mut below)?));
        let lifted = below.0.into_iter().map(|(at, fault)| (at, fault.at_key(name)));
        faults.0.extend(lifted.filter(|(at, _)| array.is_valid(*at)));
    }
    let mut ends = vec![0_i32];
    let (mut keys, mut values) = (Vec::new(), Vec::new());
    for row in 0..array.len() {
        for (name, column) in columns.iter().filter(|(_, column)| array.is_valid(row) && column.is_valid(row)) {
            keys.push(*name);
            values.push(column.as_primitive::<Float64Type>().value(row));
        }
        ends.push(i32::try_from(keys.len()).unwrap_or(i32::MAX));
    }
    let DataType::Struct(pair) = entries.data_type() else {
        return Err(ArrowError::SchemaError("a map without entries".to_owned()));
    };
    let arrays: Vec<ArrayRef> = vec![Arc::new(StringArray::from(keys)), Arc::new(Float64Array::from(values))];
    let pairs = StructArray::try_new(pair.clone(), arrays, None)?;
    let offsets = OffsetBuffer::new(ScalarBuffer::from(ends));
    Ok(Arc::new(MapArray::try_new(Arc::clone(entries), offsets, pairs, array.nulls().cloned(), is_sorted)?))
}
