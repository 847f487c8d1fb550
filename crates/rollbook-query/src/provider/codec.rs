//! How a plan with [`DecodeExec`] leaves the process: its columns as text, its scan as `DataFusion` writes it.

use std::any::Any;
use std::sync::Arc;

use datafusion::common::{DataFusionError, Result, internal_err, not_impl_err};
use datafusion::execution::TaskContext;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::empty::EmptyExec;
use datafusion::physical_plan::windows::WindowAggExec;
use datafusion_proto::bytes::{
    physical_plan_from_bytes_with_extension_codec, physical_plan_to_bytes_with_extension_codec,
};
use datafusion_proto::physical_plan::{PhysicalExtensionCodec, PhysicalProtoConverterExtension};
use serde::{Deserialize, Serialize};

use super::decode::DecodeExec;
use crate::batch_rows::BatchRowsExec;
use crate::build_sides::CompactExec;
use crate::grouped::GroupedWindowExec;
use crate::lists::ListsExec;
use crate::views::TokensExec;

/// Writes and reads Rollbook's own operators inside `DataFusion`'s plans.
#[derive(Debug, Default, Clone, Copy)]
pub struct PlanCodec;

/// An operator without its input.
#[derive(Serialize, Deserialize)]
#[serde(tag = "operator", rename_all = "snake_case")]
enum Node {
    Decode {
        columns: Vec<String>,
        row_bytes: u64,
    },
    Tokens {
        columns: Vec<String>,
    },
    Compact {
        tells_order: bool,
    },
    BatchRows {
        rows: usize,
    },
    Lists,
    /// `DataFusion`'s window operator with the same windows, over nothing, as it is written.
    Grouped {
        windows: Vec<u8>,
        /// Columns that leave; none said = all.
        #[serde(default)]
        kept: Option<Vec<usize>>,
    },
}

impl PhysicalExtensionCodec for PlanCodec {
    fn try_decode(
        &self,
        buf: &[u8],
        inputs: &[Arc<dyn ExecutionPlan>],
        ctx: &TaskContext,
        _proto_converter: &dyn PhysicalProtoConverterExtension,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let node: Node = serde_json::from_slice(buf).map_err(|error| DataFusionError::External(Box::new(error)))?;
        let [input] = inputs else {
            return not_impl_err!("Rollbook's operators have one input, this one has {}", inputs.len());
        };
        let input = Arc::clone(input);
        Ok(match node {
            Node::Decode { columns, row_bytes } => Arc::new(DecodeExec::try_new(input, &columns, row_bytes)?),
            Node::Tokens { columns } => Arc::new(TokensExec::try_new(input, &columns)?),
            Node::Compact { tells_order } => Arc::new(CompactExec::new(input, tells_order)),
            Node::BatchRows { rows } => Arc::new(BatchRowsExec::new(input, rows)),
            Node::Lists => Arc::new(ListsExec::new(input)),
            Node::Grouped { windows, kept } => {
                let plan = physical_plan_from_bytes_with_extension_codec(&windows, ctx, self)?;
                let windows = plan.downcast_ref::<WindowAggExec>().map(|window| window.window_expr().to_vec());
                match GroupedWindowExec::try_new(windows.unwrap_or_default(), input)? {
                    Some(grouped) => Arc::new(grouped.keep(kept)?),
                    None => return internal_err!("the windows of a GroupedWindowExec are none of ours"),
                }
            }
        })
    }

    fn try_encode(
        &self,
        node: Arc<dyn ExecutionPlan>,
        buf: &mut Vec<u8>,
        _proto_converter: &dyn PhysicalProtoConverterExtension,
    ) -> Result<()> {
        let any: &dyn Any = node.as_ref();
        let node = if let Some(decode) = any.downcast_ref::<DecodeExec>() {
            Node::Decode { columns: decode.columns().to_vec(), row_bytes: decode.row_bytes() }
        } else if let Some(tokens) = any.downcast_ref::<TokensExec>() {
            Node::Tokens { columns: tokens.columns().to_vec() }
        } else if let Some(compact) = any.downcast_ref::<CompactExec>() {
            Node::Compact { tells_order: compact.tells_order() }
        } else if let Some(batches) = any.downcast_ref::<BatchRowsExec>() {
            Node::BatchRows { rows: batches.rows() }
        } else if any.is::<ListsExec>() {
            Node::Lists
        } else if let Some(grouped) = any.downcast_ref::<GroupedWindowExec>() {
            let Some(input) = grouped.children().first().map(|input| input.schema()) else {
                return internal_err!("a GroupedWindowExec without input");
            };
            let nothing = Arc::new(EmptyExec::new(input));
            let windows = WindowAggExec::try_new(grouped.window_exprs().to_vec(), nothing, true)?;
            let windows = physical_plan_to_bytes_with_extension_codec(Arc::new(windows), self)?.to_vec();
            Node::Grouped { windows, kept: grouped.kept().map(<[usize]>::to_vec) }
        } else {
            return not_impl_err!("{} cannot leave the process", node.name());
        };
        serde_json::to_writer(buf, &node).map_err(|error| DataFusionError::External(Box::new(error)))
    }
}
