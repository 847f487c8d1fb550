//! The signals of a call, token by token.

use std::collections::BTreeMap;

use datafusion::arrow::array::{
    Array, AsArray, Float64Builder, ListArray, MapBuilder, StringArray, StringBuilder, StructArray,
};
use datafusion::arrow::datatypes::Float64Type;
use datafusion::common::Result;

use super::chunk::{field, item, value_at};

/// The signals of one call.
pub(super) struct Signals {
    names: StringArray,
    values: ListArray,
}

impl Signals {
    /// Reads the list of a call.
    pub(super) fn read(signals: &StructArray) -> Result<Self> {
        Ok(Self {
            names: field(signals, "name")?.as_string::<i32>().clone(),
            values: field(signals, "values")?.as_list::<i32>().clone(),
        })
    }

    /// Adds the entries of one token; of two signals of one name the later stands.
    pub(super) fn append(&self, at: usize, out: &mut MapBuilder<StringBuilder, Float64Builder>) {
        let mut entries = BTreeMap::new();
        for index in 0..self.names.len() {
            if self.names.is_null(index) {
                continue;
            }
            let values = item(&self.values, index);
            let values = values.as_ref().map(AsArray::as_primitive::<Float64Type>);
            if let Some(values) = values.filter(|values| at < values.len()) {
                entries.insert(self.names.value(index), value_at(values, at));
            }
        }
        for (name, value) in entries {
            out.keys().append_value(name);
            out.values().append_option(value);
        }
    }
}
