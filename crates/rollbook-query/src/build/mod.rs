//! Builds: a plan of trainer rows becomes the rows themselves.
//!
//! ```text
//! build recipe ──> plan: optimizer_step, micro_batch, rank, row_index, sequence_index, rollout_id, call_ids
//! calls (narrow) ─> every planned call exists, extends the one before it, fits the row      (else an error, nothing written)
//! calls ─ verdict ─┬─> exclusions: each sampled token that does not train, with the reason
//!                  └─> pieces: one a planned call ─ external sort by the row's place ─> samples, a row at a time
//! ```
//!
//! Only narrow facts of the planned calls stay in memory; token columns stream through a sort that spills, so memory is
//! bounded by the session's pool and one row, however large the build.
//!
//! A row's place is optimizer step, micro-batch, rank and row index; `samples.step` is the optimizer step, since that is the
//! step that trains the row.

mod across;
mod assemble;
mod credit;
mod facts;
mod objective;
#[cfg(test)]
mod oracle;
mod order;
mod pieces;
mod plan;
mod row_columns;
mod run;
#[cfg(test)]
mod tests;
mod verdict;

pub use objective::Objective;
pub use run::{BuildOptions, run_build};

/// Names a call or a rollout within one run, in 16 bytes instead of its text.
pub(crate) fn key_of(text: &str) -> u128 {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let half = |seed: u8| {
        let mut hasher = DefaultHasher::new();
        seed.hash(&mut hasher);
        text.hash(&mut hasher);
        u128::from(hasher.finish())
    };
    (half(0) << 64) | half(1)
}
