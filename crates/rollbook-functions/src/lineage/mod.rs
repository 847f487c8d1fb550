//! Lineage: chains of calls, each of which extends the one before.
//!
//! ```text
//! a ── b ── c          d extends b too, but c came first: d starts its own chain
//!       └── d          chain_root: a a a d      chain_index: 0 1 2 0
//! ```
//!
//! Used `OVER (PARTITION BY run_id, rollout_id ORDER BY call_index, call_id)`.

mod chain_index;
mod chain_root;
mod chains;
mod trajectory_id;
mod window;

use crate::function::Param;

pub(crate) use chain_index::CHAIN_INDEX;
pub(crate) use chain_root::CHAIN_ROOT;
pub(crate) use trajectory_id::TRAJECTORY_ID;

/// Arguments of both functions.
const PARAMS: &[Param] = &[
    Param::required("call_id", "varchar", "The call."),
    Param::required("parent_call_id", "varchar", "Its parent, or null."),
    Param::required("extends", "boolean", "Whether its prompt extends the parent's whole context; null is false."),
];

/// The rules of both functions, for the documentation.
macro_rules! chain_rules {
    () => {
        "\
A call continues the chain of its parent if `extends` is true, the parent comes earlier in the window's order and no earlier call continued that \
parent; else it starts a chain of its own.\n\
\n\
- ORDER BY decides which of several calls continues a parent and must be unique in the partition.\n\
- A call_id that comes twice: references mean the first row; each later one stands alone, with its own call_id as root and index 0, and is \
continued by none. So it shares the root's name with the first row where that one is a root: leave doubled calls out before merging.\n\
- A null call_id is an error."
    };
}
use chain_rules;
