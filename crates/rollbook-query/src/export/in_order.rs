//! Rows as they lie in the files of a table, read by several threads.
//!
//! ```text
//! partition   0         1         2         3         4        a row group each, in the order of the files
//!             read      ahead     ahead     -         -        some batches of the next ones wait, bounded
//! ```
//!
//! Which rows stand in one batch does not depend on the number of threads, so that an export gives the same bytes anywhere.

use std::collections::VecDeque;
use std::sync::Arc;

use datafusion::config::ConfigOptions;
use datafusion::datasource::physical_plan::{FileGroup, FileScanConfigBuilder, ParquetSource};
use datafusion::datasource::source::DataSourceExec;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::common::spawn_buffered;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, ExecutionPlan, ExecutionPlanProperties, Partitioning, ReplaceChildrenOptions,
};
use futures::TryStreamExt;

use crate::error::Result;
use crate::provider::{footer_of, row_group_pieces};

/// Batches that a partition may be ahead.
const AHEAD: usize = 4;

/// Operators that treat each row by itself, and so may stand above parts of a scan.
const ROW_BY_ROW: [&str; 5] = ["ProjectionExec", "FilterExec", "CooperativeExec", "CoalesceBatchesExec", "ListsExec"];

/// Gives a plan that reads files one after the other a partition for each row group; any other plan stays as it is.
pub(super) async fn by_row_groups(
    plan: Arc<dyn ExecutionPlan>,
    options: &ConfigOptions,
) -> Result<Arc<dyn ExecutionPlan>> {
    let mut above = Vec::new();
    let mut node = Arc::clone(&plan);
    while ROW_BY_ROW.contains(&node.name()) {
        let Some(child) = node.children().first().map(|child| Arc::clone(child)) else {
            break;
        };
        above.push(std::mem::replace(&mut node, child));
    }
    let scan = node.downcast_ref::<DataSourceExec>().and_then(DataSourceExec::downcast_to_file_source::<ParquetSource>);
    let Some((config, source)) = scan else {
        return Ok(plan);
    };
    let [group] = config.file_groups.as_slice() else {
        return Ok(plan);
    };
    let mut groups = Vec::new();
    for file in group.files() {
        if file.range.is_some() {
            return Ok(plan);
        }
        let footer = footer_of(source, file.clone(), options).await?;
        let pieces = row_group_pieces(0, file.object_meta.size, &footer);
        groups.extend(pieces.iter().map(|piece| FileGroup::new(vec![piece.of(file.clone())])));
    }
    let partitions = Partitioning::UnknownPartitioning(groups.len());
    let config = FileScanConfigBuilder::from(config.clone())
        .with_file_groups(groups)
        .with_output_partitioning(Some(partitions))
        .build();
    let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
    let mut cut: Arc<dyn ExecutionPlan> = DataSourceExec::from_data_source(config);
    for node in above.into_iter().rev() {
        cut = node.replace_children(vec![cut], options)?;
    }
    Ok(cut)
}

/// Streams a plan's partitions one after the other, and lets so many run at once.
pub(super) fn one_after_the_other(
    plan: Arc<dyn ExecutionPlan>,
    context: Arc<TaskContext>,
    at_once: usize,
) -> SendableRecordBatchStream {
    let schema = plan.schema();
    let reading = Reading { plan, context, at_once: at_once.max(1), next: 0, running: VecDeque::new() };
    let rows = futures::stream::try_unfold(reading, |mut reading| async move {
        loop {
            reading.start()?;
            let Some(first) = reading.running.front_mut() else {
                return Ok(None);
            };
            match first.try_next().await? {
                Some(batch) => return Ok(Some((batch, reading))),
                None => drop(reading.running.pop_front()),
            }
        }
    });
    Box::pin(RecordBatchStreamAdapter::new(schema, rows))
}

struct Reading {
    plan: Arc<dyn ExecutionPlan>,
    context: Arc<TaskContext>,
    at_once: usize,
    next: usize,
    running: VecDeque<SendableRecordBatchStream>,
}

impl Reading {
    fn start(&mut self) -> datafusion::common::Result<()> {
        let partitions = self.plan.output_partitioning().partition_count();
        while self.next < partitions && self.running.len() < self.at_once {
            let rows = self.plan.execute(self.next, Arc::clone(&self.context))?;
            self.running.push_back(spawn_buffered(rows, AHEAD));
            self.next += 1;
        }
        Ok(())
    }
}
