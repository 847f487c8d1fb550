//! A build's rows in the order of their places.
//!
//! A build is stored in that order, so its rows are read as they lie. Where its places say otherwise (a trainer's dump,
//! files joined later) they are sorted, which for a large build goes through the disk.

use std::sync::Arc;

use arrow::compute::SortOptions;
use arrow::row::{OwnedRow, RowConverter, SortField};
use datafusion::execution::{SendableRecordBatchStream, SessionStateBuilder};
use datafusion::prelude::SessionContext;
use futures::TryStreamExt;

use crate::error::Result;
use crate::export::in_order::{by_row_groups, one_after_the_other};
use crate::export::lookup::Build;
use crate::recipe::{quoted, table, text_column};
use crate::session::{PlanOptions, Session, parse};

/// Bytes that a token of a row takes in all columns, about.
const TOKEN_BYTES: usize = 4 + 4 + 1 + 4 + 4 + 8 + 4 + 4;
/// Bytes that a batch may take.
const BATCH_BYTES: usize = 8 << 20;
/// What a row's place is ordered by, ascending, nulls last.
const PLACE: &str = "epoch, coalesce(optimizer_step, step), step, micro_batch, rank, row_index";

/// Streams a build's rows, in batches whose size depends on the rows' length.
pub(super) async fn rows_of(session: &Session, build: &Build) -> Result<SendableRecordBatchStream> {
    let columns: Vec<String> = table("samples")?.logical().fields().iter().map(|field| field.name().clone()).collect();
    let widest = match build.max_tokens.and_then(|tokens| usize::try_from(tokens).ok()) {
        Some(tokens) => tokens,
        None => widest_row(session, build).await?,
    };
    let rows = (BATCH_BYTES / (widest.max(1) * TOKEN_BYTES)).clamp(1, 8192);
    let sql = select(&columns.join(", "), build);
    if lies_in_order(session, build).await? {
        stream(session, &sql, rows, true).await
    } else {
        stream(session, &format!("{sql} ORDER BY {PLACE}"), rows, false).await
    }
}

fn select(columns: &str, build: &Build) -> String {
    let (run_id, build_id) = (quoted(&build.run_id), quoted(&build.id));
    format!("SELECT {columns} FROM samples WHERE run_id = {run_id} AND build_id = {build_id}")
}

/// Runs a statement; `as_stored` gives rows as they lie, files one after the other.
async fn stream(session: &Session, sql: &str, rows: usize, as_stored: bool) -> Result<SendableRecordBatchStream> {
    let plan = session.plan(parse(sql)?, &PlanOptions::default()).await?;
    let state = session.context().state();
    let mut config = state.config().clone().with_batch_size(rows);
    if as_stored {
        config = config.with_target_partitions(1);
    }
    let state = SessionStateBuilder::new_from_existing(state).with_config(config).build();
    let context = SessionContext::new_with_state(state);
    let frame = context.execute_logical_plan(plan).await?;
    if !as_stored {
        return Ok(frame.execute_stream().await?);
    }
    let task = Arc::new(frame.task_ctx());
    let plan = by_row_groups(frame.create_physical_plan().await?, task.session_config().options()).await?;
    Ok(one_after_the_other(plan, task, session.options().threads))
}

/// Whether the rows are stored in the order of their places: looks at the places alone.
async fn lies_in_order(session: &Session, build: &Build) -> Result<bool> {
    let mut places = stream(session, &select(PLACE, build), 8192, true).await?;
    let order = SortOptions { descending: false, nulls_first: false };
    let fields = places
        .schema()
        .fields()
        .iter()
        .map(|field| SortField::new_with_options(field.data_type().clone(), order))
        .collect();
    let converter = RowConverter::new(fields)?;
    let mut last: Option<OwnedRow> = None;
    while let Some(batch) = places.try_next().await? {
        if batch.num_rows() == 0 {
            continue;
        }
        let rows = converter.convert_columns(batch.columns())?;
        let follows = last.as_ref().is_none_or(|last| last.row() <= rows.row(0));
        if !follows || (1..rows.num_rows()).any(|row| rows.row(row - 1) > rows.row(row)) {
            return Ok(false);
        }
        last = Some(rows.row(rows.num_rows() - 1).owned());
    }
    Ok(true)
}

/// The longest row of a build that does not say.
async fn widest_row(session: &Session, build: &Build) -> Result<usize> {
    let found = session
        .collect(&format!(
            "SELECT CAST(coalesce(max(array_length(token_ids)), 0) AS VARCHAR) FROM samples \
             WHERE run_id = {} AND build_id = {}",
            quoted(&build.run_id),
            quoted(&build.id)
        ))
        .await?;
    Ok(text_column(&found, 0)?.first().and_then(|text| text.parse().ok()).unwrap_or(0))
}
