//! Arrow columns of any lossless encoding become columns of the logical types.
//!
//! | logical | takes |
//! |---|---|
//! | integer, long | any integer type that fits, floats and decimals that are whole |
//! | double, float | floats, decimals (to the nearest), integers that a double holds exactly, the words NaN and Infinity |
//! | boolean | booleans, 0 and 1 |
//! | string | any string, UTF-8 bytes, numbers and booleans as text |
//! | JSON | strings that are JSON text, any other value as its JSON |
//! | timestamp | timestamps with a zone, RFC 3339 strings, integer microseconds |
//! | array | List, `LargeList`, `FixedSizeList`, `ListView`, `LargeListView` |
//! | struct, map | by member name; a map also from a struct of numbers |
//!
//! Dictionaries and run-ends are unpacked first. What does not convert is a fault of its row.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Float64Array, Int64Array, StringArray, TimestampMicrosecondArray,
    new_null_array,
};
use arrow::compute::{CastOptions, cast, cast_with_options};
use arrow::datatypes::{DataType, Field, Float64Type, Int64Type, TimeUnit};
use arrow::error::ArrowError;
use arrow::json::writer::{LineDelimited, WriterBuilder};
use arrow::record_batch::RecordBatch;

use crate::json::{Fault, compact, is_json, quote};
use crate::row::{float_of_word, integral, microseconds};

use super::nested::{lists, maps, structs};

/// The faults of an array by its element.
#[derive(Default)]
pub(super) struct Faults(pub(super) Vec<(usize, Fault)>);

impl Faults {
    pub(super) fn add(&mut self, at: usize, reason: impl Into<String>) {
        self.0.push((at, Fault::new(reason)));
    }

    /// Lifts the faults of list items to the lists that hold them.
    pub(super) fn lift(&mut self, items: Self, offsets: &[i32]) {
        for (at, fault) in items.0 {
            let start = |row: usize| usize::try_from(offsets[row]).unwrap_or_default();
            let row = offsets.partition_point(|&offset| usize::try_from(offset).unwrap_or_default() <= at) - 1;
            if self.0.last().is_none_or(|(last, _)| *last != row) {
                self.0.push((row, fault.at_index(at - start(row))));
            }
        }
    }
}

/// Converts an array to the type of a logical field; elements that cannot be are null and a fault.
pub(super) fn convert(
    array: &ArrayRef,
    field: &Field,
    is_json: bool,
    faults: &mut Faults,
) -> Result<ArrayRef, ArrowError> {
    let array = &unpacked(array)?;
    if array.data_type() == &DataType::Null {
        return Ok(new_null_array(field.data_type(), array.len()));
    }
    if is_json {
        return json_column(array, faults);
    }
    match field.data_type() {
        DataType::Int32 | DataType::Int64 => integers(array, field.data_type(), faults),
        DataType::Float64 | DataType::Float32 => floats(array, field.data_type(), faults),
        DataType::Boolean => booleans(array, faults),
        DataType::Utf8 => strings(array, faults),
        DataType::Timestamp(TimeUnit::Microsecond, _) => times(array, field.data_type(), faults),
        DataType::List(item) => lists(array, item, faults),
        DataType::Struct(_) => structs(array, field, faults),
        DataType::Map(entries, is_sorted) => maps(array, entries, *is_sorted, faults),
        other => Ok(wrong_type(array, other, "a value", faults)),
    }
}

pub(super) fn unpacked(array: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    match array.data_type() {
        DataType::Dictionary(_, values) => cast(array, values),
        DataType::RunEndEncoded(_, values) => cast(array, values.data_type()),
        DataType::ListView(item) => cast(array, &DataType::List(Arc::clone(item))),
        DataType::LargeListView(item) => cast(array, &DataType::LargeList(Arc::clone(item))),
        _ => Ok(Arc::clone(array)),
    }
}

/// Every element is of the wrong type: all null, and a fault where there was a value.
pub(super) fn wrong_type(array: &ArrayRef, target: &DataType, expected: &str, faults: &mut Faults) -> ArrayRef {
    for at in (0..array.len()).filter(|&at| array.is_valid(at)) {
        faults.add(at, format!("{} where {expected} is expected", array.data_type()));
    }
    new_null_array(target, array.len())
}

