//! Filters go down a plan where names tell columns apart, and no further.
//!
//! `DataFusion` 55 finds the columns of a filter that it pushes down by name, and takes the first where a name comes twice, as it does
//! above a join of two tables (its issues 21246, 25244, 25296). The filter then leaves out rows by another column: those of a WHERE above
//! the join, what a sort with a limit has seen so far, the keys that a join holds.
//!
//! ```text
//! FilterExec: output_len@0 <> output_len@1      stays: both would become the first
//!   HashJoinExec: output_len, output_len        its filters go down: each side has a name once
//!     DataSourceExec: call_id, output_len
//!     DataSourceExec: call_id, output_len
//! ```

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::{ChildrenPropertiesMode, ExecutionPlan, ReplaceChildrenOptions};

/// `DataFusion`'s rule, for the parts of a plan whose names it can tell apart.
#[derive(Debug)]
pub(crate) struct FiltersDown {
    rule: Arc<dyn PhysicalOptimizerRule + Send + Sync>,
}

impl FiltersDown {
    /// Keeps a rule to such parts, if it is one that pushes filters.
    pub(crate) fn kept(
        rule: Arc<dyn PhysicalOptimizerRule + Send + Sync>,
    ) -> Arc<dyn PhysicalOptimizerRule + Send + Sync> {
        if rule.name().starts_with("FilterPushdown") { Arc::new(Self { rule }) } else { rule }
    }

    fn push(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        clear: &HashSet<*const ()>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let children = plan.children();
        if children.iter().all(|child| clear.contains(&place(child))) {
            return self.rule.optimize(plan, config);
        }
        let children = children.into_iter().map(|child| self.push(Arc::clone(child), clear, config));
        let children = children.collect::<Result<Vec<_>>>()?;
        plan.replace_children(children, ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute))
    }
}

impl PhysicalOptimizerRule for FiltersDown {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, config: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        let mut clear = HashSet::new();
        mark(&plan, &mut clear);
        self.push(plan, &clear, config)
    }

    fn name(&self) -> &str {
        self.rule.name()
    }

    fn schema_check(&self) -> bool {
        self.rule.schema_check()
    }
}

/// Marks the nodes at and below which every schema has a name once.
fn mark(plan: &Arc<dyn ExecutionPlan>, clear: &mut HashSet<*const ()>) -> bool {
    let schema = plan.schema();
    let mut names = HashSet::new();
    let mut is_clear = schema.fields().iter().all(|field| names.insert(field.name()));
    for child in plan.children() {
        is_clear &= mark(child, clear);
    }
    if is_clear {
        clear.insert(place(plan));
    }
    is_clear
}

fn place(plan: &Arc<dyn ExecutionPlan>) -> *const () {
    Arc::as_ptr(plan).cast()
}

#[cfg(test)]
mod tests {
    use arrow::util::display::array_value_to_string;
    use serde_json::json;

    use crate::fixture::{Scratch, batch};

    /// Calls 0 to 9 of one rollout, each after the one before; call n has n * 7 % 10 output tokens.
    async fn lake() -> Scratch {
        let scratch = Scratch::new().await;
        let calls: Vec<_> = (0..10_usize)
            .map(|n| {
                json!({"run_id": "r", "step": 0, "group_id": "g", "rollout_id": "o", "call_id": format!("c{n}"),
                    "call_index": n, "parent_call_id": n.checked_sub(1).map(|n| format!("c{n}")),
                    "prompt_token_ids": [1], "output_token_ids": vec![5; n * 7 % 10], "output_len": n * 7 % 10})
            })
            .collect();
        let mut writer = scratch.lake.writer(rollbook_schema::table("calls").unwrap());
        let stored = rollbook_lake::codec::Encoder::new(1 << 20).encode(&batch("calls", &json!(calls))).unwrap();
        writer.write(&stored).await.unwrap();
        let files = writer.finish().await.unwrap();
        scratch.publish("calls", files).await;
        scratch
    }

    #[tokio::test]
    async fn names_that_come_twice_keep_their_columns() {
        let scratch = lake().await;
        let session = scratch.session().await;
        for (sql, expected) in [
            // Lengths 0 7 4 1 8 5 2 9 6 3: each differs from the one before, and the first has none before.
            (
                "SELECT count(*) FROM calls a RIGHT JOIN calls b ON a.call_id = b.parent_call_id \
                WHERE a.output_len IS DISTINCT FROM b.output_len",
                "10",
            ),
            (
                "SELECT count(*) FROM calls a RIGHT JOIN calls b ON a.call_id = b.parent_call_id \
                WHERE a.output_len > 6 OR b.output_len = 0",
                "4",
            ),
            (
                "SELECT count(*) FROM calls a LEFT JOIN calls b ON a.call_id = b.parent_call_id \
                WHERE b.output_len IS NULL OR a.output_len < b.output_len",
                "4",
            ),
            // The shortest child, though its parent is not short.
            (
                "SELECT concat(a.call_id, ' ', b.call_id) FROM calls a JOIN calls b ON a.call_id = b.parent_call_id \
                JOIN calls c ON c.call_id = b.call_id ORDER BY b.output_len LIMIT 1",
                "c2 c3",
            ),
            // A join's keys hold for the column that they are compared with.
            (
                "SELECT count(*) FROM calls s JOIN (SELECT a.call_id AS before, b.call_id, a.output_len, b.output_len AS own \
                FROM calls a JOIN calls b ON a.call_id = b.parent_call_id) AS pair ON s.call_id = pair.call_id \
                WHERE s.output_len > 6",
                "3",
            ),
        ] {
            let found = session.collect(sql).await.unwrap();
            assert_eq!(array_value_to_string(found[0].column(0), 0).unwrap(), expected, "{sql}");
        }
    }
}
