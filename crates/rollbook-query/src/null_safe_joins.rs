//! Joins by keys of which null equals null.
//!
//! `DataFusion` makes a key of `a IS NOT DISTINCT FROM b` only where a join has no other equality: beside `a = b` it is a filter over
//! all pairs that the other keys leave, which are the square of the rows where those are alike. And what it makes of such a join alone
//! is lost where inner joins are put in order, which then all take nulls as the topmost of them does. So the conditions stay as they
//! are while a plan is optimized, and become keys when it is done:
//!
//! ```text
//! Left Join: Filter: a.run_id = b.run_id AND a.step IS NOT DISTINCT FROM b.step
//!   ->  Left Join (nulls are equal): a.run_id, b.run_id; a.step, b.step
//!         a
//!         Filter: b.run_id IS NOT NULL
//! ```

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::catalog::Session;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, NullEquality, Result};
use datafusion::execution::context::QueryPlanner;
use datafusion::logical_expr::utils::{can_hash, conjunction, find_valid_equijoin_key_pair, split_conjunction_owned};
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, Filter, Join, JoinType, LogicalPlan, Operator};
use datafusion::optimizer::analyzer::type_coercion::TypeCoercionRewriter;
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_planner::{DefaultPhysicalPlanner, PhysicalPlanner};

type Rule = Arc<dyn OptimizerRule + Send + Sync>;

/// The rule that finds keys, kept to those of which null equals nothing.
#[derive(Debug)]
pub(crate) struct PlainKeys {
    rule: Rule,
}

impl PlainKeys {
    /// Keeps a rule to them, if it is the one that finds keys.
    pub(crate) fn kept(rule: Rule) -> Rule {
        if rule.name() == "extract_equijoin_predicate" { Arc::new(Self { rule }) } else { rule }
    }
}

impl OptimizerRule for PlainKeys {
    fn name(&self) -> &str {
        self.rule.name()
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.rule.apply_order()
    }

    fn rewrite(&self, plan: LogicalPlan, config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        let before = match &plan {
            LogicalPlan::Join(join) if join.on.is_empty() && join.filter.is_some() => plan.clone(),
            _ => return self.rule.rewrite(plan, config),
        };
        let found = self.rule.rewrite(plan, config)?;
        let is_plain = matches!(&found.data, LogicalPlan::Join(join) if takes_no_nulls(join));
        Ok(if is_plain { found } else { Transformed::no(before) })
    }
}

fn takes_no_nulls(join: &Join) -> bool {
    join.null_equality == NullEquality::NullEqualsNothing
}

/// Plans what is optimized, once its joins have all their keys.
#[derive(Debug)]
pub(crate) struct Planner;

#[async_trait]
impl QueryPlanner for Planner {
    async fn create_physical_plan(
        &self,
        logical_plan: &LogicalPlan,
        session: &dyn Session,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let plan = logical_plan.clone().transform_up_with_subqueries(with_keys)?.data;
        DefaultPhysicalPlanner::default().create_physical_plan(&plan, session).await
    }
}

fn with_keys(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let LogicalPlan::Join(mut join) = plan else {
        return Ok(Transformed::no(plan));
    };
    if join.null_aware || !takes_no_nulls(&join) {
        return Ok(Transformed::no(LogicalPlan::Join(join)));
    }
    let is_changed = join.filter.is_some();
    let mut keys = Vec::new();
    let mut others = Vec::new();
    let filter = join.filter.take().map(|filter| in_types(filter, &join)).transpose()?;
    for condition in filter.map(split_conjunction_owned).unwrap_or_default() {
        match key(&condition, join.left.schema(), join.right.schema())? {
            Some(key) => keys.push(key),
            None => others.push(condition),
        }
    }
    if !keys.is_empty() {
        let plain = std::mem::replace(&mut join.on, keys);
        others.extend(not_null(&mut join, &plain)?);
        join.on.splice(0..0, plain);
        join.null_equality = NullEquality::NullEqualsNull;
    }
    join.filter = conjunction(others);
    Ok(Transformed::new_transformed(LogicalPlan::Join(join), is_changed))
}

/// Gives a condition the types of what it reads. Of a column outside of its subquery it may have another: that of the time before the
/// outer query got its own.
fn in_types(filter: Expr, join: &Join) -> Result<Expr> {
    let both = join.left.schema().join(join.right.schema())?;
    Ok(filter.rewrite(&mut TypeCoercionRewriter::new(&both))?.data)
}

