//! A growing column of any logical type.

use std::sync::Arc;

use arrow::array::builder::NullBufferBuilder;
use arrow::array::{
    ArrayRef, BooleanArray, Float32Array, Float64Array, Int32Array, Int64Array, ListArray, MapArray, StringArray,
    StructArray, TimestampMicrosecondArray, new_null_array,
};
use arrow::buffer::{OffsetBuffer, ScalarBuffer};
use arrow::datatypes::{DataType, Field, FieldRef, TimeUnit};
use arrow::error::ArrowError;

use crate::json::{Cursor, Fault, Parse, compact, is_json, quote};

use super::scalar;

/// The values of a column, without their validity.
enum Values {
    Text {
        ends: Vec<i32>,
        text: String,
        is_json: bool,
    },
    Int(Vec<i32>),
    Long(Vec<i64>),
    Time(Vec<i64>),
    Double(Vec<f64>),
    Float(Vec<f32>),
    Boolean(Vec<bool>),
    List {
        ends: Vec<i32>,
        item: Box<Column>,
    },
    Struct {
        children: Vec<Column>,
    },
    Map {
        ends: Vec<i32>,
        keys: Box<Column>,
        values: Box<Column>,
    },
    /// A type that no exchange file can fill.
    Null(usize),
}

/// A column that grows row by row and can be cut back.
pub(crate) struct Column {
    field: FieldRef,
    values: Values,
    validity: NullBufferBuilder,
}

/// Where offsets of 32 bits end; a batch is cut long before.
fn end_of(length: usize) -> Parse<i32> {
    i32::try_from(length).map_err(|_too_long| Fault::new("a value too long for one batch"))
}

fn last(ends: &[i32]) -> usize {
    ends.last().map_or(0, |&end| usize::try_from(end).unwrap_or_default())
}

#[expect(clippy::cast_possible_truncation, reason = "float columns hold what a double rounds to")]
fn narrow(value: f64) -> f32 {
    value as f32
}

impl Column {
    /// Makes an empty column; `is_json` says that its strings are JSON texts.
    pub(crate) fn new(field: &FieldRef, is_json: bool) -> Self {
        let child = |field: &FieldRef| Box::new(Self::new(field, false));
        let values = match field.data_type() {
            DataType::Utf8 => Values::Text { ends: Vec::new(), text: String::new(), is_json },
            DataType::Int32 => Values::Int(Vec::new()),
            DataType::Int64 => Values::Long(Vec::new()),
            DataType::Timestamp(TimeUnit::Microsecond, _) => Values::Time(Vec::new()),
            DataType::Float64 => Values::Double(Vec::new()),
            DataType::Float32 => Values::Float(Vec::new()),
            DataType::Boolean => Values::Boolean(Vec::new()),
            DataType::List(item) => Values::List { ends: Vec::new(), item: child(item) },
            DataType::Struct(fields) => {
                Values::Struct { children: fields.iter().map(|field| Self::new(field, false)).collect() }
            }
            DataType::Map(entries, _) => match entries.data_type() {
                DataType::Struct(parts) if parts.len() == 2 => {
                    Values::Map { ends: Vec::new(), keys: child(&parts[0]), values: child(&parts[1]) }
                }
                _ => Values::Null(0),
            },
            _ => Values::Null(0),
        };
        Self { field: Arc::clone(field), values, validity: NullBufferBuilder::new(0) }
    }

    pub(crate) fn name(&self) -> &str {
        self.field.name()
    }

    pub(crate) fn len(&self) -> usize {
        self.validity.len()
    }

    /// Appends the value at the cursor.
    pub(crate) fn read(&mut self, cursor: &mut Cursor<'_>) -> Parse<()> {
        if cursor.null()? {
            if !self.field.is_nullable() {
                return Err(Fault::new("null inside a list that cannot hold one"));
            }
            self.push_null();
            return Ok(());
        }
        match &mut self.values {
            Values::Text { ends, text, is_json } => {
                if *is_json {
                    read_json(cursor, text)?;
                } else {
                    text.push_str(&scalar::text(cursor)?);
                }
                ends.push(end_of(text.len())?);
            }
            Values::Int(values) => values.push(scalar::int(cursor)?),
            Values::Long(values) => values.push(scalar::long(cursor)?),
            Values::Time(values) => values.push(scalar::time(cursor)?),
            Values::Double(values) => values.push(scalar::double(cursor)?),
            Values::Float(values) => values.push(narrow(scalar::double(cursor)?)),
            Values::Boolean(values) => values.push(scalar::boolean(cursor)?),
            Values::List { ends, item } => {
                item.read_items(cursor)?;
                ends.push(end_of(item.len())?);
            }
            Values::Struct { children } => read_members(children, self.validity.len(), cursor)?,
            Values::Map { ends, keys, values } => {
                read_entries(keys, values, last(ends), cursor)?;
                ends.push(end_of(keys.len())?);
            }
            Values::Null(_) => {
                return Err(Fault::new("a column of a type that this format cannot fill"));
            }
        }
        self.validity.append_non_null();
        Ok(())
    }

