//! What must be read of the calls, and joined to them, to give some columns of the view.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::execution::{FunctionRegistry, SessionState};
use datafusion::logical_expr::utils::conjunction;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, ScalarUDF};

use super::KEYS;
use super::output_pieces::OutputPieces;
use crate::session::parse;

/// The signals of each call, as a list of names and values.
const SIGNALS: &str = "
LEFT JOIN (
    SELECT run_id, rollout_id, call_id,
           array_agg(named_struct('name', name, 'values', \"values\") ORDER BY created_at, producer) AS _signals
    FROM token_signals GROUP BY run_id, rollout_id, call_id
) AS s ON c.run_id = s.run_id AND c.rollout_id = s.rollout_id AND c.call_id = s.call_id";

/// What the newest build of a run made of each call's output.
const PIECES: &str = "
LEFT JOIN (
    SELECT run_id, piece['rollout_id'] AS rollout_id, piece['call_id'] AS call_id, array_agg(piece) AS _pieces
    FROM (
        SELECT p.run_id, unnest(_output_pieces(p.segments, p.action_mask, p.advantages, p.loss_weights)) AS piece
        FROM samples AS p JOIN (
            SELECT run_id, build_id FROM (
                SELECT run_id, build_id, row_number() OVER (
                    PARTITION BY run_id ORDER BY created_at DESC NULLS LAST, build_id DESC NULLS LAST
                ) AS place FROM builds
            ) WHERE place = 1
        ) AS b ON p.run_id = b.run_id AND p.build_id = b.build_id
    ) GROUP BY run_id, piece['rollout_id'], piece['call_id']
) AS p ON c.run_id = p.run_id AND c.rollout_id = p.rollout_id AND c.call_id = p.call_id";

/// Whether a filter reads nothing but columns that a call's tokens share.
pub(super) fn is_on_keys(filter: &Expr) -> bool {
    !filter.is_volatile() && filter.column_refs().iter().all(|column| KEYS.contains(&column.name.as_str()))
}

/// Plans the calls for the columns asked for.
pub(super) async fn calls(session: &SessionState, columns: &[String], filters: &[Expr]) -> Result<LogicalPlan> {
    let mut wanted: Vec<&str> = vec!["output_len"];
    let add = |name: &'static str, wanted: &mut Vec<&str>| {
        if !wanted.contains(&name) {
            wanted.push(name);
        }
    };
    for key in KEYS {
        let filtered = filters.iter().any(|filter| filter.column_refs().iter().any(|column| column.name == key));
        if filtered || columns.iter().any(|column| column == key) {
            add(key, &mut wanted);
        }
    }
    let mut joins = String::new();
    for column in columns {
        match column.as_str() {
            "token_id" => add("output_token_ids", &mut wanted),
            "logprob" => add("output_logprobs", &mut wanted),
            "is_sampled" => add("sampled_mask", &mut wanted),
            "policy_version" => {
                add("policy_version", &mut wanted);
                add("policy_spans", &mut wanted);
            }
            "signals" => {
                add("_signals", &mut wanted);
                joins.push_str(SIGNALS);
            }
            "advantage" | "loss_weight" | "trained" if !wanted.contains(&"_pieces") => {
                add("_pieces", &mut wanted);
                joins.push_str(PIECES);
            }
            _ => {}
        }
    }
    let select: Vec<String> = wanted
        .iter()
        .map(|name| match *name {
            "_signals" => "s._signals".to_owned(),
            "_pieces" => "p._pieces".to_owned(),
            name => format!("c.{name} AS {name}"),
        })
        .collect();
    let sql = format!("SELECT {} FROM calls AS c{joins}", select.join(", "));
    let mut session = session.clone();
    session.register_udf(Arc::new(ScalarUDF::from(OutputPieces::new())))?;
    let plan = session.statement_to_plan(parse(&sql)?).await?;
    match conjunction(filters.to_vec()) {
        Some(filter) => LogicalPlanBuilder::from(plan).filter(filter)?.build(),
        None => Ok(plan),
    }
}
