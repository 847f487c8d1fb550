//! Trainer rows taken apart: narrow rows that stream from a plan of their own.
//!
//! A plan that reads whole rows works in batches of few of them. What is grouped or sorted afterwards is narrow and should
//! come in large batches, so that plan and this one are kept apart.

use std::fmt;
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::catalog::streaming::StreamingTable;
use datafusion::common::{DataFusionError, Result as PlanResult};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::PartitionStream;
use futures::{StreamExt, TryStreamExt, stream};
use rollbook_query::Result;

use super::Origin;
use super::tokens::column;

/// Runs of trained tokens that name a call's output.
const TRAINED: &str = "
SELECT
    run_id, build_id, step, epoch, optimizer_step, micro_batch, rank, row_index,
    span['rollout_id'] AS rollout_id, span['call_id'] AS call_id, span['start'] AS start, span['length'] AS length,
    span['row_start'] AS row_start
FROM (
    SELECT
        run_id, build_id, step, epoch, optimizer_step, micro_batch, rank, row_index,
        unnest(trained_spans(segments, action_mask)) AS span
    FROM samples
)";

/// What rows say of whence their tokens come.
const SEGMENTS: &str = "
SELECT
    run_id, build_id, coalesce(segment['rollout_id'], rollout_id) AS rollout_id, segment['call_id'] AS call_id
FROM (SELECT run_id, build_id, rollout_id, unnest(segments) AS segment FROM samples)";

/// `trained_span`.
pub(super) fn trained(origin: &Origin) -> Result<Arc<StreamingTable>> {
    let fields = [
        ("run_id", DataType::Utf8),
        ("build_id", DataType::Utf8),
        ("step", DataType::Int64),
        ("epoch", DataType::Int32),
        ("optimizer_step", DataType::Int64),
        ("micro_batch", DataType::Int32),
        ("rank", DataType::Int32),
        ("row_index", DataType::Int32),
        ("rollout_id", DataType::Utf8),
        ("call_id", DataType::Utf8),
        ("start", DataType::Int32),
        ("length", DataType::Int32),
        ("row_start", DataType::Int32),
    ];
    table(origin, TRAINED, &fields)
}

/// `row_segment`.
pub(super) fn segments(origin: &Origin) -> Result<Arc<StreamingTable>> {
    let fields = [
        ("run_id", DataType::Utf8),
        ("build_id", DataType::Utf8),
        ("rollout_id", DataType::Utf8),
        ("call_id", DataType::Utf8),
    ];
    table(origin, SEGMENTS, &fields)
}

fn table(origin: &Origin, sql: &'static str, fields: &[(&str, DataType)]) -> Result<Arc<StreamingTable>> {
    let fields = fields.iter().map(|(name, kind)| Field::new(*name, kind.clone(), true));
    let schema: SchemaRef = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    let part = Streamed { origin: origin.clone(), schema: Arc::clone(&schema), sql };
    Ok(Arc::new(StreamingTable::try_new(schema, vec![Arc::new(part)])?))
}

struct Streamed {
    origin: Origin,
    schema: SchemaRef,
    sql: &'static str,
}

impl fmt::Debug for Streamed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Streamed").field("sql", &self.sql).finish_non_exhaustive()
    }
}

impl PartitionStream for Streamed {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
        let schema = Arc::clone(&self.schema);
        let batches = stream::once(open(self.origin.clone(), self.sql))
            .try_flatten()
            .and_then(move |batch| futures::future::ready(conform(&batch, &schema)));
        Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&self.schema), batches.boxed()))
    }
}

async fn open(origin: Origin, sql: &'static str) -> PlanResult<SendableRecordBatchStream> {
    let session = origin.session().await?;
    Ok(session.stream(&format!("SELECT * FROM ({sql}) WHERE {}", origin.of_run("run_id"))).await?)
}

fn conform(batch: &RecordBatch, schema: &SchemaRef) -> PlanResult<RecordBatch> {
    let columns = schema
        .fields()
        .iter()
        .map(|field| Ok(cast(column(batch, field.name())?, field.data_type())?))
        .collect::<Result<Vec<_>>>()
        .map_err(DataFusionError::from)?;
    Ok(RecordBatch::try_new(Arc::clone(schema), columns)?)
}
