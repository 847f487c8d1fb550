//! Packing and balancing: which samples share a row of the trainer's batch, and which rows share a rank.

mod karmarkar_karp;
mod pack;

pub(crate) use karmarkar_karp::KARMARKAR_KARP;
pub(crate) use pack::PACK;