/// Reads a condition that compares the two sides and takes null as equal to null.
fn key(condition: &Expr, left: &DFSchema, right: &DFSchema) -> Result<Option<(Expr, Expr)>> {
    let Expr::BinaryExpr(BinaryExpr { left: one, op: Operator::IsNotDistinctFrom, right: other }) = condition else {
        return Ok(None);
    };
    let Some((of_left, of_right)) = find_valid_equijoin_key_pair(one, other, left, right)? else {
        return Ok(None);
    };
    let (one, other) = (of_left.get_type(left)?, of_right.get_type(right)?);
    let is_key = one == other && can_hash(&one) && !one.is_nested();
    Ok(is_key.then_some((of_left, of_right)))
}

/// Keeps keys of which null equals nothing from doing so: the side of which only matches leave loses its rows with such a null. Where
/// rows of both sides leave without a match, returns what a match must hold instead.
fn not_null(join: &mut Join, plain: &[(Expr, Expr)]) -> Result<Option<Expr>> {
    let (left, right) = (join.left.schema(), join.right.schema());
    let is_left =
        matches!(join.join_type, JoinType::Right | JoinType::RightSemi | JoinType::RightAnti | JoinType::RightMark);
    let mut known = Vec::new();
    for (of_left, of_right) in plain {
        // Two nulls meet only where both sides may have one.
        if of_left.nullable(left)? && of_right.nullable(right)? {
            known.push(if is_left { of_left } else { of_right }.clone().is_not_null());
        }
    }
    let Some(known) = conjunction(known) else {
        return Ok(None);
    };
    if join.join_type == JoinType::Full {
        return Ok(Some(known));
    }
    let side = if is_left { &mut join.left } else { &mut join.right };
    *side = Arc::new(LogicalPlan::Filter(Filter::try_new(known, Arc::clone(side))?));
    Ok(None)
}

#[cfg(test)]
mod tests {
    use arrow::util::pretty::pretty_format_batches;
    use rstest::rstest;

    use crate::fixture::Scratch;
    use crate::session::{Session, SessionOptions};

    const ROWS: &str = "
        a AS (SELECT value AS n, nullif(value % 3, 0) AS k, nullif(value % 4, 0) AS s, nullif(concat('t', value % 5), 't0') AS t
            FROM range(0, 60)),
        b AS (SELECT value AS m, nullif(value % 2, 0) AS k, nullif(value % 5, 0) AS s, nullif(concat('t', value % 7), 't0') AS t
            FROM range(100, 150)),
        c AS (SELECT value AS o, nullif(value % 4, 0) AS s FROM range(200, 230))";

    async fn rows(session: &Session, sql: &str) -> String {
        pretty_format_batches(&session.collect(sql).await.unwrap()).unwrap().to_string()
    }

    /// What a condition says, in words of which no key is made.
    fn spelt_out(join: &str) -> String {
        let words: Vec<&str> = join.split_whitespace().collect();
        let mut said = String::new();
        let mut at = 0;
        while at < words.len() {
            if words[at + 1..].starts_with(&["IS", "NOT", "DISTINCT", "FROM"]) {
                let (one, other) = (words[at], words[at + 5]);
                said += &format!("coalesce({one} = {other}, {one} IS NULL AND {other} IS NULL) ");
                at += 6;
            } else {
                said += &format!("{} ", words[at]);
                at += 1;
            }
        }
        said
    }

