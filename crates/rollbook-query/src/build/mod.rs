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
//! bounded by the session's pool and one row, however large the build. Credits of level `token` go through a second sort in
//! the same order, and meet their calls in the assembler.
//!
//! A row's place is optimizer step, micro-batch, rank and row index; `samples.step` is the optimizer step, since that is the
//! step that trains the row.

mod across;
mod assemble;
mod credit;
mod facts;
#[cfg(test)]
mod levels;
mod objective;
#[cfg(test)]
mod oracle;
mod pieces;
mod plan;
mod row_columns;
mod run;
#[cfg(test)]
mod tests;
mod token_values;
mod verdict;

pub use objective::{Objective, Scope, Unit};
pub(crate) use run::plan_of;
pub use run::{BuildOptions, run_build};
pub(crate) use verdict::{column, list, text};

/// Names a call or a rollout within one run, in 16 bytes instead of its text.
pub(crate) fn key_of(text: &str) -> u128 {
    hashed(text)
}

/// Names a call of a rollout: a call id alone may stand in several rollouts.
pub(crate) fn pair_key(rollout: &str, call: &str) -> u128 {
    hashed(&(rollout, call))
}

fn hashed(of: &(impl std::hash::Hash + ?Sized)) -> u128 {
    use std::hash::{DefaultHasher, Hasher};
    let half = |seed: u8| {
        let mut hasher = DefaultHasher::new();
        hasher.write_u8(seed);
        of.hash(&mut hasher);
        u128::from(hasher.finish())
    };
    (half(0) << 64) | half(1)
}
