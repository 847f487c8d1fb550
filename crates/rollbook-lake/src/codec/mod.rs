//! The prefix-delta codec: calls hold only what is new in their prompt, and get it back on reading.
//!
//! In an agent's rollout the prompt of a call is mostly the context (prompt ‖ output) of an earlier one. A stored row
//! names the earlier row of its rollout whose context shares most tokens, how many it shares, and the rest:
//!
//! ```text
//! stored_index  base_index  base_len  prompt_suffix  output     prompt rebuilt
//!      0           -           -      1 2 3          4 5        1 2 3
//!      1           0           5      6              7          1 2 3 4 5 | 6
//!      2           1           3      9              8          1 2 3 | 9              a compaction
//!      3           1           7      5              -          1 2 3 4 5 6 7 | 5      a branch
//! ```
//!
//! | stored as                                     | means                                                          |
//! |-----------------------------------------------|----------------------------------------------------------------|
//! | `prompt_suffix` null                          | the prompt is unknown; `base_index` is then the base of messages|
//! | `prompt_suffix` empty, no base                | the prompt is empty                                            |
//! | `base_index`, `base_len` null                 | no token is shared; the suffix is the whole prompt             |
//! | `messages_suffix` null                        | `request` is stored whole                                      |
//! | `messages_suffix`, `"messages":[]` in request | its messages are the base's first `messages_base_len`, then these |
//!
//! A row whose output is unknown stands as a base with its prompt alone. Bases never leave a file, nor an epoch of the
//! encoder: [`Encoder`] holds a bounded number of tokens and forgets the rollout used longest ago, whose later rows then
//! start without a base. [`rebase_rollout`] joins what several epochs or imports wrote of one rollout.

mod chain;
mod columns;
mod contexts;
mod decoder;
mod encoder;
mod fault;
mod outline;
mod physical;
mod rebase;
mod request;
mod rollout;
#[cfg(test)]
mod tests;
mod tree;

pub use decoder::{Decoded, Decoder};
pub use encoder::Encoder;
pub use outline::needs_rebase;
pub use rebase::rebase_rollout;
