//! What a recipe may compute: nothing that depends on the clock, on chance, or on the order rows arrive in.

use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::catalog::{SchemaProvider, TableProvider};
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, Result as DfResult};
use datafusion::execution::SessionState;
use datafusion::logical_expr::expr::WindowFunctionDefinition;
use datafusion::logical_expr::{AggregateUDF, Expr, ExprSchemable, LogicalPlan, Volatility};

use super::total_order;
use crate::error::{Error, Result};

/// Aggregates over floats whose result depends on the order of the rows, by the start of their names.
const INEXACT: [&str; 7] = ["stddev", "var_", "variance", "covar", "corr", "regr_", "approx_"];

/// Aggregates that keep rows in the order they come, and so need an `ORDER BY` inside.
pub(super) const ORDERED: [&str; 5] = ["array_agg", "string_agg", "first_value", "last_value", "nth_value"];

/// Window functions whose result is the place of a row in the order, which they need.
const PLACED: [&str; 9] =
    ["row_number", "ntile", "lag", "lead", "pack", "karmarkar_karp", "similarity_group", "chain_root", "chain_index"];

/// Refuses what is not a pure function of the lake, makes float sums and averages exact, and what depends on an order of
/// rows depend on a total one.
pub(super) fn make_deterministic(plan: LogicalPlan, state: &SessionState, views: &Views) -> Result<LogicalPlan> {
    verify(&plan)?;
    // First, while a view's plan is still the view's own.
    let ordered = plan.transform_down_with_subqueries(|node| {
        if views.holds(&node) {
            return Ok(Transformed::new(node, false, TreeNodeRecursion::Jump));
        }
        total_order::of_node(node)
    })?;
    let exact = Exact {
        sum: state.aggregate_functions().get("exact_sum").map(Arc::clone),
        avg: state.aggregate_functions().get("exact_avg").map(Arc::clone),
    };
    Ok(ordered.data.transform_up_with_subqueries(|node| exact.node(node))?.data)
}

/// The shipped views: they say themselves which of several rows counts, and for rows that tie any of them does.
#[derive(Debug, Default)]
pub(super) struct Views(Vec<(String, Arc<dyn TableProvider>)>);

impl Views {
    /// Finds the views among the tables of a session.
    pub(super) async fn of(schema: &dyn SchemaProvider) -> Result<Self> {
        let mut views = Vec::new();
        for name in schema.table_names() {
            if let Some(table) = schema.table(&name).await?.filter(|table| table.get_logical_plan().is_some()) {
                views.push((name, table));
            }
        }
        Ok(Self(views))
    }

    /// Whether a node of a plan is one of them, put in for its name.
    fn holds(&self, node: &LogicalPlan) -> bool {
        let LogicalPlan::SubqueryAlias(alias) = node else {
            return false;
        };
        let of_that_name = self.0.iter().filter(|(name, _)| name == alias.alias.table());
        of_that_name.filter_map(|(_, table)| table.get_logical_plan()).any(|plan| *plan == *alias.input)
    }
}

/// Refuses functions whose result is not decided by their arguments.
pub(super) fn verify(plan: &LogicalPlan) -> Result<()> {
    let mut refused = None;
    plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expr| {
            expr.apply(|expr| {
                refused = refusal(expr);
                Ok(if refused.is_some() { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
            })
        })
    })?;
    match refused {
        Some(error) => Err(error),
        None => Ok(()),
    }
}

fn refusal(expr: &Expr) -> Option<Error> {
    match expr {
        Expr::ScalarFunction(call) if call.func.signature().volatility != Volatility::Immutable => {
            Some(Error::invalid(format!(
                "{}() is refused here: a recipe must give the same rows whenever it runs",
                call.func.name()
            )))
        }
        Expr::AggregateFunction(call) => {
            unordered(call.func.name(), call.params.order_by.is_empty(), call.func.signature().volatility)
        }
        Expr::WindowFunction(call) => match &call.fun {
            WindowFunctionDefinition::AggregateUDF(udf) => {
                unordered(udf.name(), call.params.order_by.is_empty(), udf.signature().volatility)
            }
            WindowFunctionDefinition::WindowUDF(udf) => {
                unordered(udf.name(), call.params.order_by.is_empty(), udf.signature().volatility)
            }
        },
        _ => None,
    }
}

fn unordered(name: &str, no_order: bool, volatility: Volatility) -> Option<Error> {
    if volatility != Volatility::Immutable {
        return Some(Error::invalid(format!(
            "{name}() is refused here: a recipe must give the same rows whenever it runs"
        )));
    }
    if INEXACT.iter().any(|start| name.starts_with(start)) {
        return Some(Error::invalid(format!(
            "{name}() is refused here: its last digits depend on the order of the rows; use exact_sum and exact_avg"
        )));
    }
    (no_order && (ORDERED.contains(&name) || PLACED.contains(&name))).then(|| {
        // The planner writes array_agg(x)[n] as nth_value(x, n).
        let shown = if name == "nth_value" { "array_agg()[n] or nth_value" } else { name };
        Error::invalid(format!("{shown}() needs an ORDER BY here: the order in which rows arrive is not defined"))
    })
}

struct Exact {
    sum: Option<Arc<AggregateUDF>>,
    avg: Option<Arc<AggregateUDF>>,
}

impl Exact {
    fn node(&self, node: LogicalPlan) -> DfResult<Transformed<LogicalPlan>> {
        let mut schema = DFSchema::empty();
        for input in node.inputs() {
            schema.merge(input.schema());
        }
        let top = matches!(node, LogicalPlan::Aggregate(_) | LogicalPlan::Window(_));
        if !top {
            return Ok(Transformed::no(node));
        }
        let rewritten = node.map_expressions(|expr| {
            let name = expr.schema_name().to_string();
            let done = expr.transform_up(|expr| Ok(self.expr(expr, &schema)))?;
            // The column keeps its name, so that nodes above still find it.
            Ok(if done.transformed { done.update_data(|expr| expr.alias(name)) } else { done })
        })?;
        if rewritten.transformed { rewritten.map_data(LogicalPlan::recompute_schema) } else { Ok(rewritten) }
    }

    fn expr(&self, expr: Expr, schema: &DFSchema) -> Transformed<Expr> {
        match expr {
            Expr::AggregateFunction(mut call) => {
                let exact = self.instead_of(call.func.name(), call.params.args.first(), schema);
                let found = exact.is_some();
                call.func = exact.unwrap_or(call.func);
                Transformed::new_transformed(Expr::AggregateFunction(call), found)
            }
            Expr::WindowFunction(mut call) => {
                let exact = self.instead_of(call.fun.name(), call.params.args.first(), schema);
                let found = exact.is_some();
                if let Some(func) = exact {
                    call.fun = WindowFunctionDefinition::AggregateUDF(func);
                }
                Transformed::new_transformed(Expr::WindowFunction(call), found)
            }
            other => Transformed::no(other),
        }
    }

    fn instead_of(&self, name: &str, argument: Option<&Expr>, schema: &DFSchema) -> Option<Arc<AggregateUDF>> {
        let exact = match name {
            "sum" => self.sum.as_ref(),
            "avg" => self.avg.as_ref(),
            _ => None,
        };
        exact.filter(|_| is_float(argument, schema)).map(Arc::clone)
    }
}

fn is_float(argument: Option<&Expr>, schema: &DFSchema) -> bool {
    argument
        .and_then(|argument| argument.get_type(schema).ok())
        .is_some_and(|data_type| matches!(data_type, DataType::Float16 | DataType::Float32 | DataType::Float64))
}
