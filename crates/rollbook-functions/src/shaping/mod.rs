//! Shaping: what is done to single numbers, one at a time, whether they stand alone or in the list of a call.

mod balance;
mod clip;
mod elementwise;

pub(crate) use balance::BALANCE;
pub(crate) use clip::CLIP;
