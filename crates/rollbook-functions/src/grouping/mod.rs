//! Grouping: which rows are alike enough to be compared with each other.

mod similarity_group;

pub(crate) use similarity_group::SIMILARITY_GROUP;
