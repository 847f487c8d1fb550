//! `manifest.json`: what an export holds and where it comes from.

use serde::{Deserialize, Serialize};

/// Name of the manifest in the destination.
pub(super) const MANIFEST: &str = "manifest.json";

/// Layout of the manifest.
pub(super) const MANIFEST_FORMAT: u32 = 1;

/// What an export holds and where it comes from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Manifest {
    /// Layout of this file.
    pub manifest_format: u32,
    /// Build the rows belong to.
    pub build_id: String,
    /// Name of the build.
    pub build: Option<String>,
    /// Run it trains.
    pub run_id: String,
    /// Id of the lake.
    pub lake_id: String,
    /// Snapshot the rows were read from.
    pub snapshot: u64,
    /// Derivation of the build.
    pub derivation_id: Option<String>,
    /// Derivations it was made from: credits, and the rewards behind them.
    pub upstream: Vec<Upstream>,
    /// Objective the loss weights belong to.
    pub objective: Objective,
    /// Whether the build holds tokens whose source did not say where they come from.
    pub accept_assumed: bool,
    /// `parquet` or `arrow`.
    pub format: String,
    /// Rows of all files.
    pub rows: u64,
    /// Rows of the build that were left out because they are quarantined.
    #[serde(default)]
    pub rows_quarantined: u64,
    /// Tokens of all rows.
    pub tokens: u64,
    /// Tokens that train.
    pub trained_tokens: u64,
    /// The files, in the order of their rows.
    pub files: Vec<ExportedFile>,
}

/// A derivation that a build rests on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Upstream {
    /// credit or reward.
    pub kind: String,
    /// Name.
    pub name: String,
    /// Id.
    pub derivation_id: String,
    /// Digest of its rows.
    pub content_digest: Option<String>,
}

/// What a unit of loss weight belongs to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Objective {
    /// token, row, rollout, group or constant; null is undeclared.
    pub unit: Option<String>,
    /// step, `micro_batch` or rank; null is undeclared.
    pub scope: Option<String>,
    /// The denominator of unit constant.
    pub constant: Option<f64>,
    /// Factor between credits and advantages.
    pub advantage_scale: Option<f64>,
}

/// One file of an export.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExportedFile {
    /// Name below the destination.
    pub path: String,
    /// Rows.
    pub rows: u64,
    /// Size.
    pub bytes: u64,
    /// Hex digest of the bytes.
    pub sha256: String,
}
