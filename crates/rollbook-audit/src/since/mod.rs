//! What came after a snapshot, and what of the lake a check has to see again for it.
//!
//! ```text
//! files added after the snapshot -> rollouts, builds and runs that they touch
//!
//! @scope rollout   judges a rollout by itself      sees the touched rollouts, in the files that can hold them
//! @scope build     judges a build                  sees the touched builds' samples and exclusions, and their runs
//! @scope run       compares anything in a run      sees the touched runs
//! @scope lake      compares runs                   sees all of them
//! ```
//!
//! A rollout is touched by its own new rows and those of its calls, payloads, signals and environment records, by a new
//! row of its run, and by an encoding of its calls that was not there. A build is touched by its own new rows, by new rows
//! of its run, by new calls of rollouts that it names, by credits it rests on and policies published at its steps.
//! A run is touched by any new row in it.
//!
//! A check of scope run or lake sees old rows again, so what it found before is left out where it is recorded.

mod base;
mod known;
mod scope;
mod touched;

pub(crate) use base::bases;
pub(crate) use known::without_known;
pub(crate) use scope::session_within;
pub(crate) use touched::Touched;

/// Where an audit starts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Since {
    /// With everything.
    #[default]
    Everything,
    /// With what came after a snapshot.
    Snapshot(u64),
    /// With what came after the last recorded audit that ran the same version of the same check.
    Last,
}