/// Casts with kernels of Arrow; what becomes null is a fault.
fn checked(array: &ArrayRef, target: &DataType, reason: &str, faults: &mut Faults) -> Result<ArrayRef, ArrowError> {
    if array.data_type() == target {
        return Ok(Arc::clone(array));
    }
    let out = cast_with_options(array, target, &CastOptions { safe: true, ..CastOptions::default() })?;
    if out.logical_null_count() != array.logical_null_count() {
        for at in (0..array.len()).filter(|&at| out.is_null(at) && array.is_valid(at)) {
            faults.add(at, reason);
        }
    }
    Ok(out)
}

fn integers(array: &ArrayRef, target: &DataType, faults: &mut Faults) -> Result<ArrayRef, ArrowError> {
    let reason = if target == &DataType::Int32 { "an integer outside int32" } else { "an integer outside int64" };
    if array.data_type().is_integer() {
        return checked(array, target, reason, faults);
    }
    if array.data_type().is_decimal() {
        let whole = decimals(array, faults, |text| {
            let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
            fraction.bytes().all(|digit| digit == b'0').then(|| whole.parse::<i64>().ok())?
        })?;
        let whole: ArrayRef = Arc::new(Int64Array::from(whole));
        return checked(&whole, target, reason, faults);
    }
    if !array.data_type().is_floating() {
        return Ok(wrong_type(array, target, "an integer", faults));
    }
    let wide = cast(array, &DataType::Float64)?;
    let mut values = Vec::with_capacity(wide.len());
    for (at, value) in wide.as_primitive::<Float64Type>().iter().enumerate() {
        let whole = value.and_then(integral);
        if let (Some(value), None) = (value, whole) {
            faults.add(at, format!("{value} is no integer"));
        }
        values.push(whole);
    }
    let whole: ArrayRef = Arc::new(Int64Array::from(values));
    checked(&whole, target, reason, faults)
}

pub(super) fn floats(array: &ArrayRef, target: &DataType, faults: &mut Faults) -> Result<ArrayRef, ArrowError> {
    if array.data_type().is_floating() {
        return cast(array, target);
    }
    if array.data_type().is_integer() {
        let wide = checked(array, &DataType::Int64, "an integer outside double", faults)?;
        for (at, value) in wide.as_primitive::<Int64Type>().iter().enumerate() {
            if value.is_some_and(|value| value.unsigned_abs() > 1 << 53) {
                faults.add(at, "an integer that a double does not hold exactly");
            }
        }
        return cast(&wide, target);
    }
    if array.data_type().is_decimal() {
        let values = decimals(array, faults, |text| text.parse::<f64>().ok())?;
        let wide: ArrayRef = Arc::new(Float64Array::from(values));
        return cast(&wide, target);
    }
    let Some(texts) = as_strings(array, faults)? else {
        return Ok(wrong_type(array, target, "a number", faults));
    };
    let mut values = Vec::with_capacity(texts.len());
    for (at, text) in texts.as_string::<i32>().iter().enumerate() {
        let value = text.and_then(float_of_word);
        if text.is_some() && value.is_none() {
            faults.add(at, "a string where a number is expected");
        }
        values.push(value);
    }
    let wide: ArrayRef = Arc::new(Float64Array::from(values));
    cast(&wide, target)
}

/// Reads decimals from their digits: casts between numbers would round what the digits say. Every decimal is a double, so
/// one that cannot be read is no integer.
fn decimals<T>(
    array: &ArrayRef,
    faults: &mut Faults,
    read: impl Fn(&str) -> Option<T>,
) -> Result<Vec<Option<T>>, ArrowError> {
    let texts = cast(array, &DataType::Utf8)?;
    let mut values = Vec::with_capacity(texts.len());
    for (at, text) in texts.as_string::<i32>().iter().enumerate() {
        let value = text.and_then(&read);
        if let (Some(text), None) = (text, &value) {
            faults.add(at, format!("{text} is no integer"));
        }
        values.push(value);
    }
    Ok(values)
}

