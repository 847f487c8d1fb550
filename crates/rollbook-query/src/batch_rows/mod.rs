//! Few rows a batch where rows are long, many where they are short, in one plan.
//!
//! A plan that reads prompts runs in batches of few rows, since joins, sorts and filters gather as many rows as a batch has. What it
//! makes of them is short: counts, digests, runs. In batches of one row a group by or a window over those costs a thousand times what
//! it must.
//!
//! ```text
//! AggregateExec                              AggregateExec
//!   HashJoinExec: call_id, digest      ->      HashJoinExec                       batches of 8,192 rows
//!     ProjectionExec: call_id, f(prompt)         ProjectionExec
//!       FilterExec: prompt                         BatchRowsExec: rows=6
//!         DecodeExec: call_id, prompt                FilterExec                   batches of 6 rows
//!           DataSourceExec: suffix                     DecodeExec                 batches of 2 MB
//!                                                        BatchRowsExec: rows=8192
//!                                                          DataSourceExec         batches of its own
//! ```

mod exec;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Schema};
use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::{ChildrenPropertiesMode, ExecutionPlan, ReplaceChildrenOptions};

pub(crate) use exec::BatchRowsExec;

use crate::provider::DecodeExec;

/// A filter of long rows gathers this part of a batch.
const GATHERED: usize = 4;

/// Lets every operator run in batches that suit the rows it gives.
#[derive(Debug)]
pub(crate) struct BatchRows {
    /// Rows of a batch that has long columns: those of the session the plan runs in.
    pub(crate) long: usize,
    /// Rows of any other batch.
    pub(crate) short: usize,
}

impl PhysicalOptimizerRule for BatchRows {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _config: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        if self.long >= self.short {
            return Ok(plan);
        }
        self.suit(plan, self.long)
    }

    fn name(&self) -> &'static str {
        "batch_rows"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

impl BatchRows {
    /// The plan for a consumer that runs in batches of so many rows.
    fn suit(&self, plan: Arc<dyn ExecutionPlan>, around: usize) -> Result<Arc<dyn ExecutionPlan>> {
        let own = if is_long(&plan.schema(), has_requests(&plan)) { self.long } else { self.short };
        // It cuts what it gives by bytes: the scan below it, of stored rows, knows its own size.
        let decodes = plan.downcast_ref::<DecodeExec>().is_some();
        let below = |child: &Arc<dyn ExecutionPlan>| {
            let child = Arc::clone(child);
            if decodes { Ok(Arc::new(BatchRowsExec::new(child, self.short)) as _) } else { self.suit(child, own) }
        };
        let children = plan.children().into_iter().map(below).collect::<Result<Vec<Arc<dyn ExecutionPlan>>>>()?;
        let plan = if children.is_empty() {
            plan
        } else {
            plan.replace_children(children, ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute))?
        };
        // A filter was told its rows when it was planned. It gathers what it keeps up to them, and copies: long rows go on as they come
        // unless few are kept.
        let gathered = if own == self.short { own } else { own.div_ceil(GATHERED) };
        let plan = match plan.downcast_ref::<FilterExec>() {
            Some(filter) => Arc::new(filter.with_batch_size(gathered)?) as Arc<dyn ExecutionPlan>,
            None => plan,
        };
        Ok(if own == around { plan } else { Arc::new(BatchRowsExec::new(plan, own)) })
    }
}

/// Whether any row may be long: lists are, and texts where requests are read, whatever they are called by now.
fn is_long(schema: &Schema, texts: bool) -> bool {
    fn is_list(kind: &DataType) -> bool {
        match kind {
            DataType::List(_) | DataType::LargeList(_) | DataType::ListView(_) | DataType::LargeListView(_) => true,
            DataType::Struct(fields) => fields.iter().any(|field| is_list(field.data_type())),
            _ => false,
        }
    }
    schema.fields().iter().map(|field| field.data_type()).any(|kind| is_list(kind) || (texts && kind.is_string()))
}

fn has_requests(plan: &Arc<dyn ExecutionPlan>) -> bool {
    plan.downcast_ref::<DecodeExec>().is_some_and(DecodeExec::rebuilds_requests)
        || plan.children().into_iter().any(has_requests)
}
