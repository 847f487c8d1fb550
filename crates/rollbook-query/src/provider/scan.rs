//! The physical scans of a table's files.

use std::sync::Arc;

use datafusion::arrow::compute::SortOptions;
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, DataFusionError, Result, ScalarValue, Statistics};
use datafusion::config::TableParquetOptions;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::parquet::{CachedParquetFileReaderFactory, ParquetFileReaderFactory};
use datafusion::datasource::physical_plan::{FileGroup, FileScanConfigBuilder, ParquetSource};
use datafusion::datasource::source::DataSourceExec;
use datafusion::datasource::table_schema::TableSchema;
use datafusion::logical_expr::Expr;
use datafusion::logical_expr::utils::conjunction;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{LexOrdering, PhysicalExpr, PhysicalSortExpr};
use datafusion::physical_plan::empty::EmptyExec;
use datafusion::physical_plan::{ExecutionPlan, Partitioning};
use rollbook_lake::{DataFile, holds_whole_rollouts, sort_columns};

use super::deal::{Piece, deal, footer_of, is_worth_cutting, row_group_pieces};
use super::decode::{DecodeExec, stored_columns};
use super::table::{ENTRY, FILE, LakeTable};
use crate::session::BatchBytes;

/// Filters on these keep or drop whole rollouts, so that bases stay beside the rows that need them.
const ROLLOUT_KEYS: [&str; 4] = ["run_id", "step", "group_id", "rollout_id"];

/// One scan, its files already chosen.
pub(super) struct Scan<'a> {
    pub(super) table: &'a LakeTable,
    pub(super) files: Vec<Arc<DataFile>>,
    pub(super) columns: Vec<String>,
    pub(super) filters: &'a [Expr],
    pub(super) limit: Option<usize>,
}

impl Scan<'_> {
    /// Reads stored columns as they are.
    pub(super) fn plain(&self, state: &dyn Session) -> Result<Arc<dyn ExecutionPlan>> {
        if self.files.is_empty() {
            return Ok(Arc::new(EmptyExec::new(self.output()?)));
        }
        let files: Vec<PartitionedFile> = (0..self.files.len()).filter_map(|index| self.file(index)).collect();
        let groups = match state.config().target_partitions() {
            // To split is to sort by path, and files follow one another as they were written.
            1 => vec![FileGroup::new(files)],
            partitions => FileGroup::new(files).split_files(partitions),
        };
        let mut builder =
            self.builder(state, self.source(state)?, &self.columns)?.with_file_groups(groups).with_limit(self.limit);
        if let [file] = self.files.as_slice()
            && file.sorted
        {
            builder = builder.with_output_ordering(self.ordering());
        }
        Ok(DataSourceExec::from_data_source(builder.build()))
    }

    /// Reads files, or row groups that hold whole rollouts, rollout by rollout, and rebuilds prompts and requests.
    pub(super) async fn decoded(&self, state: &dyn Session) -> Result<Arc<dyn ExecutionPlan>> {
        if self.files.is_empty() {
            return Ok(Arc::new(EmptyExec::new(self.output()?)));
        }
        let mut source = self.source(state)?;
        let groups = self.dealt(state, &source, state.config().target_partitions()).await?;
        let below: Vec<Expr> = self.filters.iter().filter(|filter| is_on_rollout(filter)).cloned().collect();
        if let Some(filter) = conjunction(below) {
            let schema = DFSchema::try_from(Arc::clone(source.table_parquet_schema()))?;
            source.predicate(state.create_physical_expr(filter, &schema)?);
        }
        let stored = stored_columns(&self.columns);
        let partitions = groups.len();
        let config = self
            .builder(state, source, &stored)?
            .with_file_groups(groups)
            .with_preserve_order(true)
            // Declared partitioning keeps the optimizer from splitting files and the scan from trading them.
            .with_output_partitioning(Some(Partitioning::UnknownPartitioning(partitions)))
            .build();
        let scan = DataSourceExec::from_data_source(config);
        let row_bytes = self.table.row_bytes(self.columns.iter().map(String::as_str));
        Ok(Arc::new(DecodeExec::try_new(scan, &self.columns, row_bytes)?))
    }

    fn output(&self) -> Result<SchemaRef> {
        let schema = self.table.schema();
        let fields: Vec<Arc<Field>> = self
            .columns
            .iter()
            .map(|name| schema.field_with_name(name).map(|field| Arc::new(field.clone())))
            .collect::<Result<_, _>>()?;
        Ok(Arc::new(Schema::new(fields)))
    }

    fn source(&self, state: &dyn Session) -> Result<Source> {
        let physical = self.table.definition().physical();
        let of_file = self.table.has_entry().then_some(ENTRY).into_iter().chain([FILE]);
        let of_file = of_file.map(|name| Arc::new(Field::new(name, DataType::Int64, false)));
        let schema = TableSchema::builder(physical).with_table_partition_cols(of_file.collect::<Vec<_>>()).build();
        let runtime = state.runtime_env();
        let store = runtime.object_store(self.table.store())?;
        let cache = runtime.cache_manager.get_file_metadata_cache();
        let options = TableParquetOptions {
            global: state.config_options().execution.parquet.clone(),
            ..TableParquetOptions::default()
        };
        let readers = Arc::new(CachedParquetFileReaderFactory::new(store, cache));
        Ok(Source { source: parquet_source(schema.clone(), options, readers), schema })
    }

    fn builder(&self, state: &dyn Session, source: Source, columns: &[String]) -> Result<FileScanConfigBuilder> {
        let Source { source, schema } = source;
        let schema = Arc::clone(schema.table_schema());
        let indices = columns.iter().map(|name| schema.index_of(name)).collect::<Result<Vec<_>, _>>()?;
        let mut statistics = Statistics::new_unknown(&schema);
        let rows: u64 = self.files.iter().map(|file| file.rows).sum();
        let bytes: u64 = self.files.iter().map(|file| file.size).sum();
        statistics.num_rows = Precision::Exact(to_usize(rows));
        statistics.total_byte_size = Precision::Inexact(to_usize(bytes));
        let row_bytes = self.table.row_bytes(columns.iter().map(String::as_str));
        let batch_rows =
            BatchBytes::of(state.config()).0.checked_div(row_bytes).map(|rows| to_usize(rows).clamp(1, 8192));
        FileScanConfigBuilder::new(self.table.store().clone(), Arc::new(source))
            .with_statistics(statistics)
            .with_batch_size(batch_rows)
            .with_projection_indices(Some(indices))
    }

    fn file(&self, index: usize) -> Option<PartitionedFile> {
        let file = self.files.get(index)?;
        let entry = self.table.has_entry().then_some(i64::try_from(file.snapshot).unwrap_or(i64::MAX));
        let number = i64::try_from(index).ok();
        let of_file = entry.into_iter().chain(number).map(|value| ScalarValue::Int64(Some(value)));
        let part = PartitionedFile::new(file.path.clone(), file.size);
        Some(part.with_partition_values(of_file.collect()))
    }

    /// Deals the files out to partitions: whole, or by row groups where one file holds much of all there is and its
    /// row groups can be decoded each for itself.
    async fn dealt(&self, state: &dyn Session, source: &Source, partitions: usize) -> Result<Vec<FileGroup>> {
        let sizes: Vec<u64> = self.files.iter().map(|file| file.size).collect();
        let mut pieces = Vec::with_capacity(sizes.len());
        for (index, file) in self.files.iter().enumerate() {
            if is_worth_cutting(file.size, sizes.iter().sum(), partitions)
                && let Some(part) = self.file(index)
            {
                let footer = footer_of(&source.source, part, state.config_options()).await?;
                pieces.extend(if holds_whole_rollouts(&footer) {
                    row_group_pieces(index, file.size, &footer)
                } else {
                    vec![Piece::whole(index, file.size)]
                });
            } else {
                pieces.push(Piece::whole(index, file.size));
            }
        }
        let group = |pieces: Vec<Piece>| {
            pieces.into_iter().filter_map(|piece| Some(piece.of(self.file(piece.file)?))).collect()
        };
        Ok(deal(pieces, partitions).into_iter().map(|pieces| FileGroup::new(group(pieces))).collect())
    }

    fn ordering(&self) -> Vec<LexOrdering> {
        let table = self.table.definition();
        let schema = table.physical();
        let options = SortOptions { descending: false, nulls_first: false };
        let exprs = sort_columns(table).into_iter().filter_map(|name| {
            let column = Column::new_with_schema(name, &schema).ok()?;
            Some(PhysicalSortExpr::new(Arc::new(column), options))
        });
        LexOrdering::new(exprs).into_iter().collect()
    }
}

