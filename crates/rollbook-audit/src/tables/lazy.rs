//! A table whose rows are made when it is read.

use std::fmt;
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::streaming::StreamingTable;
use datafusion::common::DataFusionError;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::PartitionStream;
use futures::future::BoxFuture;
use futures::{StreamExt, TryStreamExt, stream};
use rollbook_query::Result;
use tokio::sync::OnceCell;

use super::Origin;

/// Makes all rows of a table from those of the tables it reads.
pub(super) type Make = fn(Origin, Vec<Vec<RecordBatch>>) -> BoxFuture<'static, Result<Vec<RecordBatch>>>;

pub(super) fn lazy_table(
    origin: &Origin,
    schema: SchemaRef,
    reads: &'static [&'static str],
    make: Make,
) -> Result<Arc<StreamingTable>> {
    let part = Made { origin: origin.clone(), schema: Arc::clone(&schema), reads, make, rows: Arc::default() };
    Ok(Arc::new(StreamingTable::try_new(schema, vec![Arc::new(part)])?))
}

struct Made {
    origin: Origin,
    schema: SchemaRef,
    reads: &'static [&'static str],
    make: Make,
    /// Made once: the snapshot does not change.
    rows: Arc<OnceCell<Vec<RecordBatch>>>,
}

impl fmt::Debug for Made {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Made").field("schema", &self.schema).finish_non_exhaustive()
    }
}

impl PartitionStream for Made {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
        let (make, reads, origin, rows) = (self.make, self.reads, self.origin.clone(), Arc::clone(&self.rows));
        let made = async move {
            let made = async {
                let session = origin.session().await?;
                let mut read = Vec::with_capacity(reads.len());
                for name in reads {
                    read.push(session.collect(&format!("SELECT * FROM {name}")).await?);
                }
                make(origin.clone(), read).await
            };
            let batches = rows.get_or_try_init(|| made).await.map_err(DataFusionError::from)?.clone();
            Ok::<_, DataFusionError>(stream::iter(batches.into_iter().map(Ok::<_, DataFusionError>)))
        };
        let batches = stream::once(made).try_flatten();
        Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&self.schema), batches.boxed()))
    }
}
