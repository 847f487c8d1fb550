//! The crate's one error.

use std::{error, fmt, result};

/// What the caller should do about an [`Error`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The text is no schema: mend the text.
    Invalid,
    /// The format is newer than this program, or has a type it does not know: upgrade.
    Unsupported,
}

/// An error with what to do about it, in words, and the place it concerns.
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    message: String,
    context: Vec<(&'static str, String)>,
    source: Option<Box<dyn error::Error + Send + Sync>>,
}

/// Shorthand for results of this crate.
pub type Result<T, E = Error> = result::Result<T, E>;

impl Error {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), context: Vec::new(), source: None }
    }

    pub(crate) fn with(mut self, key: &'static str, value: impl Into<String>) -> Self {
        self.context.push((key, value.into()));
        self
    }

    pub(crate) fn caused_by(mut self, source: impl error::Error + Send + Sync + 'static) -> Self {
        self.source = Some(Box::new(source));
        self
    }

    /// Returns what to do about it.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Returns the place it concerns, innermost first.
    pub fn context(&self) -> &[(&'static str, String)] {
        &self.context
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        for (key, value) in &self.context {
            write!(f, ", {key}: {value}")?;
        }
        Ok(())
    }
}

impl error::Error for Error {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        self.source.as_deref().map(|source| source as &(dyn error::Error + 'static))
    }
}
