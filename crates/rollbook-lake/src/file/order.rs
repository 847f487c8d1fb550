//! The order of rows within a file, checked while they are written.

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::compute::{SortOptions, partition};
use arrow::datatypes::{Int32Type, Schema};
use arrow::row::{OwnedRow, RowConverter, SortField};
use rollbook_schema::Table;

use crate::error::Result;

const ORDER: [&str; 5] = ["run_id", "step", "group_id", "rollout_id", "stored_index"];

/// Returns the columns that order a table's rows within a file: ascending, nulls last.
pub fn sort_columns(table: &Table) -> Vec<&'static str> {
    let schema = table.physical();
    ORDER.into_iter().filter(|name| schema.field_with_name(name).is_ok()).collect()
}

/// Ascending, nulls last.
pub(super) const SORT: SortOptions = SortOptions { descending: false, nulls_first: false };

/// Checks that rows come in the order of [`sort_columns`].
pub(super) struct OrderCheck {
    columns: Vec<usize>,
    converter: RowConverter,
    last: Option<OwnedRow>,
    is_sorted: bool,
}

impl OrderCheck {
    pub(super) fn new(table: &Table, schema: &Schema) -> Result<Self> {
        let columns: Vec<usize> =
            sort_columns(table).into_iter().filter_map(|name| schema.index_of(name).ok()).collect();
        let fields = columns
            .iter()
            .map(|&column| SortField::new_with_options(schema.field(column).data_type().clone(), SORT))
            .collect();
        Ok(Self { columns, converter: RowConverter::new(fields)?, last: None, is_sorted: true })
    }

    pub(super) fn update(&mut self, batch: &RecordBatch) -> Result<()> {
        if !self.is_sorted || self.columns.is_empty() || batch.num_rows() == 0 {
            return Ok(());
        }
        let columns: Vec<ArrayRef> = self.columns.iter().map(|&column| ArrayRef::clone(batch.column(column))).collect();
        let rows = self.converter.convert_columns(&columns)?;
        let follows_last = self.last.as_ref().is_none_or(|last| last.row() <= rows.row(0));
        let is_sorted = (1..rows.num_rows()).all(|row| rows.row(row - 1) <= rows.row(row));
        self.is_sorted = follows_last && is_sorted;
        self.last = Some(rows.row(rows.num_rows() - 1).owned());
        Ok(())
    }

    pub(super) fn is_sorted(&self) -> bool {
        self.is_sorted
    }
}

/// Where runs and rollouts begin, over the batches of a file sequence.
pub(super) struct Borders {
    run: Option<usize>,
    rollout: Option<usize>,
    /// Of calls: rows of no rollout may stand on each other, from one that is numbered 0 on.
    stored_index: Option<usize>,
    last: Option<(Option<String>, Option<String>)>,
}

/// What begins at a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Border {
    Inside,
    Rollout,
    Run,
}

impl Borders {
    pub(super) fn new(schema: &Schema) -> Self {
        Self {
            run: schema.index_of("run_id").ok(),
            rollout: schema.index_of("rollout_id").ok(),
            stored_index: schema.index_of("stored_index").ok(),
            last: None,
        }
    }

    /// Returns, for every row, what begins there. A table without rollouts may be cut at any row.
    pub(super) fn of(&mut self, batch: &RecordBatch) -> Result<Vec<Border>> {
        let rows = batch.num_rows();
        if rows == 0 {
            return Ok(Vec::new());
        }
        let text = |column: Option<usize>, row: usize| {
            let array = batch.column(column?).as_string::<i32>();
            array.is_valid(row).then(|| array.value(row).to_owned())
        };
        let inside = if self.rollout.is_some() { Border::Inside } else { Border::Rollout };
        let mut borders = vec![inside; rows];
        if let Some(rollout) = self.rollout {
            mark(&mut borders, batch, rollout, Border::Rollout)?;
            let array = batch.column(rollout);
            for row in (0..rows).filter(|&row| array.is_null(row) && self.stands_alone(batch, row)) {
                borders[row] = Border::Rollout;
            }
        }
        if let Some(run) = self.run {
            mark(&mut borders, batch, run, Border::Run)?;
        }
        let first = (text(self.run, 0), text(self.rollout, 0));
        borders[0] = match &self.last {
            None => Border::Run,
            Some((run, _)) if *run != first.0 => Border::Run,
            Some((_, rollout)) if *rollout != first.1 => Border::Rollout,
            Some(_) if first.1.is_none() && self.stands_alone(batch, 0) => Border::Rollout,
            Some(_) => Border::Inside,
        };
        self.last = Some((text(self.run, rows - 1), text(self.rollout, rows - 1)));
        Ok(borders)
    }

    /// Whether a row of no rollout can have no base before it.
    fn stands_alone(&self, batch: &RecordBatch, row: usize) -> bool {
        let Some(column) = self.stored_index else {
            return true;
        };
        let numbers = batch.column(column).as_primitive_opt::<Int32Type>();
        numbers.is_some_and(|numbers| numbers.is_valid(row) && numbers.value(row) == 0)
    }
}

fn mark(borders: &mut [Border], batch: &RecordBatch, column: usize, border: Border) -> Result<()> {
    let ranges = partition(&[ArrayRef::clone(batch.column(column))])?.ranges();
    for range in ranges.iter().skip(1) {
        borders[range.start] = border;
    }
    Ok(())
}
