//! Files that a filter cannot match, left out before any of them is opened.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, BooleanArray, Int64Array, StringArray, UInt64Array};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::Session;
use datafusion::common::pruning::PruningStatistics;
use datafusion::common::{Column, DFSchema, Result, ScalarValue};
use datafusion::logical_expr::Expr;
use datafusion::logical_expr::utils::conjunction;
use datafusion::physical_optimizer::pruning::PruningPredicateBuilder;
use rollbook_lake::DataFile;

/// Keeps the files whose key ranges can hold a matching row.
pub(super) fn matching(
    files: &[Arc<DataFile>],
    filters: &[Expr],
    schema: &SchemaRef,
    state: &dyn Session,
) -> Result<Vec<Arc<DataFile>>> {
    let Some(filter) = conjunction(filters.to_vec()) else {
        return Ok(files.to_vec());
    };
    let df_schema = DFSchema::try_from(Arc::clone(schema))?;
    let Ok(expr) = state.create_physical_expr(filter, &df_schema) else {
        return Ok(files.to_vec());
    };
    let Ok(predicate) = PruningPredicateBuilder::new().with_file_schema(Arc::clone(schema)).try_build(expr) else {
        return Ok(files.to_vec());
    };
    let keep = predicate.prune(&Ranges { files })?;
    Ok(files.iter().zip(keep).filter(|(_, keep)| *keep).map(|(file, _)| Arc::clone(file)).collect())
}

/// What the snapshot knows of each file's keys.
struct Ranges<'a> {
    files: &'a [Arc<DataFile>],
}

impl Ranges<'_> {
    /// Step and group of an unresolved file are filled while reading: their stored ranges say nothing.
    fn bounds(
        &self,
        column: &Column,
        end: impl Fn(&DataFile) -> (Option<&str>, Option<i64>, Option<&str>),
    ) -> Option<ArrayRef> {
        let ends = || self.files.iter().map(|file| (file.unresolved, end(file)));
        match column.name.as_str() {
            "run_id" => Some(Arc::new(ends().map(|(_, (run, _, _))| run).collect::<StringArray>())),
            "step" => Some(Arc::new(ends().map(|(open, (_, step, _))| step.filter(|_| !open)).collect::<Int64Array>())),
            "group_id" => {
                Some(Arc::new(ends().map(|(open, (_, _, group))| group.filter(|_| !open)).collect::<StringArray>()))
            }
            _ => None,
        }
    }
}

impl PruningStatistics for Ranges<'_> {
    fn min_values(&self, column: &Column) -> Option<ArrayRef> {
        self.bounds(column, |file| {
            (
                file.run_id.as_ref().map(|(min, _)| min.as_str()),
                file.step.map(|(min, _)| min),
                file.group_id.as_ref().map(|(min, _)| min.as_str()),
            )
        })
    }

    fn max_values(&self, column: &Column) -> Option<ArrayRef> {
        self.bounds(column, |file| {
            (
                file.run_id.as_ref().map(|(_, max)| max.as_str()),
                file.step.map(|(_, max)| max),
                file.group_id.as_ref().map(|(_, max)| max.as_str()),
            )
        })
    }

    fn num_containers(&self) -> usize {
        self.files.len()
    }

    fn null_counts(&self, column: &Column) -> Option<ArrayRef> {
        let nulls = |file: &DataFile| match column.name.as_str() {
            "step" if !file.unresolved => Some(file.step_nulls),
            "group_id" if !file.unresolved => Some(file.group_nulls),
            _ => None,
        };
        Some(Arc::new(self.files.iter().map(|file| nulls(file)).collect::<UInt64Array>()))
    }

    fn row_counts(&self) -> Option<ArrayRef> {
        Some(Arc::new(self.files.iter().map(|file| Some(file.rows)).collect::<UInt64Array>()))
    }

    fn contained(&self, _column: &Column, _values: &HashSet<ScalarValue>) -> Option<BooleanArray> {
        None
    }
}
