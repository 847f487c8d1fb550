//! What a scan makes of lists, lifted out of it: the scan's own reader of Parquet is slow at lists, and knows no lengths without values.
//!
//! ```text
//! DataSourceExec: call_id, f(output_logprobs) AS f, predicate=step = 3 AND cardinality(sampled_mask) < 9
//!   ->
//! ProjectionExec: call_id, f(output_logprobs) AS f
//!   FilterExec: cardinality(sampled_mask) < 9
//!     DataSourceExec: call_id, output_logprobs, cardinality(sampled_mask), predicate=step = 3
//! ```
//!
//! What is computed of the length of a list, or asks whether it is null, needs none of its values.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DataFusionError, Result, internal_datafusion_err};
use datafusion::datasource::physical_plan::{FileScanConfig, FileScanConfigBuilder, FileSource, ParquetSource};
use datafusion::datasource::source::DataSourceExec;
use datafusion::datasource::table_schema::TableSchema;
use datafusion::functions_nested::cardinality::cardinality_udf;
use datafusion::physical_expr::expressions::{CastExpr, Column, IsNotNullExpr, IsNullExpr};
use datafusion::physical_expr::projection::{ProjectionExpr, ProjectionExprs};
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr, conjunction_opt, split_conjunction};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::filter::{FilterExec, FilterExecBuilder};
use datafusion::physical_plan::projection::ProjectionExec;
use rollbook_lake::lists::Lists;

use crate::provider::parquet_source;

/// Functions that give a list's length; the first is what a scan is asked for.
const LENGTHS: [&str; 3] = ["cardinality", "array_length", "length"];

/// A scan that gives lists and lengths, and what is made of them above it.
pub(super) struct Lifted {
    /// Gives columns, lists, their lengths, and what is computed of other columns.
    pub(super) scan: Arc<dyn ExecutionPlan>,
    filter: Option<Arc<dyn PhysicalExpr>>,
    projection: Vec<ProjectionExpr>,
    limit: Option<usize>,
    batch_rows: usize,
}

impl Lifted {
    /// Takes lists out of what a scan of the lake computes, or the filter and the projection above it; `None` where that gains nothing.
    pub(super) fn of(plan: &Arc<dyn ExecutionPlan>, options: &ConfigOptions) -> Result<Option<Self>> {
        let Some(computed) = Computed::of(plan)? else {
            return Ok(None);
        };
        let Computed { config, source, .. } = computed;
        let (schema, Some(readers)) = (source.table_schema(), source.parquet_file_reader_factory()) else {
            return Ok(None);
        };
        let scan_conjuncts = source.filter();
        let scan_conjuncts = scan_conjuncts.iter().flat_map(split_conjunction).map(Arc::clone);
        let (mut late, early): (Vec<_>, Vec<_>) = scan_conjuncts.partition(|expr| Uses::of([expr], schema).any_list());
        late.extend(computed.filter.iter().flat_map(split_conjunction).map(Arc::clone));
        // What may fail on a row must not see one that the filter leaves out.
        let is_made = |expr: &ProjectionExpr| {
            expr.expr.downcast_ref::<Column>().is_none()
                && (!late.is_empty() || Uses::of([&expr.expr], schema).any_list())
        };
        let (made, kept): (Vec<_>, Vec<_>) = computed.exprs.iter().partition(|expr| is_made(expr));
        let mut uses = Uses::of(made.iter().map(|made| &made.expr).chain(&late), schema);
        let is_lifted = uses.any_list();
        uses.values.extend(kept.iter().filter_map(|kept| list_of(&kept.expr, schema)));
        if !is_lifted || (computed.is_above && uses.lengths.is_subset(&uses.values)) {
            return Ok(None);
        }
        let leaves = Leaves::new(&kept, &uses, schema, options)?;
        let mut places = 0..kept.len();
        let mut projection = Vec::with_capacity(computed.exprs.len());
        for expr in &computed.exprs {
            let place = if is_made(expr) { None } else { places.next() };
            let over = match place {
                Some(place) => leaves.given(place),
                None => leaves.onto(&expr.expr, schema)?,
            };
            projection.push(ProjectionExpr::new(over, expr.alias.clone()));
        }
        let late = late.iter().map(|expr| leaves.onto(expr, schema)).collect::<Result<Vec<_>>>()?;
        let filter = conjunction_opt(late);
        let mut narrow = parquet_source(schema.clone(), source.table_parquet_options().clone(), Arc::clone(readers));
        if let Some(early) = conjunction_opt(early) {
            narrow = narrow.with_predicate(early);
        }
        let Some(narrow) = narrow.try_pushdown_projection(&ProjectionExprs::new(leaves.exprs))? else {
            return Ok(None);
        };
        // A limit counts rows that pass the filter.
        let (below, limit) = if filter.is_some() { (None, computed.limit) } else { (computed.limit, None) };
        let long_rows = config.batch_size.filter(|_| !uses.values.is_empty());
        let scan = FileScanConfigBuilder::from(config.clone()).with_source(narrow).with_limit(below);
        Ok(Some(Self {
            scan: DataSourceExec::from_data_source(scan.with_batch_size(long_rows).build()),
            filter,
            projection,
            limit,
            batch_rows: long_rows.unwrap_or(options.execution.batch_size.get()),
        }))
    }