fn booleans(array: &ArrayRef, faults: &mut Faults) -> Result<ArrayRef, ArrowError> {
    if array.data_type() == &DataType::Boolean {
        return Ok(Arc::clone(array));
    }
    if !array.data_type().is_integer() && !array.data_type().is_floating() {
        return Ok(wrong_type(array, &DataType::Boolean, "a boolean", faults));
    }
    let bits = integers(array, &DataType::Int64, faults)?;
    let mut values = Vec::with_capacity(bits.len());
    for (at, bit) in bits.as_primitive::<Int64Type>().iter().enumerate() {
        values.push(match bit {
            Some(0) => Some(false),
            Some(1) => Some(true),
            Some(other) => {
                faults.add(at, format!("{other} is no boolean"));
                None
            }
            None => None,
        });
    }
    Ok(Arc::new(BooleanArray::from(values)))
}

/// Returns any kind of string, or bytes that are one, as plain strings.
fn as_strings(array: &ArrayRef, faults: &mut Faults) -> Result<Option<ArrayRef>, ArrowError> {
    let is_string = matches!(
        array.data_type(),
        DataType::Utf8
            | DataType::LargeUtf8
            | DataType::Utf8View
            | DataType::Binary
            | DataType::LargeBinary
            | DataType::BinaryView
    );
    if is_string { checked(array, &DataType::Utf8, "bytes that are not UTF-8", faults).map(Some) } else { Ok(None) }
}

fn strings(array: &ArrayRef, faults: &mut Faults) -> Result<ArrayRef, ArrowError> {
    if let Some(texts) = as_strings(array, faults)? {
        return Ok(texts);
    }
    let kind = array.data_type();
    if kind.is_integer() || kind.is_floating() || kind.is_decimal() || kind == &DataType::Boolean {
        return cast(array, &DataType::Utf8);
    }
    Ok(wrong_type(array, &DataType::Utf8, "a string", faults))
}

fn times(array: &ArrayRef, target: &DataType, faults: &mut Faults) -> Result<ArrayRef, ArrowError> {
    match array.data_type() {
        DataType::Timestamp(_, Some(_)) => {
            return checked(array, target, "a time out of range", faults);
        }
        DataType::Timestamp(_, None) => {
            return Ok(wrong_type(array, target, "a time with a zone", faults));
        }
        kind if kind.is_integer() => {
            let whole = checked(array, &DataType::Int64, "an integer outside int64", faults)?;
            return cast(&whole, target);
        }
        _ => {}
    }
    let Some(texts) = as_strings(array, faults)? else {
        return Ok(wrong_type(array, target, "a time", faults));
    };
    let mut values = Vec::with_capacity(texts.len());
    for (at, text) in texts.as_string::<i32>().iter().enumerate() {
        let value = text.and_then(microseconds);
        if text.is_some() && value.is_none() {
            faults.add(at, "a string that is no RFC 3339 time with a zone");
        }
        values.push(value);
    }
    Ok(Arc::new(TimestampMicrosecondArray::from(values).with_data_type(target.clone())))
}

/// A JSON column: strings are JSON text, or documents that are strings; other values are written as JSON.
fn json_column(array: &ArrayRef, faults: &mut Faults) -> Result<ArrayRef, ArrowError> {
    let given = as_strings(array, faults)?;
    let texts: StringArray = if let Some(given) = given {
        given.as_string::<i32>().iter().map(|text| text.map(document)).collect()
    } else {
        let texts = json_texts(array)?;
        texts.into_iter().enumerate().map(|(at, text)| array.is_valid(at).then_some(text)).collect()
    };
    Ok(Arc::new(texts))
}

fn document(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    if is_json(text) {
        compact(text.trim(), &mut out);
    } else {
        quote(text, &mut out);
    }
    out
}

/// Writes every element as JSON text, null as `null`.
pub(super) fn json_texts(array: &ArrayRef) -> Result<Vec<String>, ArrowError> {
    const NAME: &str = "v";
    let batch = RecordBatch::try_from_iter_with_nullable([(NAME, Arc::clone(array), true)])?;
    let mut writer = WriterBuilder::new().with_explicit_nulls(true).build::<_, LineDelimited>(Vec::new());
    writer.write(&batch)?;
    writer.finish()?;
    let lines = String::from_utf8(writer.into_inner()).map_err(|error| ArrowError::ParseError(error.to_string()))?;
    let texts: Vec<_> = lines
        .lines()
        .map(|line| line.strip_prefix("{\"v\":").and_then(|rest| rest.strip_suffix('}')).unwrap_or("null").to_owned())
        .collect();
    if texts.len() == array.len() {
        Ok(texts)
    } else {
        Err(ArrowError::JsonError("a value that is no JSON".to_owned()))
    }
}
