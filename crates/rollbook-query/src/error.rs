//! The crate's one error: what happened, where, and what the caller can do about it.

use std::error::Error as StdError;
use std::fmt;

use arrow::error::ArrowError;
use datafusion::common::DataFusionError;

use crate::recipe::Place;

/// What the caller should do about an [`Error`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// The statement, recipe, parameter or input is wrong: change it.
    Invalid,
    /// The named thing does not exist: check the name.
    NotFound,
    /// Another writer was faster, or the name is taken: retry or choose another.
    Conflict,
    /// This version cannot do it: upgrade or rewrite the request.
    Unsupported,
    /// Stored bytes do not say what they should: restore them.
    Corrupt,
    /// Storage did not answer: retry.
    Unavailable,
    /// The memory or disk that was allowed is used up: allow more, or read less.
    Exhausted,
    /// The store refuses these credentials: get access.
    Denied,
}

/// A failure, with its context as key and value pairs.
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    message: String,
    context: Vec<(&'static str, String)>,
    source: Option<Box<dyn StdError + Send + Sync>>,
    place: Option<Place>,
}

/// A result with this crate's error.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// Makes an error of a kind.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), context: Vec::new(), source: None, place: None }
    }

    /// Makes an error that the caller can mend by changing what was asked.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Invalid, message)
    }

    /// Makes an error for a thing that does not exist.
    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::NotFound, message)
    }

    /// Makes an error for stored bytes that contradict themselves.
    pub fn corrupt(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Corrupt, message)
    }

    /// Makes an error for something this version cannot do.
    pub fn unsupported(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Unsupported, message)
    }

    /// Adds one key and value of context.
    #[must_use]
    pub fn with(mut self, key: &'static str, value: impl fmt::Display) -> Self {
        self.context.push((key, value.to_string()));
        self
    }

    /// Keeps the error that caused this one.
    #[must_use]
    pub fn caused_by(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// Returns what the caller should do.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Returns where in the SQL text the planner found it, if it says.
    pub(crate) fn place(&self) -> Option<Place> {
        self.place
    }

    /// Returns the message without context and causes.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Returns the context in the order it was added.
    pub fn context(&self) -> &[(&'static str, String)] {
        &self.context
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        for (index, (key, value)) in self.context.iter().enumerate() {
            let open = if index == 0 { " (" } else { ", " };
            write!(f, "{open}{key}: {value}")?;
        }
        if self.context.is_empty() { Ok(()) } else { f.write_str(")") }
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match &self.source {
            Some(source) => Some(source.as_ref()),
            None => None,
        }
    }
}

/// The kind a `DataFusion` error stands for, looked up at its root.
fn kind_of(error: &DataFusionError) -> ErrorKind {
    match error.find_root() {
        DataFusionError::NotImplemented(_) => ErrorKind::Unsupported,
        DataFusionError::ResourcesExhausted(_) => ErrorKind::Exhausted,
        DataFusionError::ObjectStore(_) | DataFusionError::IoError(_) => ErrorKind::Unavailable,
        DataFusionError::ParquetError(_) | DataFusionError::Internal(_) => ErrorKind::Corrupt,
        _ => ErrorKind::Invalid,
    }
}

impl From<DataFusionError> for Error {
    fn from(error: DataFusionError) -> Self {
        // An error of ours that travelled through an operator comes back whole.
        let error = match error {
            DataFusionError::External(inner) => match inner.downcast::<Self>() {
                Ok(own) => return *own,
                Err(inner) => DataFusionError::External(inner),
            },
            other => other,
        };
        let kind = kind_of(&error);
        let span = error.diagnostic().and_then(|diagnostic| diagnostic.span);
        let place = span.map(|span| Place { line: span.start.line, column: span.start.column });
        Self { place, ..Self::new(kind, error.strip_backtrace()) }
    }
}

impl From<Error> for DataFusionError {
    fn from(error: Error) -> Self {
        Self::External(Box::new(error))
    }
}

impl From<ArrowError> for Error {
    fn from(error: ArrowError) -> Self {
        Self::from(DataFusionError::from(error))
    }
}

impl From<rollbook_lake::Error> for Error {
    fn from(error: rollbook_lake::Error) -> Self {
        use rollbook_lake::ErrorKind as Lake;
        let kind = match error.kind() {
            Lake::NotFound => ErrorKind::NotFound,
            Lake::Conflict => ErrorKind::Conflict,
            Lake::Unsupported => ErrorKind::Unsupported,
            Lake::Corrupt => ErrorKind::Corrupt,
            Lake::Unavailable => ErrorKind::Unavailable,
            Lake::Denied => ErrorKind::Denied,
            _ => ErrorKind::Invalid,
        };
        Self::new(kind, error.to_string()).caused_by(error)
    }
}

impl From<rollbook_import::Error> for Error {
    fn from(error: rollbook_import::Error) -> Self {
        use rollbook_import::ErrorKind as Import;
        let kind = match error.kind() {
            Import::NotFound => ErrorKind::NotFound,
            Import::Unsupported => ErrorKind::Unsupported,
            // The lake is sound: it is the source that its owner writes again.
            Import::Unavailable => ErrorKind::Unavailable,
            _ => ErrorKind::Invalid,
        };
        Self::new(kind, error.to_string()).caused_by(error)
    }
}

/// A write's preparation reads through this crate, and hands its failures down to the commit.
impl From<Error> for rollbook_lake::Error {
    fn from(error: Error) -> Self {
        use rollbook_lake::ErrorKind as Lake;
        let kind = match error.kind() {
            ErrorKind::Invalid => Lake::Invalid,
            ErrorKind::NotFound => Lake::NotFound,
            ErrorKind::Conflict => Lake::Conflict,
            ErrorKind::Unsupported => Lake::Unsupported,
            ErrorKind::Corrupt => Lake::Corrupt,
            ErrorKind::Unavailable | ErrorKind::Exhausted => Lake::Unavailable,
            ErrorKind::Denied => Lake::Denied,
        };
        Self::new(kind, error.to_string()).with_source(error)
    }
}
