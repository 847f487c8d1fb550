//! What each rollout trains and weighs in each trainer row.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use futures::future::BoxFuture;
use futures::{FutureExt, TryStreamExt};
use rollbook_query::Result;

use super::Origin;
use super::tokens::column;

const SQL: &str = include_str!("../../../../sql/audits/pack/weight/row_weights.sql");

pub(super) fn schema() -> SchemaRef {
    let fields = [
        ("run_id", DataType::Utf8),
        ("build_id", DataType::Utf8),
        ("step", DataType::Int64),
        ("epoch", DataType::Int32),
        ("optimizer_step", DataType::Int64),
        ("micro_batch", DataType::Int32),
        ("rank", DataType::Int32),
        ("row_number", DataType::Int64),
        ("rollout_id", DataType::Utf8),
        ("tokens", DataType::Int64),
        ("weight", DataType::Float64),
        ("is_weighted", DataType::Boolean),
    ];
    Arc::new(Schema::new(fields.map(|(name, kind)| Field::new(name, kind, true)).to_vec()))
}

pub(super) fn rows(origin: Origin) -> BoxFuture<'static, Result<Vec<RecordBatch>>> {
    async move {
        let session = origin.session().await?;
        let sql = format!("SELECT * FROM ({SQL}) WHERE {}", origin.of_run("run_id"));
        let mut stream = session.stream(&sql).await?;
        let schema = schema();
        let mut batches = Vec::new();
        while let Some(batch) = stream.try_next().await? {
            let columns = schema
                .fields()
                .iter()
                .map(|field| Ok(cast(column(&batch, field.name())?, field.data_type())?))
                .collect::<Result<Vec<_>>>()?;
            batches.push(RecordBatch::try_new(Arc::clone(&schema), columns)?);
        }
        Ok(batches)
    }
    .boxed()
}