/// A source of a table's files, without predicate or projection.
pub(crate) fn parquet_source(
    schema: TableSchema,
    options: TableParquetOptions,
    readers: Arc<dyn ParquetFileReaderFactory>,
) -> ParquetSource {
    let hint = options.global.metadata_size_hint;
    let source =
        ParquetSource::new(schema).with_table_parquet_options(options).with_parquet_file_reader_factory(readers);
    match hint {
        // A footer in one request, not two.
        Some(hint) => source.with_metadata_size_hint(hint),
        None => source,
    }
}

/// A Parquet source with the schema it was made for.
struct Source {
    source: ParquetSource,
    schema: TableSchema,
}

impl Source {
    fn table_parquet_schema(&self) -> &SchemaRef {
        self.schema.table_schema()
    }

    fn predicate(&mut self, predicate: Arc<dyn PhysicalExpr>) {
        self.source = self.source.with_predicate(predicate);
    }
}

/// Whether a filter reads nothing but the keys that a whole rollout shares.
fn is_on_rollout(filter: &Expr) -> bool {
    let mut only_keys = true;
    let visited = filter.apply(|expr| {
        match expr {
            Expr::Column(column) if !ROLLOUT_KEYS.contains(&column.name.as_str()) => {
                only_keys = false;
            }
            Expr::Exists(_) | Expr::InSubquery(_) | Expr::ScalarSubquery(_) | Expr::OuterReferenceColumn(..) => {
                only_keys = false;
            }
            _ => {}
        }
        Ok::<_, DataFusionError>(TreeNodeRecursion::Continue)
    });
    only_keys && visited.is_ok() && !filter.is_volatile()
}

fn to_usize(n: u64) -> usize {
    usize::try_from(n).unwrap_or(usize::MAX)
}
