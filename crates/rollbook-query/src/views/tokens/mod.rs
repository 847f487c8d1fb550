//! The view `tokens`: a row for each output token, at no cost for columns that are not selected.
//!
//! ```text
//! SELECT logprob FROM tokens     TokensExec: columns=[logprob]
//!                                  DataSourceExec: calls, columns=[output_len, output_logprobs]
//! SELECT trained FROM tokens     TokensExec: columns=[trained]
//!                                  HashJoinExec: calls with the pieces of the newest build's samples
//! ```

mod chunk;
mod exec;
mod output_pieces;
mod piece;
mod plan;
mod signals;

use std::sync::{Arc, LazyLock};

use async_trait::async_trait;
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::Result;
use datafusion::datasource::TableType;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown};
use datafusion::physical_plan::ExecutionPlan;

pub(crate) use exec::TokensExec;

use crate::provider::nested;

/// Columns that every token of a call shares; filters on them go below.
pub(super) const KEYS: [&str; 7] = ["run_id", "step", "group_id", "rollout_id", "call_id", "call_index", "turn_index"];

/// The view's columns.
pub(super) static SCHEMA: LazyLock<SchemaRef> = LazyLock::new(|| {
    let entries = Field::new(
        "key_value",
        DataType::Struct(
            vec![Field::new("key", DataType::Utf8, false), Field::new("value", DataType::Float64, true)].into(),
        ),
        false,
    );
    Arc::new(Schema::new(vec![
        Field::new("run_id", DataType::Utf8, true),
        Field::new("step", DataType::Int64, true),
        Field::new("group_id", DataType::Utf8, true),
        Field::new("rollout_id", DataType::Utf8, true),
        Field::new("call_id", DataType::Utf8, true),
        Field::new("call_index", DataType::Int32, true),
        Field::new("turn_index", DataType::Int32, true),
        Field::new("position", DataType::Int32, false),
        Field::new("token_id", DataType::Int32, true),
        Field::new("logprob", DataType::Float32, true),
        Field::new("is_sampled", DataType::Boolean, true),
        Field::new("policy_version", DataType::Int64, true),
        Field::new("signals", DataType::Map(Arc::new(entries), false), true),
        Field::new("advantage", DataType::Float64, true),
        Field::new("loss_weight", DataType::Float64, true),
        Field::new("trained", DataType::Boolean, true),
    ]))
});

/// The view's provider.
#[derive(Debug)]
pub(super) struct TokensView;

impl TokensView {
    pub(super) fn new() -> Self {
        Self
    }
}

#[async_trait]
impl TableProvider for TokensView {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&SCHEMA)
    }

    fn table_type(&self) -> TableType {
        TableType::View
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> Result<Vec<TableProviderFilterPushDown>> {
        Ok(filters
            .iter()
            .map(|filter| {
                if plan::is_on_keys(filter) {
                    TableProviderFilterPushDown::Exact
                } else {
                    TableProviderFilterPushDown::Unsupported
                }
            })
            .collect())
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        _limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let session = nested::session(state)?;
        let columns: Vec<String> = match projection {
            Some(indices) => indices.iter().map(|index| SCHEMA.field(*index).name().clone()).collect(),
            None => SCHEMA.fields().iter().map(|field| field.name().clone()).collect(),
        };
        let below = plan::calls(session, &columns, filters).await?;
        let input = nested::physical(session, &below).await?;
        Ok(Arc::new(TokensExec::try_new(input, &columns)?))
    }
}
