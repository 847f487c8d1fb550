//! The lake on a folder: publication, races, crashes, healing, foreign commits, files.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod crash;
mod files;
mod fixture;
mod heal;
mod meddler;
mod open;
mod publish;
