//! The operator that computes credit windows over all groups of a partition.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, RecordBatch, RecordBatchOptions, UInt64Array};
use datafusion::arrow::compute::{concat, partition, take};
use datafusion::arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Result, ScalarValue, exec_err, internal_err};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::ColumnarValue;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::projection::{ProjectionExpr, ProjectionMapping};
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_expr::window::{StandardWindowExpr, WindowExpr};
use datafusion::physical_expr::{Distribution, EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::aggregates::group_values::{GroupValues, new_group_values};
use datafusion::physical_plan::aggregates::order::GroupOrdering;
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::windows::{WindowAggExec, WindowUDFExpr};
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties,
    InputDistributionRequirements, PlanProperties, ReplaceChildrenOptions,
};
use futures::{StreamExt, TryStreamExt, stream};
use rollbook_functions::{GroupWindow, Groups, evaluate_groups};

/// One window, and the places of its columns among those that are evaluated.
#[derive(Debug, Clone)]
struct Call {
    window: GroupWindow,
    columns: Vec<usize>,
}

/// Computes credit windows over all groups of its input partition; rows keep their order. Of the input only columns that leave are held.
#[derive(Debug, Clone)]
pub(crate) struct GroupedWindowExec {
    input: Arc<dyn ExecutionPlan>,
    window_exprs: Vec<Arc<dyn WindowExpr>>,
    keys: Vec<Arc<dyn PhysicalExpr>>,
    /// Columns that some call reads, each once.
    columns: Vec<Arc<dyn PhysicalExpr>>,
    calls: Vec<Call>,
    /// Columns that leave: of the input, then of the windows, by their places among all. `None` = all.
    kept: Option<Vec<usize>>,
    schema: SchemaRef,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl GroupedWindowExec {
    /// Creates the operator, of which all columns leave; `None` where one of the windows is no credit window, has an order, or another partition than the first.
    pub(crate) fn try_new(
        window_exprs: Vec<Arc<dyn WindowExpr>>,
        input: Arc<dyn ExecutionPlan>,
    ) -> Result<Option<Self>> {
        let Some(keys) = window_exprs.first().map(|window| window.partition_by().to_vec()) else {
            return Ok(None);
        };
        let mut columns: Vec<Arc<dyn PhysicalExpr>> = Vec::new();
        let mut calls = Vec::new();
        for window in &window_exprs {
            if window.partition_by() != keys || !window.order_by().is_empty() {
                return Ok(None);
            }
            let Some(call) = call(window, &mut columns)? else {
                return Ok(None);
            };
            calls.push(call);
        }
        let schema = WindowAggExec::try_new(window_exprs.clone(), Arc::clone(&input), true)?.schema();
        let properties = PlanProperties::new(
            EquivalenceProperties::new(Arc::clone(&schema)),
            input.output_partitioning().clone(),
            EmissionType::Final,
            Boundedness::Bounded,
        );
        Ok(Some(Self {
            input,
            window_exprs,
            keys,
            columns,
            calls,
            kept: None,
            schema,
            properties: Arc::new(properties),
            metrics: ExecutionPlanMetricsSet::new(),
        }))
    }

    /// Lets only these columns leave, so that of a million rows only what is asked for is held.
    pub(crate) fn keep(self, kept: Option<Vec<usize>>) -> Result<Self> {
        let Some(kept) = kept else {
            return Ok(self);
        };
        let mapping = ProjectionMapping::from_indices(&kept, &self.schema)?;
        let schema = Arc::new(self.schema.project(&kept)?);
        let properties = PlanProperties::new(
            EquivalenceProperties::new(Arc::clone(&schema)),
            self.properties.partitioning.project(&mapping, self.properties.equivalence_properties()),
            EmissionType::Final,
            Boundedness::Bounded,
        );
        Ok(Self { kept: Some(kept), schema, properties: Arc::new(properties), ..self })
    }

    /// Returns the columns that leave; `None` = all.
    pub(crate) fn kept(&self) -> Option<&[usize]> {
        self.kept.as_deref()
    }

    /// Returns the windows.
    pub(crate) fn window_exprs(&self) -> &[Arc<dyn WindowExpr>] {
        &self.window_exprs
    }
}

/// Reads one window; its columns are added to those known.
fn call(window: &Arc<dyn WindowExpr>, columns: &mut Vec<Arc<dyn PhysicalExpr>>) -> Result<Option<Call>> {
    let Some(standard) = window.as_any().downcast_ref::<StandardWindowExpr>() else {
        return Ok(None);
    };
    let Some(udwf) = standard.get_standard_func_expr().as_any().downcast_ref::<WindowUDFExpr>() else {
        return Ok(None);
    };
    let args = udwf.args();
    let constant = |position: usize| match args.get(position) {
        Some(arg) => constant(arg),
        None => internal_err!("{} has no argument {position}", window.name()),
    };
    let Some(group_window) = GroupWindow::of(udwf.fun(), args.len(), constant)? else {
        return Ok(None);
    };
    let mut places = Vec::new();
    for (_, arg) in args.iter().enumerate().filter(|(position, _)| group_window.is_column(*position)) {
        let known = columns.iter().position(|known| known == arg);
        places.push(known.unwrap_or(columns.len()));
        if known.is_none() {
            columns.push(Arc::clone(arg));
        }
    }
    Ok(Some(Call { window: group_window, columns: places }))
}

/// Returns the value of an expression that reads no column.
fn constant(expr: &Arc<dyn PhysicalExpr>) -> Result<ScalarValue> {
    let options = RecordBatchOptions::new().with_row_count(Some(1));
    let batch = RecordBatch::try_new_with_options(Arc::new(Schema::empty()), vec![], &options)?;
    match expr.evaluate(&batch)? {
        ColumnarValue::Scalar(value) => Ok(value),
        ColumnarValue::Array(array) => ScalarValue::try_from_array(&array, 0),
    }
}

impl DisplayAs for GroupedWindowExec {
    fn fmt_as(&self, t: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.window_exprs.iter().map(|window| window.name()).collect();
        match t {
            DisplayFormatType::Default | DisplayFormatType::Verbose => {
                let keys: Vec<String> = self.keys.iter().map(ToString::to_string).collect();
                write!(f, "GroupedWindowExec: by=[{}], windows=[{}]", keys.join(", "), names.join(", "))?;
                match &self.kept {
                    Some(_) => {
                        let kept: Vec<&str> = self.schema.fields().iter().map(|field| field.name().as_str()).collect();
                        write!(f, ", kept=[{}]", kept.join(", "))
                    }
                    None => Ok(()),
                }
            }
            DisplayFormatType::TreeRender => write!(f, "windows={}", names.len()),
        }
    }
}

impl ExecutionPlan for GroupedWindowExec {
    fn name(&self) -> &'static str {
        "GroupedWindowExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn input_distribution_requirements(&self) -> InputDistributionRequirements {
        InputDistributionRequirements::new(vec![if self.keys.is_empty() {
            Distribution::SinglePartition
        } else {
            Distribution::KeyPartitioned(self.keys.clone())
        }])
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        for expr in self.keys.iter().chain(&self.columns) {
            if f(expr)? == TreeNodeRecursion::Stop {
                return Ok(TreeNodeRecursion::Stop);
            }
        }
        Ok(TreeNodeRecursion::Continue)
    }