    /// Appends the items of the array at the cursor to this column of items.
    fn read_items(&mut self, cursor: &mut Cursor<'_>) -> Parse<()> {
        if cursor.peek() != Some(b'[') {
            return Err(scalar::wrong(cursor, "an array"));
        }
        if let (Values::Int(values), false) = (&mut self.values, self.field.is_nullable()) {
            let before = values.len();
            cursor.ids(values, scalar::id)?;
            self.validity.append_n_non_nulls(values.len() - before);
            return Ok(());
        }
        cursor.array(|cursor, _| self.read(cursor))
    }

    /// Appends a null.
    pub(crate) fn push_null(&mut self) {
        match &mut self.values {
            Values::Text { ends, .. } | Values::List { ends, .. } | Values::Map { ends, .. } => {
                ends.push(ends.last().copied().unwrap_or_default());
            }
            Values::Int(values) => values.push(0),
            Values::Long(values) | Values::Time(values) => values.push(0),
            Values::Double(values) => values.push(0.0),
            Values::Float(values) => values.push(0.0),
            Values::Boolean(values) => values.push(false),
            Values::Struct { children } => children.iter_mut().for_each(Self::push_null),
            Values::Null(length) => *length += 1,
        }
        self.validity.append_null();
    }

    /// Appends a text to a column of strings.
    pub(crate) fn push_text(&mut self, value: &str) -> Parse<()> {
        let Values::Text { ends, text, .. } = &mut self.values else {
            return Err(Fault::new("a string where the column holds none"));
        };
        text.push_str(value);
        ends.push(end_of(text.len())?);
        self.validity.append_non_null();
        Ok(())
    }

    /// Appends a whole number to a column of integers, longs or times.
    pub(crate) fn push_long(&mut self, value: i64) -> Parse<()> {
        match &mut self.values {
            Values::Long(values) | Values::Time(values) => values.push(value),
            Values::Int(values) => values
                .push(i32::try_from(value).map_err(|_out_of_range| Fault::new(format!("{value} is outside int32")))?),
            _ => return Err(Fault::new("an integer where the column holds none")),
        }
        self.validity.append_non_null();
        Ok(())
    }

    /// Appends a boolean.
    pub(crate) fn push_boolean(&mut self, value: bool) -> Parse<()> {
        let Values::Boolean(values) = &mut self.values else {
            return Err(Fault::new("a boolean where the column holds none"));
        };
        values.push(value);
        self.validity.append_non_null();
        Ok(())
    }

    /// Appends a list of ids.
    pub(crate) fn push_ids(&mut self, ids: &[i32]) -> Parse<()> {
        let Values::List { ends, item } = &mut self.values else {
            return Err(Fault::new("a list where the column holds none"));
        };
        if let Values::Int(values) = &mut item.values {
            values.extend_from_slice(ids);
            item.validity.append_n_non_nulls(ids.len());
        }
        ends.push(end_of(item.len())?);
        self.validity.append_non_null();
        Ok(())
    }

    /// Appends a list of floats, null items included.
    pub(crate) fn push_floats(&mut self, floats: &[Option<f64>]) -> Parse<()> {
        let Values::List { ends, item } = &mut self.values else {
            return Err(Fault::new("a list where the column holds none"));
        };
        if let Values::Float(values) = &mut item.values {
            for float in floats {
                values.push(narrow(float.unwrap_or_default()));
                item.validity.append(float.is_some());
            }
        }
        ends.push(end_of(item.len())?);
        self.validity.append_non_null();
        Ok(())
    }

    /// Says whether a row is null.
    pub(crate) fn is_null(&self, row: usize) -> bool {
        !self.validity.is_valid(row)
    }

    /// Returns the text of a row, if it has one.
    pub(crate) fn text(&self, row: usize) -> Option<&str> {
        let Values::Text { ends, text, .. } = &self.values else {
            return None;
        };
        if self.is_null(row) { None } else { text.get(last(&ends[..row])..last(&ends[..=row])) }
    }

    /// Cuts the column back to its first rows, whatever a half read value left behind.
    pub(crate) fn truncate(&mut self, rows: usize) {
        match &mut self.values {
            Values::Text { ends, text, .. } => {
                ends.truncate(rows);
                text.truncate(last(ends));
            }
            Values::Int(values) => values.truncate(rows),
            Values::Long(values) | Values::Time(values) => values.truncate(rows),
            Values::Double(values) => values.truncate(rows),
            Values::Float(values) => values.truncate(rows),
            Values::Boolean(values) => values.truncate(rows),
            Values::List { ends, item } => {
                ends.truncate(rows);
                item.truncate(last(ends));
            }
            Values::Struct { children } => {
                for child in children {
                    child.truncate(rows);
                }
            }
            Values::Map { ends, keys, values } => {
                ends.truncate(rows);
                keys.truncate(last(ends));
                values.truncate(last(ends));
            }
            Values::Null(length) => *length = rows.min(*length),
        }
        self.validity.truncate(rows);
    }

