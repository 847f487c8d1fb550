//! The columns the encoder writes, gathered row by row, and the batch they go into.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, Int32Array, ListArray, ListBuilder, RecordBatch, RecordBatchOptions, StringArray, StringBuilder,
};
use arrow::buffer::{NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};

use super::fault::{Fault, Result};
use super::rollout::{Call, Delta};

/// The schema of calls as stored, or an empty one where the format has no such table.
pub(super) fn stored_schema() -> SchemaRef {
    rollbook_schema::table("calls").map_or_else(|| Arc::new(Schema::empty()), rollbook_schema::Table::physical)
}

/// The schema of calls as shown.
pub(super) fn shown_schema() -> SchemaRef {
    rollbook_schema::table("calls").map_or_else(|| Arc::new(Schema::empty()), rollbook_schema::Table::logical)
}

/// The item field of list column `name`.
pub(super) fn item_field(schema: &Schema, name: &str, item: DataType) -> FieldRef {
    match schema.field_with_name(name).map(Field::data_type) {
        Ok(DataType::List(field)) if field.data_type() == &item => Arc::clone(field),
        _ => Arc::new(Field::new("element", item, false)),
    }
}

/// Collects how rows are stored.
pub(super) struct Columns {
    stored_index: Vec<i32>,
    base_index: Vec<Option<i32>>,
    base_len: Vec<Option<i32>>,
    suffix: Vec<i32>,
    suffix_offsets: Vec<i32>,
    prompt_len: Vec<Option<i32>>,
    output_len: Vec<Option<i32>>,
    parent_prefix_len: Vec<Option<i32>>,
    messages_base_len: Vec<Option<i32>>,
    messages_suffix: ListBuilder<StringBuilder>,
}

impl Columns {
    pub(super) fn with_capacity(rows: usize) -> Self {
        let item = item_field(&stored_schema(), "messages_suffix", DataType::Utf8);
        let mut suffix_offsets = Vec::with_capacity(rows + 1);
        suffix_offsets.push(0);
        Self {
            stored_index: Vec::with_capacity(rows),
            base_index: Vec::with_capacity(rows),
            base_len: Vec::with_capacity(rows),
            suffix: Vec::new(),
            suffix_offsets,
            prompt_len: Vec::with_capacity(rows),
            output_len: Vec::with_capacity(rows),
            parent_prefix_len: Vec::with_capacity(rows),
            messages_base_len: Vec::with_capacity(rows),
            messages_suffix: ListBuilder::new(StringBuilder::new()).with_field(item),
        }
    }

    /// Adds a call stored at `stored_index`, where the rows of its rollout's tree count from `first`.
    pub(super) fn push(&mut self, stored_index: i32, first: i32, call: &Call<'_>, delta: &Delta) -> Result<()> {
        self.stored_index.push(stored_index);
        // A base is an earlier row of the same 31-bit count.
        self.base_index.push(delta.base.and_then(|base| i32::try_from(base).ok()?.checked_add(first)));
        self.base_len.push(length(delta.base_len)?);
        let suffix = call.prompt.map_or(&[][..], |prompt| &prompt[delta.base_len.unwrap_or(0)..]);
        self.suffix.extend_from_slice(suffix);
        self.suffix_offsets.extend(length(Some(self.suffix.len()))?);
        self.prompt_len.push(length(call.prompt.map(<[i32]>::len))?);
        self.output_len.push(length(call.output.map(<[i32]>::len))?);
        self.parent_prefix_len.push(length(delta.parent_prefix_len)?);
        self.messages_base_len.push(length(call.messages.map(|_| delta.messages_base_len))?);
        for message in call.messages.unwrap_or(&[]).iter().skip(delta.messages_base_len) {
            self.messages_suffix.values().append_value(message);
        }
        self.messages_suffix.append(call.messages.is_some());
        Ok(())
    }

    /// Sets a prefix length that became known after its row.
    pub(super) fn set_parent_prefix_len(&mut self, row: usize, len: Option<usize>) -> Result<()> {
        self.parent_prefix_len[row] = length(len)?;
        Ok(())
    }

