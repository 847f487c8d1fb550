//! Tables that fit the terminal.

use arrow::array::RecordBatch;
use comfy_table::presets::UTF8_HORIZONTAL_ONLY;
use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, Table, TableComponent, Width};
use datafusion::execution::SendableRecordBatchStream;
use futures::TryStreamExt;

use super::cell::{cell, plain};
use super::{line, note};
use crate::error::Result;

/// Columns of text that output without a terminal is cut to.
const WIDTH_WITHOUT_TERMINAL: u16 = 120;

/// How much of a result a table shows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TableShape {
    /// The most rows shown; none = all.
    pub(crate) rows: Option<usize>,
}

/// Prints rows as a table, and on stderr how many were left out.
pub(super) async fn print(mut stream: SendableRecordBatchStream, shape: &TableShape) -> Result<()> {
    let schema = stream.schema();
    let names: Vec<String> = schema.fields().iter().map(|field| plain(field.name())).collect();
    let mut table = empty(&names);
    for (index, field) in schema.fields().iter().enumerate() {
        if field.data_type().is_numeric()
            && let Some(column) = table.column_mut(index)
        {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let most = shape.rows.unwrap_or(usize::MAX);
    let mut total = 0_usize;
    while let Some(batch) = stream.try_next().await? {
        add_rows(&mut table, &batch, most.saturating_sub(total))?;
        total += batch.num_rows();
    }
    line(&table.to_string())?;
    if total > most {
        note(&format!("{most} of {total} rows shown; --rows 0 shows all, --format csv or ndjson prints them whole"));
    }
    Ok(())
}

fn add_rows(table: &mut Table, batch: &RecordBatch, most: usize) -> Result<()> {
    for row in 0..batch.num_rows().min(most) {
        let cells = batch.columns().iter().map(|column| cell(column.as_ref(), row)).collect::<Result<Vec<String>>>()?;
        table.add_row(cells);
    }
    Ok(())
}

fn empty(names: &[String]) -> Table {
    let mut table = Table::new();
    table.load_preset(UTF8_HORIZONTAL_ONLY).set_content_arrangement(ContentArrangement::Dynamic).set_header(names);
    // One rule below the header; rows stand close, so that more of them fit a screen.
    for lines in [TableComponent::HorizontalLines, TableComponent::MiddleIntersections] {
        table.remove_style(lines);
    }
    if table.width().is_none() {
        table.set_width(WIDTH_WITHOUT_TERMINAL);
    }
    // A column narrower than its longest word is unreadable, one wider than half a screen hides the others.
    for column in table.column_iter_mut() {
        column.set_constraint(ColumnConstraint::UpperBoundary(Width::Fixed(60)));
    }
    table
}

/// A table of a few rows that a command makes itself.
pub(crate) fn small_table(names: &[&str], rows: &[Vec<String>]) -> String {
    let mut table = empty(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
    for row in rows {
        table.add_row(row.iter().map(|value| plain(value)));
    }
    table.to_string()
}
