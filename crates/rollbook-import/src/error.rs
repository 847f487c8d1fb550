//! The one public error of this crate: a file or folder as a whole could not be read.
//! A single bad record is no error, it is an [`Item::Reject`](crate::Item::Reject), unless the import is strict.

use std::error::Error as StdError;
use std::fmt;

/// The result of an operation of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What the caller should do about an [`Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The source, or in a strict import one record of it, is not what the importer takes: correct it.
    Invalid,
    /// A named path does not exist: correct the path.
    NotFound,
    /// The source is in a form that this version does not read: convert it.
    Unsupported,
    /// The file claims a format and does not keep to it: write it again.
    Corrupt,
    /// The file system failed: look at the cause and retry.
    Unavailable,
}

/// A source that cannot be read, with the place as key-value context.
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    message: String,
    context: Vec<(&'static str, String)>,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), context: Vec::new(), source: None }
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Invalid, message)
    }

    #[must_use]
    pub(crate) fn with(mut self, key: &'static str, value: impl fmt::Display) -> Self {
        self.context.push((key, value.to_string()));
        self
    }

    #[must_use]
    pub(crate) fn because(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// Turns an I/O failure on one path into an error that names the path.
    pub(crate) fn io(path: impl fmt::Display, source: std::io::Error) -> Self {
        let (kind, message) = match source.kind() {
            std::io::ErrorKind::NotFound => (ErrorKind::NotFound, "no such file or folder"),
            _ => (ErrorKind::Unavailable, "the file could not be read"),
        };
        Self::new(kind, message).with("path", path).because(source)
    }

    /// Returns what the caller should do.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Returns the message without its context.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Returns the place as (key, value) pairs, the innermost first.
    pub fn context(&self) -> &[(&'static str, String)] {
        &self.context
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        for (key, value) in &self.context {
            write!(f, "; {key}: {value}")?;
        }
        Ok(())
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_deref().map(|source| source as &(dyn StdError + 'static))
    }
}
