//! Tables of the lake as `DataFusion` sees them: a plain Parquet scan, and one operator of ours where prompts are asked for.
//!
//! ```text
//! SELECT call_id, prompt_len FROM calls          DataSourceExec(parquet)
//! SELECT prompt_token_ids FROM calls             DecodeExec
//!                                                  DataSourceExec(parquet: whole files or rollouts, key filters only)
//! ```

mod codec;
mod deal;
mod decode;
mod fill;
pub(crate) mod nested;
mod prune;
mod scan;
mod table;
#[cfg(test)]
mod tests;
mod within;

use datafusion::execution::object_store::ObjectStoreUrl;
use rollbook_lake::Lake;

pub(crate) use deal::{footer_of, row_group_pieces};

pub use codec::PlanCodec;
pub use decode::DecodeExec;
pub use table::LakeTable;

pub(crate) use scan::parquet_source;
pub(crate) use table::FILE;

use crate::error::Result;

/// The URL under which a lake's store is registered.
///
/// It carries the lake's id and no place, so that a plan names no path of the machine that made it.
pub(crate) fn store_url(lake: &Lake) -> Result<ObjectStoreUrl> {
    let host: String =
        lake.id().chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' }).collect();
    Ok(ObjectStoreUrl::parse(format!("rollbook://{host}"))?)
}
