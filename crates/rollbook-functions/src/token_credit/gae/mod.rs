//! `gae(rewards, state_values, mask, call_id)`: generalized advantage estimation over tokens.

use std::sync::Arc;

use arrow::array::ArrayRef;
use datafusion_common::{Result, internal_err, plan_err};

use super::read::{
    CALL_ID, GAMMA, GAP, LAM, MASK, OBSERVATIONS, OUTPUT, REWARDS, UNSELECTED, VALUES, gaps, scan_rules, steps,
};
use super::scan::{Factors, Observations, advantages, factor};
use crate::call_window::{CallIds, Definition, Kernel, Tokens, udwf};
use crate::constants::Constants;
use crate::function::{Function, Kind, Param};
use crate::number_lists::{Lists, NOT_FINITE, NotFinite, Unselected, number_list};

/// `gae`.
pub(crate) const GAE: Function = Function {
    name: "gae",
    family: "token_credit",
    version: 2,
    kind: Kind::Window(|| udwf(DEFINITION)),
    params: &[
        REWARDS,
        VALUES,
        MASK,
        CALL_ID,
        GAP,
        GAMMA,
        LAM,
        Param::optional(
            "lam_alpha",
            "double",
            "NULL",
            "Length-adaptive lambda: 1 - 1 / (lam_alpha * selected tokens), clamped to 0..1, in the place of lam.",
        ),
        OUTPUT,
        OBSERVATIONS,
        UNSELECTED,
        NOT_FINITE,
    ],
    returns: "double[]",
    doc: "Returns the generalized advantage estimate of each token of a trajectory, or its return.",
    definition: concat!(
        "\
`A_t = d_t + gamma * lam * A_next` with `d_t = r_t + gamma * V_next - V_t` over the selected tokens of the trajectory; V and A after the last are 0. \
`output => 'return'` gives `A_t + V_t`; where trainers use another lambda for returns (decoupled GAE), call it once for each.\n\n\
Observations, that is tokens which are not selected and the `gap` tokens before a call: 'carry' passes A and V over them (verl, AReaL, NeMo RL), \
'zero' takes them for steps with reward and value 0, which leaves phantom differences (OpenRLHF), 'step' for ordinary steps with their own reward and \
value (SkyRL, slime, ROLL). The value of the `gap` tokens is unknown: with lam 1 it cancels out, with another lam what comes before them is null. 'reset' makes \
each run of selected tokens a trajectory of its own.\n\n",
        scan_rules!()
    ),
    source: Some("arXiv 1506.02438; observations as in verl's core_algos.py; lam_alpha as in VAPO, arXiv 2504.05118"),
    slt: include_str!("gae.slt"),
};

pub(super) const DEFINITION: Definition = Definition {
    function: &GAE,
    columns: 5,
    output: number_list,
    kernel: |constants| Ok(Arc::new(Gae::of(constants)?)),
};

#[derive(Debug)]
struct Gae {
    gamma: f64,
    lam: f64,
    lam_alpha: Option<f64>,
    is_return: bool,
    observations: Observations,
    unselected: Unselected,
    not_finite: NotFinite,
}

impl Gae {
    fn of(constants: &Constants) -> Result<Self> {
        let lam_alpha = constants.optional_number("lam_alpha")?;
        if lam_alpha.is_some_and(|alpha| !alpha.is_finite() || alpha <= 0.0) {
            return plan_err!("lam_alpha must be a number above 0");
        }
        Ok(Self {
            gamma: factor(constants, "gamma")?,
            lam: factor(constants, "lam")?,
            lam_alpha,
            is_return: constants.choice("output", &[("advantage", false), ("return", true)])?,
            observations: Observations::of(constants)?,
            unselected: Unselected::of_scan(constants)?,
            not_finite: NotFinite::of(constants)?,
        })
    }

    /// Returns lambda for a trajectory of so many selected tokens.
    #[expect(clippy::cast_precision_loss, reason = "no trajectory has 2^53 tokens")]
    fn lam(&self, selected: usize) -> f64 {
        match self.lam_alpha {
            Some(alpha) if selected > 0 => (1.0 - 1.0 / (alpha * selected as f64)).clamp(0.0, 1.0),
            _ => self.lam,
        }
    }
}

impl Kernel for Gae {
    fn evaluate(&self, columns: &[ArrayRef], rows: usize) -> Result<ArrayRef> {
        let name = GAE.name;
        let [rewards, values, mask, call_ids, gap, ..] = columns else {
            return internal_err!("{name} over {} columns", columns.len());
        };
        let ids = CallIds::of(call_ids)?;
        let (rewards, values) = (Lists::of("rewards", rewards)?, Lists::of("state_values", values)?);
        let mask = Lists::of("mask", mask)?;
        let tokens = Tokens::read(name, &ids, &mask, &[&rewards, &values], rows, self.not_finite)?;
        let gaps = gaps(name, gap, &ids, &tokens)?;
        let selected = tokens.selected.iter().filter(|is_selected| **is_selected).count();
        let factors = Factors { gamma: self.gamma, lam: self.lam(selected) };
        let values = &tokens.numbers[1];
        let mut result = advantages(steps(&tokens, &gaps)?, values, factors, self.observations, self.unselected);
        if self.is_return {
            let is_kept = |at: usize| tokens.selected[at] || self.unselected == Unselected::Carry;
            let with_value = result.iter_mut().zip(values).enumerate().filter(|(at, _)| is_kept(*at));
            with_value.for_each(|(_, (advantage, value))| *advantage += value);
        }
        tokens.lists(name, &ids, result)
    }
}