    #[rstest]
    #[case::alone("a JOIN b ON a.s IS NOT DISTINCT FROM b.s", "n, m")]
    #[case::beside("a JOIN b ON a.k = b.k AND a.s IS NOT DISTINCT FROM b.s", "n, m")]
    #[case::beside_a_text("a JOIN b ON b.t = a.t AND b.s IS NOT DISTINCT FROM a.s AND a.n < b.m - 90", "n, m")]
    #[case::two("a JOIN b ON a.k = b.k AND a.s IS NOT DISTINCT FROM b.s AND a.t IS NOT DISTINCT FROM b.t", "n, m")]
    #[case::left("a LEFT JOIN b ON a.k = b.k AND a.s IS NOT DISTINCT FROM b.s", "n, m")]
    #[case::right("a RIGHT JOIN b ON a.k = b.k AND a.s IS NOT DISTINCT FROM b.s", "n, m")]
    #[case::full("a FULL JOIN b ON a.k = b.k AND a.s IS NOT DISTINCT FROM b.s", "n, m")]
    #[case::full_alone("a FULL JOIN b ON a.s IS NOT DISTINCT FROM b.s", "n, m")]
    #[case::semi("a LEFT SEMI JOIN b ON a.k = b.k AND a.s IS NOT DISTINCT FROM b.s", "n")]
    #[case::anti("a LEFT ANTI JOIN b ON a.k = b.k AND a.s IS NOT DISTINCT FROM b.s", "n")]
    #[case::right_semi("a RIGHT SEMI JOIN b ON a.k = b.k AND a.s IS NOT DISTINCT FROM b.s", "m")]
    #[case::right_anti("a RIGHT ANTI JOIN b ON a.k = b.k AND a.s IS NOT DISTINCT FROM b.s", "m")]
    #[case::exists("a WHERE EXISTS (SELECT 1 FROM b WHERE a.k = b.k AND a.s IS NOT DISTINCT FROM b.s )", "n")]
    #[case::not_exists("a WHERE NOT EXISTS (SELECT 1 FROM b WHERE a.k = b.k AND a.s IS NOT DISTINCT FROM b.s )", "n")]
    // Inner joins in a row, of which one takes nulls as equal and the other does not.
    #[case::below("a JOIN b ON a.s IS NOT DISTINCT FROM b.s JOIN c ON c.s = a.k", "n, m, o")]
    #[case::above("a JOIN b ON a.k = b.k JOIN c ON c.s IS NOT DISTINCT FROM a.s", "n, m, o")]
    #[case::where_below("a JOIN b ON a.s IS NOT DISTINCT FROM b.s JOIN c ON c.s = a.k WHERE c.o > b.m + 60", "n, m, o")]
    // The type of an outer column that was not settled when the subquery was planned.
    #[case::of_an_outer_type(
        "(SELECT n, CASE WHEN n > 50 THEN CAST(k AS INTEGER) ELSE nullif(s, 3) END AS v FROM a) AS a WHERE NOT EXISTS
            (SELECT 1 FROM (SELECT CAST(k AS INTEGER) AS k FROM b) AS b WHERE a.v IS NOT DISTINCT FROM b.k )",
        "n"
    )]
    #[case::commas("a, b, c WHERE a.s IS NOT DISTINCT FROM b.s AND c.s = a.k", "n, m, o")]
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn nulls_meet_where_a_condition_says_so(
        #[case] join: &str,
        #[case] columns: &str,
        #[values(1, 3)] threads: usize,
    ) {
        let scratch = Scratch::new().await;
        let options = SessionOptions { threads, ..SessionOptions::default() };
        let session = Session::open(&scratch.lake, None, options).await.unwrap();
        let query = |join: &str| format!("WITH {ROWS} SELECT {columns} FROM {join} ORDER BY {columns}");
        let (sql, oracle) = (query(join), query(&spelt_out(join)));
        assert_ne!(sql.split_whitespace().count(), oracle.split_whitespace().count());
        assert_eq!(rows(&session, &sql).await, rows(&session, &oracle).await);
        let plan = rows(&session, &format!("EXPLAIN {sql}")).await;
        assert!(plan.contains("NullsEqual: true") && !plan.contains("NestedLoopJoin"), "{plan}");
    }

    /// The column outside is a CASE of two types, of which the subquery knows the first.
    #[tokio::test]
    async fn conditions_have_the_types_of_what_they_read() {
        let session = Scratch::new().await.session().await;
        let query = |v: &str| {
            format!(
                "WITH {ROWS} SELECT n FROM (SELECT n, CASE WHEN n > 50 THEN CAST(k AS INTEGER) ELSE nullif(s, 3) END AS v FROM a) AS a
                WHERE NOT EXISTS (SELECT 1 FROM (SELECT CAST(k AS INTEGER) AS k FROM b) AS b WHERE {v} < b.k) ORDER BY n"
            )
        };
        // Of b.k there are nulls and ones.
        let spelt_out =
            query("v").replace("NOT EXISTS", "NOT coalesce(v < 1, false) OR EXISTS").replace("v < b.k", "false");
        let expected = rows(&session, &spelt_out).await;
        assert_eq!(rows(&session, &query("a.v")).await, expected);
    }
}