    /// A projection that leaves columns out: they need not be held.
    fn try_swapping_with_projection(&self, projection: &ProjectionExec) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let read = projection.expr().iter().flat_map(|column| collect_columns(&column.expr));
        let read: BTreeSet<usize> = read.map(|column| column.index()).collect();
        if read.len() >= self.schema.fields().len() {
            return Ok(None);
        }
        let place = |index: usize| self.kept.as_ref().map_or(Some(index), |kept| kept.get(index).copied());
        let Some(kept) = read.iter().map(|index| place(*index)).collect::<Option<Vec<usize>>>() else {
            return internal_err!("a projection reads a column that is not there");
        };
        let Some(grouped) = Self::try_new(self.window_exprs.clone(), Arc::clone(&self.input))? else {
            return internal_err!("GroupedWindowExec lost its windows");
        };
        let grouped = grouped.keep(Some(kept))?;
        let moved = |expr: Arc<dyn PhysicalExpr>| {
            let Some(column) = expr.downcast_ref::<Column>() else {
                return Ok(Transformed::no(expr));
            };
            match read.iter().position(|index| *index == column.index()) {
                Some(place) => {
                    Ok(Transformed::yes(Arc::new(Column::new(column.name(), place)) as Arc<dyn PhysicalExpr>))
                }
                None => internal_err!("a projection reads a column that is not there"),
            }
        };
        let columns = projection.expr().iter().map(|column| {
            let expr = Arc::clone(&column.expr).transform_down(moved)?.data;
            Ok(ProjectionExpr { expr, alias: column.alias.clone() })
        });
        let columns = columns.collect::<Result<Vec<_>>>()?;
        Ok(Some(Arc::new(ProjectionExec::try_new(columns, Arc::new(grouped))?)))
    }

    fn replace_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
        _options: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let (Some(input), true) = (children.pop(), children.is_empty()) else {
            return internal_err!("GroupedWindowExec has one input");
        };
        match Self::try_new(self.window_exprs.clone(), input)? {
            Some(grouped) => Ok(Arc::new(grouped.keep(self.kept.clone())?)),
            None => internal_err!("GroupedWindowExec lost its windows"),
        }
    }

    fn with_new_children(self: Arc<Self>, children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        self.replace_children(children, ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let input = self.input.execute(partition, Arc::clone(&context))?;
        let memory = MemoryConsumer::new(format!("GroupedWindowExec[{partition}]")).register(context.memory_pool());
        let metrics = BaselineMetrics::new(&self.metrics, partition);
        let node = self.clone();
        let batches = async move { node.run(input, memory, metrics).await };
        let batches = stream::once(batches).map_ok(|batches| stream::iter(batches).map(Ok)).try_flatten();
        Ok(Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&self.schema), batches)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}

