//! Token credit: returns, advantages and whitening over the tokens and turns of trajectories.
//!
//! A trajectory is the calls of one path through a rollout, in order; the view `trajectories` names it. Its tokens are flattened to one
//! sequence, scanned and cut again, so that what is carried goes from call to call:
//!
//! ```text
//! place_reward    one number a rollout or call    ->  a list of rewards for each call
//! gae, …          rewards, values, mask           ->  a list of advantages for each call
//! token_moments   lists of a batch                ->  what whiten needs
//! whiten          a list and the batch's moments  ->  the list, whitened
//! ```

mod bi_level_gae;
mod gae;
mod moments;
mod optimal_token_baseline;
mod place_reward;
mod read;
mod scan;
#[cfg(test)]
mod tests;
mod token_fill;
mod token_mask;
mod token_moments;
mod token_returns;
mod token_steps;
mod token_sum;
mod turn_gae;
mod turn_returns;
mod turns;
mod whiten;

pub(crate) use bi_level_gae::BI_LEVEL_GAE;
pub(crate) use gae::GAE;
pub(crate) use optimal_token_baseline::OPTIMAL_TOKEN_BASELINE;
pub(crate) use place_reward::PLACE_REWARD;
pub(crate) use token_fill::TOKEN_FILL;
pub(crate) use token_mask::TOKEN_MASK;
pub(crate) use token_moments::TOKEN_MOMENTS;
pub(crate) use token_returns::TOKEN_RETURNS;
pub(crate) use token_steps::TOKEN_STEPS;
pub(crate) use token_sum::TOKEN_SUM;
pub(crate) use turn_gae::TURN_GAE;
pub(crate) use turn_returns::TURN_RETURNS;
pub(crate) use whiten::WHITEN;