    /// Computes what the scan did, over what now gives its columns.
    pub(super) fn over(self, mut lists: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
        if let Some(filter) = self.filter {
            let filter = FilterExecBuilder::new(filter, lists).with_fetch(self.limit).with_batch_size(self.batch_rows);
            lists = Arc::new(filter.build()?);
        }
        Ok(Arc::new(ProjectionExec::try_new(self.projection, lists)?))
    }
}

/// A scan, and what it and the operators above it compute of a table's columns.
struct Computed<'a> {
    config: &'a FileScanConfig,
    source: &'a ParquetSource,
    exprs: Vec<ProjectionExpr>,
    /// What the filter above the scan asks besides.
    filter: Option<Arc<dyn PhysicalExpr>>,
    limit: Option<usize>,
    /// Whether operators above the scan are part of it.
    is_above: bool,
}

impl<'a> Computed<'a> {
    /// Reads a scan, or a filter, a projection, or a projection of a filter over a scan of plain columns.
    fn of(plan: &'a Arc<dyn ExecutionPlan>) -> Result<Option<Self>> {
        let projection = plan.downcast_ref::<ProjectionExec>();
        let below = projection.map_or(plan, ProjectionExec::input);
        let filter = below.downcast_ref::<FilterExec>();
        let scan = filter.map_or(below, FilterExec::input).downcast_ref::<DataSourceExec>();
        let Some((config, source)) = scan.and_then(DataSourceExec::downcast_to_file_source::<ParquetSource>) else {
            return Ok(None);
        };
        let Some(given) = source.projection() else {
            return Ok(None);
        };
        let mut computed = Self {
            config,
            source,
            exprs: given.iter().cloned().collect(),
            filter: None,
            limit: config.limit,
            is_above: projection.is_some() || filter.is_some(),
        };
        let is_column = |expr: &ProjectionExpr| expr.expr.downcast_ref::<Column>().is_some();
        if computed.is_above && !given.iter().all(is_column) {
            return Ok(None);
        }
        if let Some(filter) = filter {
            if config.limit.is_some() {
                return Ok(None);
            }
            computed.filter = Some(given.unproject_expr(filter.predicate())?);
            computed.limit = filter.fetch();
            if let Some(places) = filter.projection() {
                computed.exprs = places.iter().map(|&place| computed.exprs[place].clone()).collect();
            }
        }
        if let Some(projection) = projection {
            let given = ProjectionExprs::new(computed.exprs);
            let onto =
                |made: &ProjectionExpr| Ok(ProjectionExpr::new(given.unproject_expr(&made.expr)?, made.alias.clone()));
            computed.exprs = projection.expr().iter().map(onto).collect::<Result<_>>()?;
        }
        Ok(Some(computed))
    }
}

/// The place of the stored list that an expression is.
pub(super) fn list_of(expr: &Arc<dyn PhysicalExpr>, schema: &TableSchema) -> Option<usize> {
    let place = expr.downcast_ref::<Column>()?.index();
    match schema.file_schema().fields().get(place)?.data_type() {
        DataType::List(item) if Lists::new(item, 0).is_some() => Some(place),
        _ => None,
    }
}

/// The place of the stored list whose length a scan is asked for.
pub(super) fn cardinality_of(expr: &Arc<dyn PhysicalExpr>, schema: &TableSchema) -> Option<usize> {
    length_by(&LENGTHS[..1], expr, schema)
}

/// The place of the stored list whose length an expression is.
fn length_of(expr: &Arc<dyn PhysicalExpr>, schema: &TableSchema) -> Option<usize> {
    length_by(&LENGTHS, expr, schema)
}

fn length_by(names: &[&str], expr: &Arc<dyn PhysicalExpr>, schema: &TableSchema) -> Option<usize> {
    let function = expr.downcast_ref::<ScalarFunctionExpr>().filter(|function| names.contains(&function.name()))?;
    match function.args() {
        [list] => list_of(list, schema),
        _ => None,
    }
}