/// What is kept of the input: its batches, and of every row its group and the columns that windows read.
struct Gathered {
    batches: Vec<RecordBatch>,
    numbers: Vec<u32>,
    parts: Vec<Vec<ArrayRef>>,
}

/// Appends the group of every row. Stored rows of a group lie side by side: such neighbors are looked up once.
fn number(groups: &mut (dyn GroupValues + 'static), keys: &[ArrayRef], numbers: &mut Vec<u32>) -> Result<()> {
    let rows = keys.first().map_or(0, Array::len);
    let runs = partition(keys)?.ranges();
    let mut found = Vec::new();
    if runs.len() > rows / 2 {
        groups.intern(keys, &mut found)?;
        for group in found {
            numbers.push(short(group)?);
        }
        return Ok(());
    }
    let firsts = UInt64Array::from_iter_values(runs.iter().map(|run| run.start as u64));
    let keys = keys.iter().map(|key| Ok(take(key, &firsts, None)?)).collect::<Result<Vec<ArrayRef>>>()?;
    groups.intern(&keys, &mut found)?;
    for (run, group) in runs.into_iter().zip(found) {
        numbers.resize(numbers.len() + run.len(), short(group)?);
    }
    Ok(())
}

fn short(group: usize) -> Result<u32> {
    u32::try_from(group).or_else(|_| exec_err!("more than 4294967295 groups are too many"))
}

impl GroupedWindowExec {
    async fn run(
        &self,
        mut input: SendableRecordBatchStream,
        memory: MemoryReservation,
        metrics: BaselineMetrics,
    ) -> Result<Vec<RecordBatch>> {
        let mut groups = self.group_values()?;
        let mut gathered = Gathered { batches: vec![], numbers: vec![], parts: vec![vec![]; self.columns.len()] };
        while let Some(batch) = input.next().await {
            let batch = batch?;
            let _timer = metrics.elapsed_compute().timer();
            self.gather(batch, groups.as_deref_mut(), &mut gathered, &memory)?;
        }
        let timer = metrics.elapsed_compute().timer();
        let count = groups.map_or(1, |groups| groups.len());
        let batches = self.finish(gathered, count)?;
        timer.done();
        let rows = batches.iter().map(RecordBatch::num_rows).sum();
        metrics.record_output(rows);
        metrics.done();
        drop(memory);
        Ok(batches)
    }

    /// Makes the table of keys; `None` where everything is one group.
    fn group_values(&self) -> Result<Option<Box<dyn GroupValues>>> {
        if self.keys.is_empty() {
            return Ok(None);
        }
        let input = self.input.schema();
        let fields = self.keys.iter().enumerate().map(|(place, key)| {
            let field = key.return_field(&input)?;
            Ok(Field::new(format!("key{place}"), field.data_type().clone(), true))
        });
        let schema = Schema::new(fields.collect::<Result<Vec<_>>>()?);
        new_group_values(Arc::new(schema), &GroupOrdering::None).map(Some)
    }

    fn gather(
        &self,
        batch: RecordBatch,
        groups: Option<&mut (dyn GroupValues + 'static)>,
        gathered: &mut Gathered,
        memory: &MemoryReservation,
    ) -> Result<()> {
        let rows = batch.num_rows();
        let evaluated = |exprs: &[Arc<dyn PhysicalExpr>]| -> Result<Vec<ArrayRef>> {
            exprs.iter().map(|expr| expr.evaluate(&batch)?.into_array(rows)).collect()
        };
        match groups {
            Some(groups) => number(groups, &evaluated(&self.keys)?, &mut gathered.numbers)?,
            None => gathered.numbers.resize(gathered.numbers.len() + rows, 0),
        }
        let columns = evaluated(&self.columns)?;
        let fields = batch.num_columns();
        let held = match &self.kept {
            Some(kept) => batch.project(&kept.iter().copied().filter(|place| *place < fields).collect::<Vec<_>>())?,
            None => batch.clone(),
        };
        let mut bytes = rows * size_of::<u32>();
        for column in columns.iter().chain(held.columns()) {
            bytes += column.to_data().get_slice_memory_size()?;
        }
        memory.try_grow(bytes)?;
        for (parts, column) in gathered.parts.iter_mut().zip(columns) {
            parts.push(column);
        }
        gathered.batches.push(held);
        Ok(())
    }

    fn finish(&self, gathered: Gathered, count: usize) -> Result<Vec<RecordBatch>> {
        if gathered.batches.is_empty() {
            return Ok(Vec::new());
        }
        let mut columns: Vec<ArrayRef> = Vec::with_capacity(gathered.parts.len());
        for parts in gathered.parts {
            let parts: Vec<&dyn Array> = parts.iter().map(AsRef::as_ref).collect();
            columns.push(concat(&parts)?);
        }
        let groups = Groups::by_number(&gathered.numbers, count)?;
        let calls: Vec<(GroupWindow, Vec<ArrayRef>)> = self
            .calls
            .iter()
            .map(|call| (call.window, call.columns.iter().map(|place| Arc::clone(&columns[*place])).collect()))
            .collect();
        let results = evaluate_groups(&calls, &groups)?;
        let fields = self.input.schema().fields().len();
        let leaving: Vec<&ArrayRef> = match &self.kept {
            Some(kept) => kept.iter().filter_map(|place| results.get(place.checked_sub(fields)?)).collect(),
            None => results.iter().collect(),
        };
        let mut start = 0;
        let batches = gathered.batches.into_iter().map(|batch| {
            let rows = batch.num_rows();
            // Places ascend, so that what is held of the input comes first.
            let mut columns = batch.columns().to_vec();
            columns.extend(leaving.iter().map(|result| result.slice(start, rows)));
            start += rows;
            let options = RecordBatchOptions::new().with_row_count(Some(rows));
            Ok(RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)?)
        });
        batches.collect()
    }
}
