//! Delta commits as text: written once per entry, read back to know the files.
//!
//! The text is composed here rather than by `CommitData`, which stamps its own clock: this crate's time is the caller's,
//! and the same entry always gives the same bytes. Reader 1 / writer 2, no features.

mod checkpoint;
pub(crate) mod foreign;
mod read;
mod write;

pub(crate) use checkpoint::{CHECKPOINT_EVERY, checkpoint};
pub(crate) use read::{CommitActions, read_commit};
pub(crate) use write::{CommitSpec, commit_text};

/// Tag of a file whose `step` and `group_id` wait for their rollout.
const TAG_UNRESOLVED: &str = "rollbook.unresolved";
/// Tag of a file whose rows were checked to be in order.
const TAG_SORTED: &str = "rollbook.sorted";
