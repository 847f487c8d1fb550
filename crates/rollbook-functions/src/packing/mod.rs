//! Packing: which samples share a row of the trainer's batch.

mod pack;

pub(crate) use pack::PACK;
