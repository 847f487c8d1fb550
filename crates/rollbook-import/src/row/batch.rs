//! The columns of one table, filled row by row and cut into bounded batches.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::datatypes::{Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow::record_batch::RecordBatch;
use rollbook_schema::Table;

use crate::json::{Cursor, Fault, Parse};

use super::column::{Column, nullable};

/// The most rows of a batch.
pub(crate) const BATCH_ROWS: usize = 8192;

/// About the most bytes of a batch; a single row may be larger.
pub(crate) const BATCH_BYTES: usize = 16 << 20;

/// Says whether a column is filled by whoever writes the rows, so that what a file says of it is dropped.
pub(crate) fn is_ours(table: &Table, column: &str) -> bool {
    match column {
        "created_at" | "revision" => true,
        "import_id" => !matches!(table.name.as_str(), "imports" | "rejects"),
        _ => false,
    }
}

/// The logical schema of a table with every column nullable: a source may lack even a key.
pub(crate) fn logical_nullable(table: &Table) -> SchemaRef {
    let logical = table.logical();
    let fields: Vec<_> = logical.fields().iter().map(nullable).collect();
    Arc::new(Schema::new_with_metadata(fields, logical.metadata().clone()))
}

/// A batch of one table in the making.
pub(crate) struct RowBatch {
    table: &'static Table,
    schema: SchemaRef,
    columns: Vec<Column>,
    index: HashMap<String, usize>,
    /// The column that most likely comes next, since lines repeat their keys in one order.
    next: usize,
    rows: usize,
    bytes: usize,
}

impl RowBatch {
    pub(crate) fn new(table: &'static Table) -> Self {
        let schema = logical_nullable(table);
        let json: Vec<_> = table.json_columns().collect();
        let columns: Vec<_> =
            schema.fields().iter().map(|field| Column::new(field, json.contains(&field.name().as_str()))).collect();
        let index = columns.iter().enumerate().map(|(at, column)| (column.name().to_owned(), at)).collect();
        Self { table, schema, columns, index, next: 0, rows: 0, bytes: 0 }
    }

    pub(crate) fn table(&self) -> &'static Table {
        self.table
    }

    /// Returns the number of whole rows.
    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    /// Says whether the batch should go out before another row comes in.
    pub(crate) fn is_full(&self) -> bool {
        self.rows >= BATCH_ROWS || self.bytes >= BATCH_BYTES
    }

    /// Returns the place of a column.
    pub(crate) fn find(&mut self, name: &str) -> Option<usize> {
        if self.columns.get(self.next).is_some_and(|column| column.name() == name) {
            self.next += 1;
            return Some(self.next - 1);
        }
        let at = self.index.get(name).copied()?;
        self.next = at + 1;
        Some(at)
    }

    /// Says whether the open row has a value, null or not, in this column.
    pub(crate) fn has(&self, at: usize) -> bool {
        self.columns[at].len() > self.rows
    }

    /// Says whether the open row has a value that is not null in this column.
    pub(crate) fn is_given(&self, name: &str) -> bool {
        self.index.get(name).is_some_and(|&at| self.has(at) && !self.columns[at].is_null(self.rows))
    }

    /// Returns the text of the open row in this column of strings.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        let column = &self.columns[*self.index.get(name)?];
        if column.len() > self.rows { column.text(self.rows) } else { None }
    }

    /// Reads the value at the cursor into a column of the open row.
    pub(crate) fn read(&mut self, at: usize, cursor: &mut Cursor<'_>) -> Parse<()> {
        if self.has(at) {
            return Err(Fault::new("the key stands twice"));
        }
        self.columns[at].read(cursor)
    }

    /// Returns a column of the open row for a value that is pushed, an earlier one taken back.
    pub(crate) fn column(&mut self, name: &str) -> Parse<&mut Column> {
        let Some(&at) = self.index.get(name) else {
            return Err(Fault::new(format!("no column {name} in table {}", self.table.name)));
        };
        self.columns[at].truncate(self.rows);
        Ok(&mut self.columns[at])
    }

    /// Takes back what the open row has in a column.
    pub(crate) fn clear(&mut self, name: &str) {
        if let Some(&at) = self.index.get(name) {
            self.columns[at].truncate(self.rows);
        }
    }

    /// Puts a text into a column unless the row has a value there.
    pub(crate) fn default_text(&mut self, name: &str, value: &str) -> Parse<()> {
        if self.is_given(name) || !self.index.contains_key(name) {
            return Ok(());
        }
        self.column(name)?.push_text(value)
    }

    /// Closes the open row; columns without a value get a null.
    pub(crate) fn commit(&mut self, bytes: usize) {
        for column in &mut self.columns {
            if column.len() == self.rows {
                column.push_null();
            }
        }
        self.rows += 1;
        self.bytes += bytes;
        self.next = 0;
    }

    /// Takes the open row back.
    pub(crate) fn roll_back(&mut self) {
        self.roll_back_to(self.rows);
    }

    /// Takes every row from this one on back.
    pub(crate) fn roll_back_to(&mut self, rows: usize) {
        self.rows = rows;
        for column in &mut self.columns {
            column.truncate(self.rows);
        }
        self.next = 0;
    }

    /// Returns the rows as a batch and starts anew.
    pub(crate) fn finish(&mut self) -> Result<RecordBatch, ArrowError> {
        let arrays = self.columns.iter_mut().map(Column::finish).collect::<Result<Vec<_>, _>>()?;
        self.rows = 0;
        self.bytes = 0;
        RecordBatch::try_new(Arc::clone(&self.schema), arrays)
    }
}
