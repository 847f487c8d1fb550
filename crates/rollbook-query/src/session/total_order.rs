//! What depends on the order of rows is made to depend on their content, or refused.
//!
//! ```text
//! array_agg(x ORDER BY o)                     array_agg(x ORDER BY o, x): rows that tie give equal items
//! … ORDER BY o LIMIT n                        … ORDER BY o, every column that has an order
//! row_number() OVER (PARTITION BY p ORDER BY o), pack, lag, running sums over ROWS …
//!     the rows with the same p and o are counted beside it, and a second one is an error when the recipe runs
//! without ORDER BY                            an error when the recipe is planned
//! ```

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use datafusion::arrow::array::{Array, AsArray, BooleanArray};
use datafusion::arrow::datatypes::{DataType, Int64Type};
use datafusion::arrow::util::display::array_value_to_string;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, DFSchema, Result as DfResult, exec_err, plan_err};
use datafusion::functions_aggregate::count::count_udaf;
use datafusion::logical_expr::expr::{Sort as SortExpr, WindowFunction, WindowFunctionDefinition};
use datafusion::logical_expr::{
    ColumnarValue, Distinct, Expr, ExprSchemable, Filter, Limit, LogicalPlan, LogicalPlanBuilder, Projection,
    ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Sort, Volatility, Window, WindowFrame, WindowFrameBound,
    WindowFrameUnits, lit,
};

/// Window functions that see ties as ties.
const KNOW_TIES: [&str; 4] = ["rank", "dense_rank", "percent_rank", "cume_dist"];

/// Makes what a node computes independent of the order in which its rows arrive.
pub(super) fn of_node(node: LogicalPlan) -> DfResult<Transformed<LogicalPlan>> {
    match node {
        LogicalPlan::Limit(limit) => of_limit(limit),
        LogicalPlan::Distinct(Distinct::On(mut on)) => {
            let Some(mut order) = on.sort_expr.take().filter(|order| !order.is_empty()) else {
                return plan_err!("DISTINCT ON needs an ORDER BY here: which row it keeps is not defined");
            };
            let selected: Vec<Expr> = on.select_expr.clone();
            extend(&mut order, selected, on.input.schema());
            on.sort_expr = Some(order);
            Ok(Transformed::yes(LogicalPlan::Distinct(Distinct::On(on))))
        }
        LogicalPlan::Aggregate(_) => {
            let schema = Arc::clone(node.inputs()[0].schema());
            let rewritten = node.map_expressions(|expr| of_aggregate(expr, &schema))?;
            if rewritten.transformed { rewritten.map_data(LogicalPlan::recompute_schema) } else { Ok(rewritten) }
        }
        LogicalPlan::Window(window) if !is_guarded(&window) => of_window(window),
        other => Ok(Transformed::no(other)),
    }
}

/// Adds every expression with an order to an order, so that what still ties is equal.
fn extend(order: &mut Vec<SortExpr>, more: impl IntoIterator<Item = Expr>, schema: &DFSchema) {
    for expr in more {
        let has_order = expr.get_type(schema).is_ok_and(|data_type| is_ordered(&data_type));
        if has_order && order.iter().all(|known| known.expr != expr) {
            order.push(SortExpr::new(expr, true, false));
        }
    }
}

fn is_ordered(data_type: &DataType) -> bool {
    match data_type {
        DataType::Map(_, _) | DataType::Union(_, _) | DataType::Struct(_) => false,
        DataType::List(item) | DataType::LargeList(item) => is_ordered(item.data_type()),
        DataType::Dictionary(_, value) => is_ordered(value),
        _ => true,
    }
}

fn of_limit(limit: Limit) -> DfResult<Transformed<LogicalPlan>> {
    let input = ordered(Arc::unwrap_or_clone(limit.input))?;
    Ok(Transformed::yes(LogicalPlan::Limit(Limit { input: Arc::new(input), ..limit })))
}

/// Completes the sort below a limit.
fn ordered(node: LogicalPlan) -> DfResult<LogicalPlan> {
    match node {
        LogicalPlan::Sort(mut sort) if !sort.expr.is_empty() => {
            let schema = Arc::clone(sort.input.schema());
            extend(&mut sort.expr, schema.columns().into_iter().map(Expr::Column), &schema);
            Ok(LogicalPlan::Sort(Sort { ..sort }))
        }
        LogicalPlan::Projection(projection) => {
            let input = ordered(Arc::unwrap_or_clone(projection.input))?;
            Projection::try_new(projection.expr, Arc::new(input)).map(LogicalPlan::Projection)
        }
        LogicalPlan::Limit(_) | LogicalPlan::EmptyRelation(_) => Ok(node),
        LogicalPlan::Aggregate(aggregate) if aggregate.group_expr.is_empty() => Ok(LogicalPlan::Aggregate(aggregate)),
        _ => plan_err!("LIMIT needs an ORDER BY here: which rows come first is not defined"),
    }
}

/// An aggregate over rows in an order takes its own argument as the last word on it.
fn of_aggregate(expr: Expr, schema: &DFSchema) -> DfResult<Transformed<Expr>> {
    use datafusion::common::tree_node::TreeNode;

    let name = expr.schema_name().to_string();
    let done = expr.transform_up(|expr| {
        let Expr::AggregateFunction(mut call) = expr else {
            return Ok(Transformed::no(expr));
        };
        if call.params.order_by.is_empty() || call.params.distinct {
            return Ok(Transformed::no(Expr::AggregateFunction(call)));
        }
        let before = call.params.order_by.len();
        let argument = call.params.args.first().cloned();
        extend(&mut call.params.order_by, argument, schema);
        let changed = call.params.order_by.len() > before;
        Ok(Transformed::new_transformed(Expr::AggregateFunction(call), changed))
    })?;
    // The column keeps its name, so that nodes above still find it.
    Ok(if done.transformed { done.update_data(|expr| expr.alias(name)) } else { done })
}

