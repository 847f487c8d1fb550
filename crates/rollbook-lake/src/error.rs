//! The crate's one public error: a kind that says what to do, a message, context and a remedy.

use std::error::Error as StdError;
use std::fmt;

/// Result with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Says what the caller should do about an [`Error`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// The request itself is wrong: change it.
    Invalid,
    /// The lake, bucket, folder, snapshot or object does not exist: create it or name another.
    NotFound,
    /// Somebody else wrote what this call would write: read again and decide.
    Conflict,
    /// The store or the format cannot do this: upgrade, or use another store.
    Unsupported,
    /// Stored bytes are not what Rollbook wrote: restore them.
    Corrupt,
    /// The store cannot be reached or failed: try again later.
    Unavailable,
    /// The store refuses these credentials: get access.
    Denied,
}

/// What went wrong, where, and what can be done about it.
pub struct Error {
    kind: Kind,
    message: String,
    context: Vec<(&'static str, String)>,
    remedy: Option<String>,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

impl Error {
    /// Creates an error of a kind with a one-sentence message.
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), context: Vec::new(), remedy: None, source: None }
    }

    /// Adds a fact about the place, shown as `key: value`.
    #[must_use]
    pub fn with(mut self, key: &'static str, value: impl fmt::Display) -> Self {
        self.context.push((key, value.to_string()));
        self
    }

    /// Sets what the user can do about it.
    #[must_use]
    pub fn with_remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }

    /// Sets the error below.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// Returns the kind.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Returns the message without context.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Returns the context in the order it was added.
    pub fn context(&self) -> &[(&'static str, String)] {
        &self.context
    }

    /// Returns what the user can do, where something is known to help.
    pub fn remedy(&self) -> Option<&str> {
        self.remedy.as_deref()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        for (index, (key, value)) in self.context.iter().enumerate() {
            write!(f, "{}{key}: {value}", if index == 0 { " (" } else { ", " })?;
        }
        if !self.context.is_empty() {
            f.write_str(")")?;
        }
        if let Some(remedy) = &self.remedy {
            write!(f, "; {remedy}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {self}", self.kind)?;
        match &self.source {
            Some(source) => write!(f, " <- {source}"),
            None => Ok(()),
        }
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_ref().map(|source| source.as_ref() as &(dyn StdError + 'static))
    }
}

impl From<parquet::errors::ParquetError> for Error {
    fn from(error: parquet::errors::ParquetError) -> Self {
        Self::new(Kind::Unavailable, "a Parquet file could not be written").with_source(error)
    }
}

impl From<arrow::error::ArrowError> for Error {
    fn from(error: arrow::error::ArrowError) -> Self {
        Self::new(Kind::Invalid, "rows do not fit the table").with_source(error)
    }
}
