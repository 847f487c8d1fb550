//! A canonical digest of a row, so that rows can be compared without keeping them.
//!
//! ```text
//! value      bytes
//! null       00
//! scalar     01 ‖ little-endian bytes        (floats: their bits, so NaN equals itself)
//! text       01 ‖ length u64 ‖ bytes
//! list, map  01 ‖ length u64 ‖ items in order
//! struct     01 ‖ fields in order
//! ```

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, GenericListArray, MapArray, OffsetSizeTrait, RecordBatch, StructArray,
};
use arrow::datatypes::{
    DataType, Date32Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
    TimestampMicrosecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use sha2::{Digest, Sha256};

use crate::error::{Error, Result};

/// Digests the named columns of each row, in the order given; a column the batch lacks counts as null.
pub fn row_digests(batch: &RecordBatch, columns: &[&str]) -> Result<Vec<[u8; 32]>> {
    let arrays: Vec<Option<&ArrayRef>> = columns.iter().map(|name| batch.column_by_name(name)).collect();
    (0..batch.num_rows())
        .map(|row| {
            let mut hasher = Sha256::new();
            for array in &arrays {
                match array {
                    Some(array) => put(&mut hasher, array.as_ref(), row)?,
                    None => hasher.update([0]),
                }
            }
            Ok(hasher.finalize().into())
        })
        .collect()
}

fn put(hasher: &mut Sha256, array: &dyn Array, row: usize) -> Result<()> {
    if array.is_null(row) || array.data_type() == &DataType::Null {
        hasher.update([0]);
        return Ok(());
    }
    hasher.update([1]);
    match array.data_type() {
        DataType::Boolean => put_boolean(hasher, array.as_boolean(), row),
        DataType::Int8 => hasher.update(array.as_primitive::<Int8Type>().value(row).to_le_bytes()),
        DataType::Int16 => hasher.update(array.as_primitive::<Int16Type>().value(row).to_le_bytes()),
        DataType::Int32 => hasher.update(array.as_primitive::<Int32Type>().value(row).to_le_bytes()),
        DataType::Int64 => hasher.update(array.as_primitive::<Int64Type>().value(row).to_le_bytes()),
        DataType::UInt8 => hasher.update(array.as_primitive::<UInt8Type>().value(row).to_le_bytes()),
        DataType::UInt16 => hasher.update(array.as_primitive::<UInt16Type>().value(row).to_le_bytes()),
        DataType::UInt32 => hasher.update(array.as_primitive::<UInt32Type>().value(row).to_le_bytes()),
        DataType::UInt64 => hasher.update(array.as_primitive::<UInt64Type>().value(row).to_le_bytes()),
        DataType::Float32 => hasher.update(array.as_primitive::<Float32Type>().value(row).to_bits().to_le_bytes()),
        DataType::Float64 => hasher.update(array.as_primitive::<Float64Type>().value(row).to_bits().to_le_bytes()),
        DataType::Date32 => hasher.update(array.as_primitive::<Date32Type>().value(row).to_le_bytes()),
        DataType::Timestamp(arrow::datatypes::TimeUnit::Microsecond, _) => {
            hasher.update(array.as_primitive::<TimestampMicrosecondType>().value(row).to_le_bytes());
        }
        DataType::Utf8 => put_text(hasher, array.as_string::<i32>().value(row)),
        DataType::LargeUtf8 => put_text(hasher, array.as_string::<i64>().value(row)),
        DataType::Utf8View => put_text(hasher, array.as_string_view().value(row)),
        DataType::List(_) => put_list(hasher, array.as_list::<i32>(), row)?,
        DataType::LargeList(_) => put_list(hasher, array.as_list::<i64>(), row)?,
        DataType::Struct(_) => put_struct(hasher, array.as_struct(), row)?,
        DataType::Map(_, _) => put_map(hasher, array.as_map(), row)?,
        other => {
            return Err(Error::unsupported(format!("a column of type {other} cannot be digested")));
        }
    }
    Ok(())
}

fn put_boolean(hasher: &mut Sha256, array: &BooleanArray, row: usize) {
    hasher.update([u8::from(array.value(row))]);
}

fn put_text(hasher: &mut Sha256, text: &str) {
    hasher.update((text.len() as u64).to_le_bytes());
    hasher.update(text.as_bytes());
}

fn put_items(hasher: &mut Sha256, items: &dyn Array) -> Result<()> {
    hasher.update((items.len() as u64).to_le_bytes());
    // Token lists are most of all bytes: without nulls they go in as one block.
    match items.data_type() {
        DataType::Int32 if items.null_count() == 0 => {
            hasher.update(items.as_primitive::<Int32Type>().values().inner().as_slice());
        }
        DataType::Float32 if items.null_count() == 0 => {
            hasher.update([2]);
            hasher.update(items.as_primitive::<Float32Type>().values().inner().as_slice());
        }
        DataType::Boolean => put_each(hasher, items.as_boolean(), |value| [u8::from(value)]),
        DataType::Int32 => put_each(hasher, items.as_primitive::<Int32Type>(), i32::to_le_bytes),
        DataType::Float32 => put_each(hasher, items.as_primitive::<Float32Type>(), f32::to_le_bytes),
        DataType::Float64 => put_each(hasher, items.as_primitive::<Float64Type>(), f64::to_le_bytes),
        _ => {
            for item in 0..items.len() {
                put(hasher, items, item)?;
            }
        }
    }
    Ok(())
}

/// The same bytes as of item after item, in one block.
fn put_each<V, const N: usize>(
    hasher: &mut Sha256,
    items: impl IntoIterator<Item = Option<V>>,
    bytes: fn(V) -> [u8; N],
) {
    let mut block = Vec::new();
    for item in items {
        match item {
            Some(value) => {
                block.push(1);
                block.extend(bytes(value));
            }
            None => block.push(0),
        }
    }
    hasher.update(block);
}

fn put_list<O: OffsetSizeTrait>(hasher: &mut Sha256, array: &GenericListArray<O>, row: usize) -> Result<()> {
    put_items(hasher, array.value(row).as_ref())
}

fn put_struct(hasher: &mut Sha256, array: &StructArray, row: usize) -> Result<()> {
    for column in array.columns() {
        put(hasher, column.as_ref(), row)?;
    }
    Ok(())
}

fn put_map(hasher: &mut Sha256, array: &MapArray, row: usize) -> Result<()> {
    let entries = array.value(row);
    hasher.update((entries.len() as u64).to_le_bytes());
    for entry in 0..entries.len() {
        put_struct(hasher, &entries, entry)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{BooleanArray, Float64Array, Int32Array, ListArray, RecordBatch, StringArray};
    use arrow::buffer::OffsetBuffer;
    use arrow::datatypes::{DataType, Field, Float32Type, Float64Type, Int32Type};
    use sha2::{Digest, Sha256};

    use super::row_digests;

    #[test]
    fn equal_rows_have_equal_digests_whatever_slice_they_lie_in() {
        let lists = ListArray::from_iter_primitive::<Int32Type, _, _>([
            Some(vec![Some(1), Some(2)]),
            None,
            Some(vec![Some(1), Some(2)]),
            Some(vec![Some(1), None]),
        ]);
        let batch = RecordBatch::try_from_iter([
            ("id", Arc::new(StringArray::from(vec!["a", "a", "a", "a"])) as _),
            ("tokens", Arc::new(lists) as _),
            ("value", Arc::new(Float64Array::from(vec![f64::NAN; 4])) as _),
        ])
        .unwrap();
        let digests = row_digests(&batch, &["id", "tokens", "value"]).unwrap();
        assert_eq!(digests[0], digests[2]);
        assert_ne!(digests[0], digests[1]);
        assert_ne!(digests[0], digests[3]);
        assert_eq!(row_digests(&batch.slice(2, 1), &["id", "tokens", "value"]).unwrap()[0], digests[0]);
    }

    #[test]
    fn lists_are_digested_as_item_after_item() {
        let masks = ListArray::new(
            Arc::new(Field::new("item", DataType::Boolean, true)),
            OffsetBuffer::from_lengths([3]),
            Arc::new(BooleanArray::from(vec![Some(true), None, Some(false)])),
            None,
        );
        let floats = ListArray::from_iter_primitive::<Float64Type, _, _>([Some(vec![Some(-0.5), None])]);
        let single = ListArray::from_iter_primitive::<Float32Type, _, _>([Some(vec![None, Some(1.0)])]);
        let whole = ListArray::from_iter_primitive::<Float32Type, _, _>([Some(vec![Some(1.0)])]);
        for (lists, expected) in [
            (masks, [&[1, 3, 0, 0, 0, 0, 0, 0, 0][..], &[1, 1], &[0], &[1, 0]].concat()),
            (floats, [&[1, 2, 0, 0, 0, 0, 0, 0, 0][..], &[1], &(-0.5_f64).to_le_bytes(), &[0]].concat()),
            (single, [&[1, 2, 0, 0, 0, 0, 0, 0, 0][..], &[0], &[1], &1.0_f32.to_le_bytes()].concat()),
            (whole, [&[1, 1, 0, 0, 0, 0, 0, 0, 0][..], &[2], &1.0_f32.to_le_bytes()].concat()),
        ] {
            let batch = RecordBatch::try_from_iter([("list", Arc::new(lists) as _)]).unwrap();
            let expected: [u8; 32] = Sha256::digest(expected).into();
            assert_eq!(row_digests(&batch, &["list"]).unwrap(), [expected]);
        }
    }

    #[test]
    fn null_zero_and_a_missing_column_are_told_apart_from_values() {
        let batch = RecordBatch::try_from_iter([("n", Arc::new(Int32Array::from(vec![Some(0), None])) as _)]).unwrap();
        let digests = row_digests(&batch, &["n"]).unwrap();
        assert_ne!(digests[0], digests[1]);
        assert_eq!(row_digests(&batch, &["absent"]).unwrap()[0], digests[1]);
    }
}