/// Whether a window function gives rows that tie different results.
fn splits_ties(call: &WindowFunction) -> bool {
    let name = call.fun.name();
    match &call.fun {
        WindowFunctionDefinition::WindowUDF(_) => !KNOW_TIES.contains(&name),
        WindowFunctionDefinition::AggregateUDF(_) => {
            let frame = &call.params.window_frame;
            let whole = frame.start_bound.is_unbounded() && frame.end_bound.is_unbounded();
            super::deterministic::ORDERED.contains(&name) || (frame.units == WindowFrameUnits::Rows && !whole)
        }
    }
}

/// Start of the names of counts of ties.
const TIES: &str = "rollbook_ties_";

/// Whether a window has its counts already: the walk goes on below what it has put in.
fn is_guarded(window: &Window) -> bool {
    window.window_expr.iter().any(|expr| matches!(expr, Expr::Alias(alias) if alias.name.starts_with(TIES)))
}

/// Counts, beside window functions that split ties, the rows that tie.
fn of_window(window: Window) -> DfResult<Transformed<LogicalPlan>> {
    let mut guards: BTreeMap<String, (Expr, Expr)> = BTreeMap::new();
    for expr in &window.window_expr {
        let mut inner = expr;
        while let Expr::Alias(alias) = inner {
            inner = &alias.expr;
        }
        let Expr::WindowFunction(call) = inner else {
            continue;
        };
        if call.params.order_by.is_empty() || !splits_ties(call) {
            continue;
        }
        let key = format!("{:?} {:?}", call.params.partition_by, call.params.order_by);
        let name = format!("{TIES}{}", guards.len());
        guards.entry(key).or_insert_with(|| guard(call, &name));
    }
    if guards.is_empty() {
        return Ok(Transformed::no(LogicalPlan::Window(window)));
    }
    let columns: Vec<Expr> = window.schema.columns().into_iter().map(Expr::Column).collect();
    let mut exprs = window.window_expr;
    let mut conditions = Vec::new();
    for (count, condition) in guards.into_values() {
        exprs.push(count);
        conditions.push(condition);
    }
    let counted = LogicalPlan::Window(Window::try_new(exprs, window.input)?);
    let Some(condition) = conditions.into_iter().reduce(Expr::and) else {
        return plan_err!("a window lost its conditions");
    };
    let filtered = LogicalPlan::Filter(Filter::try_new(condition, Arc::new(counted))?);
    LogicalPlanBuilder::from(filtered).project(columns)?.build().map(Transformed::yes)
}

/// The count of a row's ties under a name, and the condition that there is only the row itself.
fn guard(call: &WindowFunction, name: &str) -> (Expr, Expr) {
    let mut count = WindowFunction::new(count_udaf(), vec![lit(1_i64)]);
    count.params.partition_by.clone_from(&call.params.partition_by);
    count.params.order_by.clone_from(&call.params.order_by);
    count.params.window_frame =
        WindowFrame::new_bounds(WindowFrameUnits::Range, WindowFrameBound::CurrentRow, WindowFrameBound::CurrentRow);
    let mut arguments = vec![Expr::Column(Column::from_name(name)), lit(call.fun.name())];
    arguments.extend(call.params.partition_by.iter().cloned());
    arguments.extend(call.params.order_by.iter().map(|order| order.expr.clone()));
    (Expr::WindowFunction(Box::new(count)).alias(name), ONLY_ONE.call(arguments))
}

static ONLY_ONE: LazyLock<ScalarUDF> =
    LazyLock::new(|| ScalarUDF::new_from_impl(OnlyOne { signature: Signature::variadic_any(Volatility::Immutable) }));

/// True where the count is 1, and an error elsewhere that says which rows tie.
#[derive(Debug, PartialEq, Eq, Hash)]
struct OnlyOne {
    signature: Signature,
}

impl ScalarUDFImpl for OnlyOne {
    fn name(&self) -> &'static str {
        "rollbook_only_one"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> DfResult<DataType> {
        Ok(DataType::Boolean)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        let arrays = ColumnarValue::values_to_arrays(&args.args)?;
        let [counts, name, keys @ ..] = arrays.as_slice() else {
            return plan_err!("a count of ties and a name are needed");
        };
        let counts = counts.as_primitive::<Int64Type>();
        let tie = (0..counts.len()).find(|row| counts.is_valid(*row) && counts.value(*row) > 1);
        if let Some(row) = tie {
            let key = |key: &Arc<dyn Array>| {
                if key.is_null(row) { Ok("null".to_owned()) } else { array_value_to_string(key, row) }
            };
            let keys = keys.iter().map(key).collect::<Result<Vec<_>, _>>()?;
            return exec_err!(
                "{}() needs an ORDER BY that tells all rows apart: {} rows have ({})",
                array_value_to_string(name, row)?,
                counts.value(row),
                keys.join(", ")
            );
        }
        Ok(ColumnarValue::Array(Arc::new(BooleanArray::from(vec![true; counts.len()]))))
    }
}
