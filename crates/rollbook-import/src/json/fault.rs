//! Why a value cannot be read, with its path built while unwinding.

use std::fmt;

/// Why a value cannot be read, and the place of it below the value that was asked for.
///
/// It is boxed inside, since every step of the parser returns one or none.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Fault(Box<Parts>);

#[derive(Debug, PartialEq, Eq)]
struct Parts {
    path: String,
    reason: String,
}

/// A value read from a cursor, or the fault in it.
pub(crate) type Parse<T> = Result<T, Fault>;

impl Fault {
    pub(crate) fn new(reason: impl Into<String>) -> Self {
        Self(Box::new(Parts { path: String::new(), reason: reason.into() }))
    }

    pub(crate) fn at_key(mut self, key: &str) -> Self {
        self.0.path = format!(".{key}{}", self.0.path);
        self
    }

    pub(crate) fn at_index(mut self, index: usize) -> Self {
        self.0.path = format!("[{index}]{}", self.0.path);
        self
    }

    /// Returns a path such as `.segments[3].start`; empty for the value itself.
    pub(crate) fn path(&self) -> &str {
        &self.0.path
    }

    /// Returns one line of prose.
    pub(crate) fn reason(&self) -> &str {
        &self.0.reason
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path(), self.reason())
    }
}
