//! The integration tests live in `tests/`, one binary a harness. What they share is here: a scratch folder in which the
//! built `rollbook` is run as a user runs it.

#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod scratch;

pub use scratch::{Ran, S3, Scratch};
