//! A record batch in the making: columns by name, checked against the schema at the end.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, Float64Array, Int32Array, Int64Array, ListArray, RecordBatch, StringArray,
    TimestampMicrosecondArray, new_null_array,
};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{DataType, Field, FieldRef, Schema};
use rollbook_schema::Table;

use super::Columns;
use crate::{Error, ErrorKind, Result};

pub(super) fn invalid(error: arrow::error::ArrowError) -> Error {
    Error::new(ErrorKind::Invalid, "the generator does not fit the schema").because(error)
}

/// A batch in the making.
pub(super) struct Batch {
    table: &'static Table,
    columns: BTreeMap<&'static str, ArrayRef>,
}

impl Batch {
    pub(super) fn new(name: &str) -> Result<Self> {
        let table = rollbook_schema::table(name)
            .ok_or_else(|| Error::new(ErrorKind::Invalid, format!("the schema has no table {name}")))?;
        Ok(Self { table, columns: BTreeMap::new() })
    }

    pub(super) fn put(&mut self, name: &'static str, array: ArrayRef) {
        self.columns.insert(name, array);
    }

    pub(super) fn texts<T: AsRef<str>>(&mut self, name: &'static str, values: impl IntoIterator<Item = T>) {
        self.put(name, Arc::new(values.into_iter().map(Some).collect::<StringArray>()));
    }

    pub(super) fn ints(&mut self, name: &'static str, values: impl IntoIterator<Item = i32>) {
        self.put(name, Arc::new(Int32Array::from(values.into_iter().collect::<Vec<i32>>())));
    }

    pub(super) fn longs(&mut self, name: &'static str, values: impl IntoIterator<Item = i64>) {
        self.put(name, Arc::new(Int64Array::from(values.into_iter().collect::<Vec<i64>>())));
    }

    pub(super) fn doubles(&mut self, name: &'static str, values: impl IntoIterator<Item = f64>) {
        self.put(name, Arc::new(Float64Array::from(values.into_iter().collect::<Vec<f64>>())));
    }

    pub(super) fn times(&mut self, name: &'static str, values: impl IntoIterator<Item = i64>) {
        let values = TimestampMicrosecondArray::from(values.into_iter().collect::<Vec<i64>>());
        self.put(name, Arc::new(values.with_timezone("UTC")));
    }

    pub(super) fn lists(
        &mut self,
        name: &'static str,
        lengths: impl Iterator<Item = usize>,
        values: ArrayRef,
    ) -> Result<()> {
        let list = ListArray::try_new(self.item(name)?, OffsetBuffer::from_lengths(lengths), values, None);
        self.put(name, Arc::new(list.map_err(invalid)?));
        Ok(())
    }

    /// The item field of a list column.
    pub(super) fn item(&self, name: &str) -> Result<FieldRef> {
        match self.table.logical().field_with_name(name).map(Field::data_type) {
            Ok(DataType::List(item)) => Ok(Arc::clone(item)),
            _ => Err(Error::new(ErrorKind::Invalid, format!("{name} is no list column"))),
        }
    }

    pub(super) fn finish(self, columns: Columns) -> Result<RecordBatch> {
        let schema = self.table.logical();
        if let Some(unknown) = self.columns.keys().find(|name| schema.field_with_name(name).is_err()) {
            return Err(Error::new(ErrorKind::Invalid, format!("{} has no column {unknown}", self.table.name)));
        }
        let rows = self.columns.values().next().map_or(0, Array::len);
        let (mut fields, mut arrays) = (Vec::new(), Vec::new());
        for field in schema.fields() {
            match self.columns.get(field.name().as_str()) {
                Some(array) => arrays.push(Arc::clone(array)),
                None if columns == Columns::All => {
                    arrays.push(new_null_array(field.data_type(), rows));
                }
                None => continue,
            }
            fields.push(Arc::clone(field));
        }
        RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays).map_err(invalid)
    }
}
