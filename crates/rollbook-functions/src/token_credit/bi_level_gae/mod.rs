//! `bi_level_gae(rewards, state_values, mask, call_id)`: estimation over turns first, then over the tokens of each turn.

mod kernel;

use std::sync::Arc;

use arrow::array::ArrayRef;
use datafusion_common::{Result, internal_err};

use super::read::{CALL_ID, GAMMA, LAM, MASK, OUTPUT, REWARDS, VALUES, scan_rules};
use super::scan::{Factors, factor};
use crate::call_window::{CallIds, Definition, Kernel, Tokens, udwf};
use crate::function::{Function, Kind, Param};
use crate::number_lists::{Lists, NOT_FINITE, NotFinite, UNSELECTED, Unselected, number_list};

/// `bi_level_gae`.
pub(crate) const BI_LEVEL_GAE: Function = Function {
    name: "bi_level_gae",
    family: "token_credit",
    version: 1,
    kind: Kind::Window(|| udwf(DEFINITION)),
    params: &[
        REWARDS,
        VALUES,
        MASK,
        CALL_ID,
        Param::optional("high_level_gamma", "double", "1.0", "Discount of one turn, from 0 to 1."),
        GAMMA,
        LAM,
        Param::optional(
            "turn_end",
            "varchar",
            "'call'",
            "Where a turn ends: at the last selected token of each 'call', or at each token with a 'nonzero_reward' (RAGEN).",
        ),
        OUTPUT,
        UNSELECTED,
        NOT_FINITE,
    ],
    returns: "double[]",
    doc: "Returns the advantage of each token estimated at two levels, turns and the tokens within a turn, or its return.",
    definition: concat!(
        "\
1. Over the tokens that end a turn: `A = d + high_level_gamma * lam * A_next`, `d = r + high_level_gamma * V_next - V`, where next is the next turn's \
end, with 0 after the last. The return of a turn is `A + V` at its end.\n\
2. Over the selected tokens of each turn, from its end on: `A_t = d_t + gamma * lam * A_next`, `d_t = r_t + gamma * V_next - V_t`, with the turn's return \
in the place of the reward at its end, and 0 for V and A after it.\n\
\n\
Selected tokens after the last turn end are a turn whose end has no return, only its own reward.\n\n",
        scan_rules!()
    ),
    source: Some("RAGEN, arXiv 2504.20073, ragen/trainer/core_algos.py"),
    slt: include_str!("bi_level_gae.slt"),
};

pub(super) const DEFINITION: Definition = Definition {
    function: &BI_LEVEL_GAE,
    columns: 4,
    output: number_list,
    kernel: |constants| {
        let lam = factor(constants, "lam")?;
        Ok(Arc::new(BiLevelGae {
            turns: Factors { gamma: factor(constants, "high_level_gamma")?, lam },
            tokens: Factors { gamma: factor(constants, "gamma")?, lam },
            by_reward: constants.choice("turn_end", &[("call", false), ("nonzero_reward", true)])?,
            is_return: constants.choice("output", &[("advantage", false), ("return", true)])?,
            unselected: Unselected::of(constants)?,
            not_finite: NotFinite::of(constants)?,
        }))
    },
};

#[derive(Debug)]
struct BiLevelGae {
    turns: Factors,
    tokens: Factors,
    by_reward: bool,
    is_return: bool,
    unselected: Unselected,
    not_finite: NotFinite,
}

impl Kernel for BiLevelGae {
    fn evaluate(&self, columns: &[ArrayRef], rows: usize) -> Result<ArrayRef> {
        let name = BI_LEVEL_GAE.name;
        let [rewards, values, mask, call_ids, ..] = columns else {
            return internal_err!("{name} over {} columns", columns.len());
        };
        let ids = CallIds::of(call_ids)?;
        let (rewards, values) = (Lists::of("rewards", rewards)?, Lists::of("state_values", values)?);
        let mask = Lists::of("mask", mask)?;
        let tokens = Tokens::read(name, &ids, &mask, &[&rewards, &values], rows, self.not_finite)?;
        let [rewards, values] = tokens.numbers.as_slice() else {
            return internal_err!("{name} without values");
        };
        let mut ends = vec![false; tokens.selected.len()];
        for range in tokens.ranges() {
            if self.by_reward {
                // An unknown reward may end a turn: taken for an end, it makes what depends on it unknown.
                range.filter(|at| tokens.selected[*at] && rewards[*at] != 0.0).for_each(|at| ends[at] = true);
            } else if let Some(last) = range.rev().find(|at| tokens.selected[*at]) {
                ends[last] = true;
            }
        }
        let mut result = kernel::advantages(rewards, values, &tokens.selected, &ends, self.turns, self.tokens);
        for (at, advantage) in result.iter_mut().enumerate() {
            if !tokens.selected[at] {
                *advantage = self.unselected.value(0.0);
            } else if self.is_return {
                *advantage += values[at];
            }
        }
        tokens.lists(name, &ids, result)
    }
}
