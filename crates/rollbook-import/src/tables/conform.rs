//! One foreign batch becomes one batch of the logical schema, row faults becoming rejects.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BooleanArray, StringArray, new_null_array};
use arrow::compute::filter_record_batch;
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use arrow::record_batch::{RecordBatch, RecordBatchOptions};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use rollbook_schema::Table;

use crate::importer::{Item, Reject};
use crate::json::Fault;
use crate::row::{is_ours, logical_nullable, merge_extra};
use crate::stream::start_of;

use super::convert::{Faults, convert, json_texts};
use super::rules;

/// Turns batches of one file into batches of its table.
pub(super) struct Conformer {
    table: &'static Table,
    schema: SchemaRef,
    json: Vec<&'static str>,
    file: String,
    run_id: Option<String>,
    named: BTreeSet<String>,
    rows: u64,
}

/// The first fault of each bad row, and the column it lies in.
type RowFaults = BTreeMap<usize, (Fault, Option<ArrayRef>)>;

impl Conformer {
    pub(super) fn new(table: &'static Table, file: &str, run_id: Option<&str>) -> Self {
        Self {
            table,
            schema: logical_nullable(table),
            json: table.json_columns().collect(),
            file: file.to_owned(),
            run_id: run_id.map(str::to_owned),
            named: BTreeSet::new(),
            rows: 0,
        }
    }

    /// Converts one batch and queues its rows, rejects and notes.
    pub(super) fn batch(&mut self, batch: &RecordBatch, queue: &mut VecDeque<Item>) -> Result<(), ArrowError> {
        let mut bad = RowFaults::new();
        let mut columns = BTreeMap::new();
        for field in self.schema.fields() {
            let name = field.name().as_str();
            let Some(source) = batch.column_by_name(name).filter(|_| !is_ours(self.table, name)) else {
                continue;
            };
            let mut faults = Faults::default();
            let array = convert(source, field, self.json.contains(&name), &mut faults)?;
            for (row, fault) in faults.0 {
                bad.entry(row).or_insert_with(|| (fault.at_key(name), Some(Arc::clone(source))));
            }
            columns.insert(name.to_owned(), array);
        }
        self.check_required(batch.num_rows(), &columns, &mut bad);
        self.fill_provenance(batch.num_rows(), &mut columns);
        self.fill_run_id(batch.num_rows(), &mut columns);
        self.fill_extra(batch, &mut columns, &mut bad, queue)?;
        let arrays = self.schema.fields().iter().map(|field| {
            columns.remove(field.name()).unwrap_or_else(|| new_null_array(field.data_type(), batch.num_rows()))
        });
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        let rows = RecordBatch::try_new_with_options(Arc::clone(&self.schema), arrays.collect(), &options)?;
        let good: BooleanArray = (0..batch.num_rows()).map(|row| Some(!bad.contains_key(&row))).collect();
        let rows = if bad.is_empty() { rows } else { filter_record_batch(&rows, &good)? };
        if rows.num_rows() > 0 {
            queue.push_back(Item::Rows { table: self.table, batch: rows });
        }
        queue.extend(bad.into_iter().map(|(row, (fault, column))| self.reject(row, &fault, column.as_ref())));
        self.rows += batch.num_rows() as u64;
        Ok(())
    }

    fn reject(&self, row: usize, fault: &Fault, column: Option<&ArrayRef>) -> Item {
        let options = FormatOptions::default().with_null("null");
        let raw = column.and_then(|column| {
            let text = ArrayFormatter::try_new(column, &options).ok()?.value(row).try_to_string().ok()?;
            Some(start_of(&text))
        });
        Item::Reject(Reject {
            file: self.file.clone(),
            line: Some(self.rows + row as u64 + 1),
            field: Some(format!("{}{}", self.table.name, fault.path())),
            reason: fault.reason().to_owned(),
            raw,
        })
    }

    fn check_required(&self, rows: usize, columns: &BTreeMap<String, ArrayRef>, bad: &mut RowFaults) {
        let Some(name) = rules::required(self.table) else {
            return;
        };
        let column = columns.get(name);
        for row in (0..rows).filter(|&row| column.is_none_or(|column| column.is_null(row))) {
            bad.entry(row).or_insert_with(|| (Fault::new("missing, and required").at_key(name), None));
        }
    }

    fn fill_provenance(&self, rows: usize, columns: &mut BTreeMap<String, ArrayRef>) {
        if !rules::has_provenance(self.table) {
            return;
        }
        for (name, of) in rules::PROVENANCE {
            let given = columns.get(name).and_then(|column| column.as_any().downcast_ref::<StringArray>());
            let of = columns.get(of);
            let filled: StringArray = (0..rows)
                .map(|row| {
                    let value = given.filter(|given| given.is_valid(row)).map(|given| given.value(row));
                    let is_there = of.is_some_and(|of| of.is_valid(row));
                    Some(value.unwrap_or(if is_there { "assumed" } else { "absent" }))
                })
                .collect();
            columns.insert(name.to_owned(), Arc::new(filled));
        }
    }

    fn fill_run_id(&self, rows: usize, columns: &mut BTreeMap<String, ArrayRef>) {
        let Some(run_id) = self.run_id.as_deref().filter(|_| self.table.column("run_id").is_some()) else {
            return;
        };
        let given = columns.get("run_id").and_then(|column| column.as_any().downcast_ref::<StringArray>());
        let filled: StringArray = (0..rows)
            .map(|row| Some(given.filter(|given| given.is_valid(row)).map_or(run_id, |given| given.value(row))))
            .collect();
        columns.insert("run_id".to_owned(), Arc::new(filled));
    }

    fn fill_extra(
        &mut self,
        batch: &RecordBatch,
        columns: &mut BTreeMap<String, ArrayRef>,
        bad: &mut RowFaults,
        queue: &mut VecDeque<Item>,
    ) -> Result<(), ArrowError> {
        let is_kept = rules::keeps_extra(self.table);
        let mut unknown = Vec::new();
        for (field, column) in batch.schema_ref().fields().iter().zip(batch.columns()) {
            let name = field.name();
            if self.schema.column_with_name(name).is_some() || is_ours(self.table, name) {
                continue;
            }
            let texts = if is_kept { json_texts(column) } else { Ok(Vec::new()) };
            let is_said = self.named.len() >= rules::NAMED_COLUMNS || !self.named.insert(name.clone());
            if !is_said {
                queue.push_back(Item::Note(rules::unknown_column(self.table, name, is_kept)));
            }
            unknown.push((name.as_str(), texts?));
        }
        if unknown.is_empty() || !is_kept {
            return Ok(());
        }
        let given = columns.get("extra").and_then(|column| column.as_any().downcast_ref::<StringArray>());
        let mut merged = Vec::with_capacity(batch.num_rows());
        for row in 0..batch.num_rows() {
            let members: Vec<_> = unknown.iter().map(|(name, texts)| (*name, texts[row].as_str())).collect();
            let given = given.filter(|given| given.is_valid(row)).map(|given| given.value(row));
            merged.push(match merge_extra(given, &members) {
                Ok(text) => Some(text),
                Err(fault) => {
                    bad.entry(row).or_insert_with(|| (fault.at_key("extra"), None));
                    None
                }
            });
        }
        columns.insert("extra".to_owned(), Arc::new(StringArray::from(merged)));
        Ok(())
    }
}
