//! The operator that reads lists beside a scan.

use std::fmt;
use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, Statistics, internal_err};
use datafusion::datasource::physical_plan::{
    FileGroup, FileScanConfig, FileScanConfigBuilder, FileSource, ParquetSource,
};
use datafusion::datasource::source::DataSourceExec;
use datafusion::datasource::table_schema::TableSchema;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::projection::{ProjectionExpr, ProjectionExprs};
use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties, ReplaceChildrenOptions,
};
use parquet::arrow::RowNumber;

use super::lift::{cardinality_of, list_of};
use super::reading::{Files, Part, Reading, Wanted};
use crate::provider::{FILE, parquet_source};
use crate::same_rows::same_rows;

/// Name of the row's place in its file, in the scan that runs.
const ROW: &str = "_row";

/// Gives the rows of its input, a scan of the lake, and reads the lists among its columns, or their lengths, itself.
#[derive(Debug, Clone)]
pub(crate) struct ListsExec {
    input: Arc<dyn ExecutionPlan>,
    /// `None` = the input is no scan of ours, or has no list: it runs as it is.
    beside: Option<Beside>,
    metrics: ExecutionPlanMetricsSet,
}

/// The scan that runs in the input's place.
#[derive(Debug, Clone)]
struct Beside {
    /// Everything but the lists, then file and row.
    scan: Arc<dyn ExecutionPlan>,
    /// Where each column of the input comes from.
    parts: Arc<[Part]>,
    files: Arc<Files>,
}

impl ListsExec {
    /// Creates the operator.
    pub(crate) fn new(input: Arc<dyn ExecutionPlan>) -> Self {
        let beside = Beside::of(&input);
        Self { input, beside, metrics: ExecutionPlanMetricsSet::new() }
    }

    /// Whether it reads any list.
    pub(crate) fn reads_any(&self) -> bool {
        self.beside.is_some()
    }

    #[expect(clippy::unused_self, reason = "what operators of the same rows have in common calls it as a method")]
    fn over(&self, input: Arc<dyn ExecutionPlan>) -> Self {
        Self::new(input)
    }

    fn names(&self) -> String {
        let lists = self.beside.iter().flat_map(|beside| beside.files.lists());
        lists.map(ToString::to_string).collect::<Vec<_>>().join(", ")
    }
}

impl Beside {
    fn of(input: &Arc<dyn ExecutionPlan>) -> Option<Self> {
        let scan = input.downcast_ref::<DataSourceExec>()?;
        let (config, source) = scan.downcast_to_file_source::<ParquetSource>()?;
        let schema = source.table_schema();
        let place = schema.table_partition_cols().iter().position(|column| column.name() == FILE)?;
        let factory = Arc::clone(source.parquet_file_reader_factory()?);
        let mut parts = Vec::new();
        let (mut kept, mut lists) = (Vec::new(), Vec::new());
        for expr in source.projection()?.iter() {
            let (list, length) = (list_of(&expr.expr, schema), cardinality_of(&expr.expr, schema));
            if let Some(place) = list.or(length) {
                let field = Arc::clone(&schema.file_schema().fields()[place]);
                parts.push(Part::List);
                lists.push(if list.is_some() { Wanted::List(field) } else { Wanted::Length(field) });
            } else {
                parts.push(Part::Column(kept.len()));
                kept.push(expr.clone());
            }
        }
        if lists.is_empty() {
            return None;
        }
        let reads_all = source.filter().is_none() && config.limit.is_none();
        let files = config.file_groups.iter().flat_map(FileGroup::files);
        let files = Files::new(files, place, factory, lists, reads_all)?;
        let scan = DataSourceExec::from_data_source(narrowed(config, source, kept).ok()?);
        Some(Self { scan, parts: parts.into(), files: Arc::new(files) })
    }
}

/// The same scan with these columns, file and row.
fn narrowed(config: &FileScanConfig, source: &ParquetSource, mut kept: Vec<ProjectionExpr>) -> Result<FileScanConfig> {
    let schema = source.table_schema();
    let row = Field::new(ROW, DataType::Int64, false).with_extension_type(RowNumber);
    let schema = TableSchema::builder(Arc::clone(schema.file_schema()))
        .with_table_partition_cols(schema.table_partition_cols().clone())
        .with_virtual_columns(vec![Arc::new(row)])
        .build();
    for name in [FILE, ROW] {
        let column = Column::new_with_schema(name, schema.table_schema())?;
        kept.push(ProjectionExpr { expr: Arc::new(column), alias: name.to_owned() });
    }
    let Some(factory) = source.parquet_file_reader_factory() else {
        return internal_err!("a scan of the lake has no reader of its files");
    };
    let mut narrow = parquet_source(schema.clone(), source.table_parquet_options().clone(), Arc::clone(factory));
    if let Some(predicate) = source.filter() {
        narrow = narrow.with_predicate(predicate);
    }
    let Some(narrow) = narrow.try_pushdown_projection(&ProjectionExprs::new(kept))? else {
        return internal_err!("a scan of Parquet takes no projection");
    };
    let statistics = Statistics::new_unknown(schema.table_schema());
    Ok(FileScanConfigBuilder::from(config.clone()).with_source(narrow).with_statistics(statistics).build())
}

impl DisplayAs for ListsExec {
    fn fmt_as(&self, t: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match t {
            DisplayFormatType::Default | DisplayFormatType::Verbose => write!(f, "ListsExec: lists=[{}]", self.names()),
            DisplayFormatType::TreeRender => write!(f, "lists={}", self.names()),
        }
    }
}

impl ExecutionPlan for ListsExec {
    fn name(&self) -> &'static str {
        "ListsExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.input.properties()
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    same_rows!();

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let Some(beside) = &self.beside else {
            return self.input.execute(partition, context);
        };
        let rows = beside.scan.execute(partition, context)?;
        let reading =
            Reading::new(Arc::clone(&beside.files), Arc::clone(&beside.parts), self.schema(), partition, &self.metrics);
        Ok(reading.beside(rows))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        let mut all = self.metrics.clone_inner();
        for metric in self
            .beside
            .iter()
            .filter_map(|beside| beside.scan.metrics())
            .flat_map(|set| set.iter().cloned().collect::<Vec<_>>())
        {
            all.push(metric);
        }
        Some(all)
    }
}
