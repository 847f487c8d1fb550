//! One error for all commands: what went wrong, what to do next, and the exit status.

use std::fmt;
use std::process::ExitCode;

use crate::output::plain;

/// The exit status of wrong usage or input.
const USAGE: u8 = 2;
/// The exit status of a store that could not be read or written.
const STORE: u8 = 3;

/// A failed command.
#[derive(Debug)]
pub(crate) struct CommandError {
    status: u8,
    message: String,
    hints: Vec<String>,
}

/// What a command returns.
pub(crate) type Result<T, E = CommandError> = std::result::Result<T, E>;

impl CommandError {
    /// An error that the user mends by typing something else.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self { status: USAGE, message: message.into(), hints: Vec::new() }
    }

    /// An error of the store, the disk or the machine.
    pub(crate) fn unavailable(message: impl Into<String>) -> Self {
        Self { status: STORE, message: message.into(), hints: Vec::new() }
    }

    /// Adds a next step.
    #[must_use]
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hints.push(hint.into());
        self
    }
}

impl fmt::Display for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// Says on stderr what went wrong.
#[expect(clippy::print_stderr, reason = "the one place where errors are shown")]
pub(crate) fn report(error: &CommandError) -> ExitCode {
    // A message's own lines stay lines; whatever else a terminal would obey is shown.
    let lines: Vec<String> = error.message.lines().map(plain).collect();
    eprintln!("error: {}", lines.join("\n  "));
    for hint in &error.hints {
        eprintln!("  try: {}", plain(hint));
    }
    ExitCode::from(error.status)
}

fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(below) = cause {
        let below_text = below.to_string();
        if !text.contains(&below_text) {
            text.push_str(": ");
            text.push_str(&below_text);
        }
        cause = below.source();
    }
    text
}

impl From<rollbook_lake::Error> for CommandError {
    fn from(error: rollbook_lake::Error) -> Self {
        use rollbook_lake::ErrorKind as Kind;
        let status = match error.kind() {
            Kind::Invalid | Kind::Conflict | Kind::Unsupported => USAGE,
            _ => STORE,
        };
        Self { status, message: with_causes(&error), hints: Vec::new() }
    }
}

impl From<rollbook_query::Error> for CommandError {
    fn from(error: rollbook_query::Error) -> Self {
        use rollbook_query::ErrorKind as Kind;
        let status = match error.kind() {
            Kind::Corrupt | Kind::Unavailable | Kind::Exhausted | Kind::Denied => STORE,
            _ => USAGE,
        };
        let own = Self { status, message: with_causes(&error), hints: Vec::new() };
        if error.kind() == Kind::Exhausted {
            return own.hint("a larger --memory-limit (megabytes), or rows of one run alone");
        }
        own
    }
}

impl From<rollbook_import::Error> for CommandError {
    fn from(error: rollbook_import::Error) -> Self {
        Self { status: USAGE, message: with_causes(&error), hints: Vec::new() }
    }
}

impl From<datafusion::error::DataFusionError> for CommandError {
    fn from(error: datafusion::error::DataFusionError) -> Self {
        rollbook_query::Error::from(error).into()
    }
}

impl From<arrow::error::ArrowError> for CommandError {
    fn from(error: arrow::error::ArrowError) -> Self {
        Self { status: STORE, message: with_causes(&error), hints: Vec::new() }
    }
}

impl From<parquet::errors::ParquetError> for CommandError {
    fn from(error: parquet::errors::ParquetError) -> Self {
        Self { status: STORE, message: with_causes(&error), hints: Vec::new() }
    }
}

impl From<std::io::Error> for CommandError {
    fn from(error: std::io::Error) -> Self {
        Self { status: STORE, message: error.to_string(), hints: Vec::new() }
    }
}

impl From<serde_json::Error> for CommandError {
    fn from(error: serde_json::Error) -> Self {
        Self { status: STORE, message: error.to_string(), hints: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use datafusion::error::DataFusionError;

    use super::*;

    #[test]
    fn who_runs_out_of_memory_is_told_of_the_limit() {
        let error = CommandError::from(DataFusionError::ResourcesExhausted("the pool is empty".to_owned()));
        assert_eq!(error.status, STORE);
        assert!(error.message.contains("the pool is empty"), "{error}");
        assert!(error.hints.iter().any(|hint| hint.contains("--memory-limit")), "{:?}", error.hints);
    }
}
