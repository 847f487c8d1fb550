//! Tables that fit the terminal.

use arrow::array::RecordBatch;
use arrow::util::display::array_value_to_string;
use comfy_table::presets::UTF8_HORIZONTAL_ONLY;
use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, Table, TableComponent, Width};
use datafusion::execution::SendableRecordBatchStream;
use futures::TryStreamExt;

use super::cell::{cell, plain};
use super::{line, note};
use crate::error::Result;

/// Columns of text that output without a terminal is cut to.
const WIDTH_WITHOUT_TERMINAL: u16 = 120;

/// Characters below which a column breaks ids and numbers apart: a result with no more room is printed record by record.
const LEAST_COLUMN_WIDTH: usize = 10;

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
    let width = usize::from(table.width().unwrap_or(WIDTH_WITHOUT_TERMINAL));
    let record_wise = names.len() * LEAST_COLUMN_WIDTH > width;
    // The planner's own text has lines; in data, a line break is shown, not obeyed.
    let is_plan = names == ["plan_type", "plan"];
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
        let rows = batch.slice(0, batch.num_rows().min(most.saturating_sub(total)));
        if record_wise {
            records(&names, &rows, total)?;
        } else if is_plan {
            plans(&rows)?;
        } else {
            add_rows(&mut table, &rows)?;
        }
        total += batch.num_rows();
    }
    if !record_wise && !is_plan {
        line(&table.to_string())?;
    }
    if total > most {
        note(&format!("{most} of {total} rows shown; --rows 0 shows all, --format csv or ndjson prints them whole"));
    }
    Ok(())
}

/// Prints rows one below the other, a line a column: what is too wide for a table stays readable.
fn records(names: &[String], batch: &RecordBatch, before: usize) -> Result<()> {
    let longest = names.iter().map(String::len).max().unwrap_or_default();
    for row in 0..batch.num_rows() {
        line(&format!("── row {} ──", before + row + 1))?;
        for (name, column) in names.iter().zip(batch.columns()) {
            line(&format!("  {name:<longest$}  {}", cell(column.as_ref(), row)?))?;
        }
    }
    Ok(())
}

fn plans(batch: &RecordBatch) -> Result<()> {
    for row in 0..batch.num_rows() {
        for (index, column) in batch.columns().iter().enumerate() {
            let text = array_value_to_string(column, row)?;
            let lines: Vec<String> =
                text.lines().map(|text| format!("{:indent$}{}", "", plain(text), indent = 2 * index)).collect();
            line(&lines.join("\n"))?;
        }
    }
    Ok(())
}

fn add_rows(table: &mut Table, batch: &RecordBatch) -> Result<()> {
    for row in 0..batch.num_rows() {
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
    // A terminal that does not tell its width says 0.
    if table.width().is_none_or(|width| width < 20) {
        let columns = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
        table.set_width(columns.filter(|columns| *columns >= 20).unwrap_or(WIDTH_WITHOUT_TERMINAL));
    }
    // A column narrower than its longest word is unreadable, one wider than half a screen hides the others.
    for column in table.column_iter_mut() {
        column.set_constraint(ColumnConstraint::UpperBoundary(Width::Fixed(60)));
    }
    table
}

/// Columns of text that the terminal, or output without one, has.
pub(crate) fn width() -> usize {
    usize::from(empty(&[]).width().unwrap_or(WIDTH_WITHOUT_TERMINAL))
}

/// A table of a few rows that a command makes itself.
pub(crate) fn small_table(names: &[&str], rows: &[Vec<String>]) -> String {
    let mut table = empty(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
    for row in rows {
        table.add_row(row.iter().map(|value| plain(value)));
    }
    table.to_string()
}
