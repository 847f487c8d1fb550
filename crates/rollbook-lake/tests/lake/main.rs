//! The lake on a folder: publication, races, crashes, healing, foreign commits, files.

#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
#![expect(missing_docs, reason = "tests are named after what they show")]

mod files;
mod fixture;
mod heal;
mod open;
mod publish;
