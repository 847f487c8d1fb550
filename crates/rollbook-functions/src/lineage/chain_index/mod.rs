//! `chain_index(call_id, parent_call_id, extends)`: a call's place in its chain.

use super::window::{ChainWindow, Told};
use super::{PARAMS, chain_rules};
use crate::function::{Function, Kind};

/// `chain_index`.
pub(crate) const CHAIN_INDEX: Function = Function {
    name: "chain_index",
    family: "lineage",
    version: 1,
    kind: Kind::Window(|| ChainWindow::udwf(Told::Index)),
    params: PARAMS,
    returns: "integer",
    doc: "Returns the place of a call in its chain, from 0.",
    definition: chain_rules!(),
    source: None,
    slt: include_str!("chain_index.slt"),
};