    /// Returns the rows as an array and leaves the column empty.
    pub(crate) fn finish(&mut self) -> Result<ArrayRef, ArrowError> {
        let length = self.len();
        let nulls = self.validity.finish();
        Ok(match &mut self.values {
            Values::Text { ends, text, .. } => {
                let bytes = std::mem::take(text).into_bytes();
                Arc::new(StringArray::try_new(offsets(ends), bytes.into(), nulls)?)
            }
            Values::Int(values) => Arc::new(Int32Array::try_new(std::mem::take(values).into(), nulls)?),
            Values::Long(values) => Arc::new(Int64Array::try_new(std::mem::take(values).into(), nulls)?),
            Values::Time(values) => Arc::new(
                TimestampMicrosecondArray::try_new(std::mem::take(values).into(), nulls)?
                    .with_data_type(self.field.data_type().clone()),
            ),
            Values::Double(values) => Arc::new(Float64Array::try_new(std::mem::take(values).into(), nulls)?),
            Values::Float(values) => Arc::new(Float32Array::try_new(std::mem::take(values).into(), nulls)?),
            Values::Boolean(values) => Arc::new(BooleanArray::new(std::mem::take(values).into(), nulls)),
            Values::List { ends, item } => {
                let field = Arc::clone(&item.field);
                Arc::new(ListArray::try_new(field, offsets(ends), item.finish()?, nulls)?)
            }
            Values::Struct { children } => {
                let fields = children.iter().map(|child| Arc::clone(&child.field)).collect();
                let arrays = children.iter_mut().map(Self::finish).collect::<Result<Vec<_>, _>>()?;
                Arc::new(StructArray::try_new(fields, arrays, nulls)?)
            }
            Values::Map { ends, keys, values } => {
                let DataType::Map(entries, is_sorted) = self.field.data_type() else {
                    return Err(ArrowError::SchemaError("a map column of another type".to_owned()));
                };
                let fields = vec![Arc::clone(&keys.field), Arc::clone(&values.field)].into();
                let columns = vec![keys.finish()?, values.finish()?];
                let pairs = StructArray::try_new(fields, columns, None)?;
                Arc::new(MapArray::try_new(Arc::clone(entries), offsets(ends), pairs, nulls, *is_sorted)?)
            }
            Values::Null(count) => {
                *count = 0;
                new_null_array(self.field.data_type(), length)
            }
        })
    }
}

/// Turns the ends of rows into offsets, and leaves none.
fn offsets(ends: &mut Vec<i32>) -> OffsetBuffer<i32> {
    let mut offsets = Vec::with_capacity(ends.len() + 1);
    offsets.push(0);
    offsets.append(ends);
    OffsetBuffer::new(ScalarBuffer::from(offsets))
}

/// Reads a JSON column: a string is the JSON text itself, and where it is none, a document that is a string.
pub(crate) fn read_json(cursor: &mut Cursor<'_>, out: &mut String) -> Parse<()> {
    if cursor.peek() != Some(b'"') {
        compact(cursor.skip()?, out);
        return Ok(());
    }
    let text = cursor.string()?;
    if is_json(&text) {
        compact(text.trim(), out);
    } else {
        quote(&text, out);
    }
    Ok(())
}

fn read_members(children: &mut [Column], rows: usize, cursor: &mut Cursor<'_>) -> Parse<()> {
    if cursor.peek() != Some(b'{') {
        return Err(scalar::wrong(cursor, "an object"));
    }
    cursor.object(|cursor, key| {
        let Some(child) = children.iter_mut().find(|child| child.name() == key) else {
            return Err(Fault::new("a member that this struct does not have").at_key(&key));
        };
        if child.len() > rows {
            return Err(Fault::new("the key stands twice").at_key(&key));
        }
        child.read(cursor).map_err(|fault| fault.at_key(&key))
    })?;
    for child in children {
        if child.len() == rows {
            child.push_null();
        }
    }
    Ok(())
}

fn read_entries(keys: &mut Column, values: &mut Column, start: usize, cursor: &mut Cursor<'_>) -> Parse<()> {
    if cursor.peek() != Some(b'{') {
        return Err(scalar::wrong(cursor, "an object"));
    }
    cursor.object(|cursor, key| {
        if keys.has_text(start, &key) {
            return Err(Fault::new("the key stands twice").at_key(&key));
        }
        keys.push_text(&key)?;
        values.read(cursor).map_err(|fault| fault.at_key(&key))
    })
}

impl Column {
    /// Says whether one of the rows from `start` is this text.
    fn has_text(&self, start: usize, wanted: &str) -> bool {
        let Values::Text { ends, text, .. } = &self.values else {
            return false;
        };
        let mut from = last(&ends[..start]);
        ends[start..].iter().any(|&end| {
            let end = usize::try_from(end).unwrap_or_default();
            let is_same = text.get(from..end) == Some(wanted);
            from = end;
            is_same
        })
    }
}

/// A field like this one that can be null.
pub(crate) fn nullable(field: &FieldRef) -> FieldRef {
    if field.is_nullable() { Arc::clone(field) } else { Arc::new(Field::clone(field).with_nullable(true)) }
}
