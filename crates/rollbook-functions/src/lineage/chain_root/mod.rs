//! `chain_root(call_id, parent_call_id, extends)`: the first call of a call's chain.

use super::window::{ChainWindow, Told};
use super::{PARAMS, chain_rules};
use crate::function::{Function, Kind};

/// `chain_root`.
pub(crate) const CHAIN_ROOT: Function = Function {
    name: "chain_root",
    family: "lineage",
    version: 1,
    kind: Kind::Window(|| ChainWindow::udwf(Told::Root)),
    params: PARAMS,
    returns: "varchar",
    doc: "Returns the call that starts the chain of a call.",
    definition: chain_rules!(),
    source: None,
    slt: include_str!("chain_root.slt"),
};
