//! What the tests and benches of Rollbook share: a real S3 server on loopback, S3 servers that misbehave in one known
//! way, the records of known faults, and a seeded generator of agentic rollouts. A dev-only crate: nothing that ships
//! depends on it.

pub mod calculator_run;
pub mod checksum;
mod error;
pub mod faults;
pub mod faults_page;
pub mod generate;
pub mod http_stub;
pub mod s3;
pub mod shared;

pub use error::{Error, ErrorKind, Result};