/// The list of which an expression asks whether it is null.
fn null_of(expr: &Arc<dyn PhysicalExpr>, schema: &TableSchema) -> Option<usize> {
    let is_null = expr.downcast_ref::<IsNullExpr>().map(IsNullExpr::arg);
    list_of(is_null.or_else(|| Some(expr.downcast_ref::<IsNotNullExpr>()?.arg()))?, schema)
}

/// Columns of a table that expressions read.
#[derive(Default)]
struct Uses {
    /// Lists whose values are read.
    values: BTreeSet<usize>,
    /// Lists whose lengths are read.
    lengths: BTreeSet<usize>,
    others: BTreeSet<usize>,
}

impl Uses {
    fn of<'a>(exprs: impl IntoIterator<Item = &'a Arc<dyn PhysicalExpr>>, schema: &TableSchema) -> Self {
        let mut uses = Self::default();
        for expr in exprs {
            let seen = expr.apply(|node| {
                if let Some(list) = length_of(node, schema).or_else(|| null_of(node, schema)) {
                    uses.lengths.insert(list);
                    return Ok(TreeNodeRecursion::Jump);
                }
                if let Some(list) = list_of(node, schema) {
                    uses.values.insert(list);
                } else if let Some(column) = node.downcast_ref::<Column>() {
                    uses.others.insert(column.index());
                }
                Ok::<_, DataFusionError>(TreeNodeRecursion::Continue)
            });
            debug_assert!(seen.is_ok(), "nothing fails here");
        }
        uses
    }

    fn any_list(&self) -> bool {
        !self.values.is_empty() || !self.lengths.is_empty()
    }
}

/// What a scan gives, and where.
struct Leaves {
    exprs: Vec<ProjectionExpr>,
    columns: BTreeMap<usize, usize>,
    lengths: BTreeMap<usize, usize>,
}

impl Leaves {
    /// First what is kept, then every column and length that is used besides.
    fn new(kept: &[&ProjectionExpr], uses: &Uses, schema: &TableSchema, options: &ConfigOptions) -> Result<Self> {
        let mut exprs: Vec<ProjectionExpr> = kept.iter().map(|&kept| kept.clone()).collect();
        let mut columns = BTreeMap::new();
        for (place, expr) in exprs.iter().enumerate() {
            if let Some(column) = expr.expr.downcast_ref::<Column>() {
                columns.insert(column.index(), place);
            }
        }
        let column = |index: usize| {
            let name = schema.table_schema().field(index).name();
            (Arc::new(Column::new(name, index)) as Arc<dyn PhysicalExpr>, name.clone())
        };
        for &index in uses.values.union(&uses.others) {
            columns.entry(index).or_insert_with(|| {
                exprs.push(column(index).into());
                exprs.len() - 1
            });
        }
        let mut lengths = BTreeMap::new();
        let options = Arc::new(options.clone());
        for &index in uses.lengths.difference(&uses.values) {
            let (list, name) = column(index);
            let table = schema.table_schema();
            let length = ScalarFunctionExpr::try_new(cardinality_udf(), vec![list], table, Arc::clone(&options))?;
            exprs.push(ProjectionExpr::new(Arc::new(length), format!("cardinality({name})")));
            lengths.insert(index, exprs.len() - 1);
        }
        Ok(Self { exprs, columns, lengths })
    }

    /// A column that the scan gives.
    fn given(&self, place: usize) -> Arc<dyn PhysicalExpr> {
        Arc::new(Column::new(&self.exprs[place].alias, place))
    }

    /// The same expression over what the scan gives.
    fn onto(&self, expr: &Arc<dyn PhysicalExpr>, schema: &TableSchema) -> Result<Arc<dyn PhysicalExpr>> {
        let over = Arc::clone(expr).transform_down(|node| {
            let length =
                |list: Option<usize>| list.and_then(|list| self.lengths.get(&list)).map(|&place| self.given(place));
            let replaced = if let Some(length) = length(length_of(&node, schema)) {
                let kind = node.data_type(schema.table_schema())?;
                if kind == DataType::UInt64 { length } else { Arc::new(CastExpr::new(length, kind, None)) as _ }
            } else if let Some(length) = length(null_of(&node, schema)) {
                let is_null = node.downcast_ref::<IsNullExpr>().is_some();
                if is_null { Arc::new(IsNullExpr::new(length)) as _ } else { Arc::new(IsNotNullExpr::new(length)) as _ }
            } else if let Some(column) = node.downcast_ref::<Column>() {
                let place = self.columns.get(&column.index());
                self.given(*place.ok_or_else(|| internal_datafusion_err!("a scan does not give {column}"))?)
            } else {
                return Ok(Transformed::no(node));
            };
            Ok(Transformed::new(replaced, true, TreeNodeRecursion::Jump))
        });
        over.map(|over| over.data)
    }
}
