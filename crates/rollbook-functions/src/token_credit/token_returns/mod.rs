//! `token_returns(rewards, mask, call_id)`: the discounted sum of rewards from each token on.

use std::sync::Arc;

use arrow::array::ArrayRef;
use datafusion_common::{Result, internal_err};

use super::read::{CALL_ID, GAMMA, GAP, MASK, OBSERVATIONS, REWARDS, UNSELECTED, gaps, scan_rules, steps};
use super::scan::{Observations, factor, returns};
use crate::call_window::{CallIds, Definition, Kernel, Tokens, udwf};
use crate::function::{Function, Kind};
use crate::number_lists::{Lists, NOT_FINITE, NotFinite, Unselected, number_list};

/// `token_returns`.
pub(crate) const TOKEN_RETURNS: Function = Function {
    name: "token_returns",
    family: "token_credit",
    version: 2,
    kind: Kind::Window(|| udwf(DEFINITION)),
    params: &[REWARDS, MASK, CALL_ID, GAP, GAMMA, OBSERVATIONS, UNSELECTED, NOT_FINITE],
    returns: "double[]",
    doc: "Returns the discounted sum of the rewards from each token of a trajectory on.",
    definition: concat!(
        "\
`G_t = r_t + gamma * G_next` over the selected tokens of the trajectory, 0 after the last. With `observations => 'zero'` each token that is not \
selected, and each of the `gap` tokens before a call, is a step with reward 0 and discounts once more; with 'step' it adds its own reward too. With 'reset' no reward passes over it: each run of selected tokens has its own.\n\n",
        scan_rules!()
    ),
    source: Some(
        "REINFORCE++, arXiv 2501.03262; verl's reinforce_plus_plus carries over observations, OpenRLHF's and slime's are steps (zero), SkyRL's resets",
    ),
    slt: include_str!("token_returns.slt"),
};

const DEFINITION: Definition = Definition {
    function: &TOKEN_RETURNS,
    columns: 4,
    output: number_list,
    kernel: |constants| {
        Ok(Arc::new(TokenReturns {
            gamma: factor(constants, "gamma")?,
            observations: Observations::of(constants)?,
            unselected: Unselected::of_scan(constants)?,
            not_finite: NotFinite::of(constants)?,
        }))
    },
};

#[derive(Debug)]
struct TokenReturns {
    gamma: f64,
    observations: Observations,
    unselected: Unselected,
    not_finite: NotFinite,
}

impl Kernel for TokenReturns {
    fn evaluate(&self, columns: &[ArrayRef], rows: usize) -> Result<ArrayRef> {
        let name = TOKEN_RETURNS.name;
        let [rewards, mask, call_ids, gap, ..] = columns else {
            return internal_err!("{name} over {} columns", columns.len());
        };
        let ids = CallIds::of(call_ids)?;
        let (rewards, mask) = (Lists::of("rewards", rewards)?, Lists::of("mask", mask)?);
        let tokens = Tokens::read(name, &ids, &mask, &[&rewards], rows, self.not_finite)?;
        let gaps = gaps(name, gap, &ids, &tokens)?;
        let values = returns(steps(&tokens, &gaps)?, self.gamma, self.observations, self.unselected);
        tokens.lists(name, &ids, values)
    }
}