    /// Returns the columns by name.
    pub(super) fn finish(mut self) -> Result<Vec<(&'static str, ArrayRef)>> {
        let item = item_field(&stored_schema(), "prompt_suffix", DataType::Int32);
        let known: NullBuffer = self.prompt_len.iter().map(Option::is_some).collect::<Vec<_>>().into();
        let suffix = token_lists(item, self.suffix, self.suffix_offsets, known)?;
        Ok(vec![
            ("stored_index", Arc::new(Int32Array::from(self.stored_index))),
            ("base_index", Arc::new(Int32Array::from(self.base_index))),
            ("base_len", Arc::new(Int32Array::from(self.base_len))),
            ("prompt_suffix", Arc::new(suffix)),
            ("prompt_len", Arc::new(Int32Array::from(self.prompt_len))),
            ("output_len", Arc::new(Int32Array::from(self.output_len))),
            ("parent_prefix_len", Arc::new(Int32Array::from(self.parent_prefix_len))),
            ("messages_base_len", Arc::new(Int32Array::from(self.messages_base_len))),
            ("messages_suffix", Arc::new(self.messages_suffix.finish())),
        ])
    }
}

/// A list column over tokens that are already in place.
pub(super) fn token_lists(item: FieldRef, values: Vec<i32>, offsets: Vec<i32>, known: NullBuffer) -> Result<ListArray> {
    let values = Int32Array::new(ScalarBuffer::from(values), None);
    let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
    let known = Some(known).filter(|known| known.null_count() > 0);
    Ok(ListArray::try_new(item, offsets, Arc::new(values), known)?)
}

/// A digest column: those given, and `computed` where none was.
pub(super) fn digests(given: Option<&StringArray>, computed: &[Option<String>]) -> ArrayRef {
    let given = |row: usize| given.filter(|given| given.is_valid(row)).map(|given| given.value(row));
    let all = computed.iter().enumerate().map(|(row, computed)| given(row).or(computed.as_deref()));
    Arc::new(all.collect::<StringArray>())
}

/// Puts `columns` and those of `source` that are not `dropped` in the order of `schema`, unknown ones last.
///
/// With `adopt` a column takes the schema's own field where its values allow.
pub(super) fn assemble(
    source: &RecordBatch,
    dropped: &[&str],
    columns: Vec<(&'static str, ArrayRef)>,
    schema: &Schema,
    adopt: bool,
) -> Result<RecordBatch> {
    let mut found: Vec<(FieldRef, ArrayRef)> = Vec::new();
    for (field, column) in source.schema_ref().fields().iter().zip(source.columns()) {
        let replaced = columns.iter().any(|(name, _)| name == field.name());
        if !replaced && !dropped.contains(&field.name().as_str()) {
            found.push((Arc::clone(field), Arc::clone(column)));
        }
    }
    for (name, column) in columns {
        let old = source.schema_ref().field_with_name(name).ok().cloned();
        let own = old.or_else(|| schema.field_with_name(name).ok().cloned());
        let field = own.filter(|field| field.data_type() == column.data_type());
        let field = field.unwrap_or_else(|| Field::new(name, column.data_type().clone(), true));
        found.push((Arc::new(field), column));
    }
    let place = |field: &Field| schema.index_of(field.name()).unwrap_or(usize::MAX);
    found.sort_by_key(|(field, _)| place(field));
    for (field, column) in &mut found {
        let Ok(own) = schema.field_with_name(field.name()) else {
            continue;
        };
        let fits = own.data_type() == column.data_type() && (own.is_nullable() || column.null_count() == 0);
        if adopt && fits {
            *field = Arc::new(own.clone());
        }
    }
    let (fields, arrays): (Vec<_>, Vec<_>) = found.into_iter().unzip();
    let schema = Arc::new(Schema::new_with_metadata(fields, source.schema_ref().metadata().clone()));
    let options = RecordBatchOptions::new().with_row_count(Some(source.num_rows()));
    Ok(RecordBatch::try_new_with_options(schema, arrays, &options)?)
}

fn length(len: Option<usize>) -> Result<Option<i32>> {
    let fault = |_| Fault::TooLarge("a list holds more than 2^31 - 1 items; split the batch");
    len.map(i32::try_from).transpose().map_err(fault)
}
