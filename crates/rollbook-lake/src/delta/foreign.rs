//! Commits in a Delta log that Rollbook did not write.

/// A Delta commit that is not the lake's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForeignCommit {
    /// Table's name.
    pub table: String,
    /// Delta version.
    pub version: u64,
    /// How it differs.
    pub reason: ForeignReason,
}

/// How a foreign commit differs from the lake's log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForeignReason {
    /// No entry knows this version.
    Beyond,
    /// The entry that made this version wrote other bytes.
    OtherBytes,
}
