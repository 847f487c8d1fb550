//! The one public error of this crate.

use std::fmt;

/// The result of an operation of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What the caller should do about an [`Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The bytes are no tokenizer, or the text no template: look at where they come from.
    Invalid,
    /// The request cannot be rendered as it is: it holds no messages, or not what an option of it asks for.
    Unsuitable,
    /// The template itself refuses the conversation (`raise_exception`): its message says why.
    Refused,
    /// The template fails on the conversation: a value it cannot work with.
    Failed,
    /// The template runs longer, or writes more, than any may.
    Exhausted,
}

/// What went wrong with a template or a tokenizer, and at which line of the template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    kind: ErrorKind,
    message: String,
    line: Option<usize>,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), line: None }
    }

    pub(crate) fn at(mut self, line: Option<usize>) -> Self {
        self.line = line;
        self
    }

    /// Returns what the caller should do.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Returns the message without the place.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Returns the line of the template, from 1, where it is known.
    pub fn line(&self) -> Option<usize> {
        self.line
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        match self.line {
            Some(line) => write!(f, " (line {line} of the template)"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Error {}
