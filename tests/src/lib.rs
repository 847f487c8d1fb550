//! The integration tests live in `tests/`, one binary a harness.
