//! The whole way through the binary, as a user goes it: on a folder and on S3, through kills and races, and with bad
//! input. Expected numbers come from the README of the run that ships, from Python readers, or are counted by hand.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod audits;
mod bad_input;
mod bad_lake;
mod both_forms;
mod compact;
mod crash;
mod digests;
mod import_memory;
mod imported_build;
mod race;
mod read_only;
mod recipes;
mod same_source;
mod snapshots;
mod token_credits;
mod verl_golden;
mod whole_way;
