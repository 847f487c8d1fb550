//! What can be wrong with the rows the codec is given.

use arrow::datatypes::DataType;
use arrow::error::ArrowError;
use thiserror::Error as ThisError;

use crate::error::{Error, Kind};

/// A precise cause inside the codec; it becomes the crate's error at the codec's edge.
#[derive(Debug, ThisError)]
pub(super) enum Fault {
    /// A column that the operation cannot do without is not in the batch.
    #[error("column {0} is missing")]
    Missing(&'static str),
    /// A column has a type that it never has in a table of calls.
    #[error("column {name} has type {found}")]
    Type { name: &'static str, found: DataType },
    /// A token id is null, which a list of ids cannot hold.
    #[error("column {name} holds a null token in row {row}")]
    NullToken { name: &'static str, row: usize },
    /// A stored row does not name a prompt or a request that can be rebuilt.
    #[error("{reason} in run {run}, rollout {rollout}, stored_index {stored_index}")]
    Corrupt { run: String, rollout: String, stored_index: i64, reason: &'static str },
    /// The rows do not fit the 32-bit offsets of one Arrow list or of one file's row numbers.
    #[error("{0}")]
    TooLarge(&'static str),
    /// Arrow refused an array or a batch.
    #[error(transparent)]
    Arrow(#[from] ArrowError),
}

pub(super) type Result<T, E = Fault> = std::result::Result<T, E>;

impl From<Fault> for Error {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Corrupt { run, rollout, stored_index, reason } => Self::new(Kind::Corrupt, reason)
                .with("run_id", run)
                .with("rollout_id", rollout)
                .with("stored_index", stored_index)
                .with_remedy("restore the file, or import the rollout again"),
            Fault::Missing(_) | Fault::Type { .. } | Fault::NullToken { .. } | Fault::TooLarge(_) => {
                Self::new(Kind::Invalid, fault.to_string()).with("table", "calls")
            }
            Fault::Arrow(error) => error.into(),
        }
    }
}
