//! How a plan with [`DecodeExec`] leaves the process: its columns as text, its scan as `DataFusion` writes it.

use std::any::Any;
use std::sync::Arc;

use datafusion::common::{DataFusionError, Result, not_impl_err};
use datafusion::execution::TaskContext;
use datafusion::physical_plan::ExecutionPlan;
use datafusion_proto::physical_plan::{PhysicalExtensionCodec, PhysicalProtoConverterExtension};
use serde::{Deserialize, Serialize};

use super::decode::DecodeExec;
use crate::views::TokensExec;

/// Writes and reads Rollbook's own operators inside `DataFusion`'s plans.
#[derive(Debug, Default, Clone, Copy)]
pub struct PlanCodec;

/// An operator without its input.
#[derive(Serialize, Deserialize)]
#[serde(tag = "operator", rename_all = "snake_case")]
enum Node {
    Decode { columns: Vec<String>, row_bytes: u64 },
    Tokens { columns: Vec<String> },
}

impl PhysicalExtensionCodec for PlanCodec {
    fn try_decode(
        &self,
        buf: &[u8],
        inputs: &[Arc<dyn ExecutionPlan>],
        _ctx: &TaskContext,
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
        } else {
            return not_impl_err!("{} cannot leave the process", node.name());
        };
        serde_json::to_writer(buf, &node).map_err(|error| DataFusionError::External(Box::new(error)))
    }
}
