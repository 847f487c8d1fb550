//! `turn_gae(reward, value, call_id)`: generalized advantage estimation over turns.

use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::datatypes::DataType;
use datafusion_common::{Result, internal_err};

use super::read::{CALL_ID, GAMMA, LAM, OUTPUT};
use super::scan::{Factors, factor};
use super::turns::{REWARD, TURN, by_call, column, turn_rules, turn_starts};
use crate::call_window::{CallIds, Definition, Kernel, udwf};
use crate::function::{Function, Kind, Param};
use crate::number_lists::{NOT_FINITE, NotFinite};

/// `turn_gae`.
pub(crate) const TURN_GAE: Function = Function {
    name: "turn_gae",
    family: "token_credit",
    version: 1,
    kind: Kind::Window(|| udwf(DEFINITION)),
    params: &[
        REWARD,
        Param::required("value", "double", "Value of the state before the call, by the critic."),
        CALL_ID,
        TURN,
        GAMMA,
        LAM,
        OUTPUT,
        NOT_FINITE,
    ],
    returns: "double",
    doc: "Returns the generalized advantage estimate of each turn of a trajectory, or its return.",
    definition: concat!(
        "\
`A_i = d_i + gamma * lam * A_next` with `d_i = r_i + gamma * V_next - V_i` over the turns of the trajectory; V and A after the last are 0. The value \
of a turn is that of its first call. `output => 'return'` gives `A_i + V_i`.\n\n",
        turn_rules!()
    ),
    source: Some("arXiv 1506.02438, with a turn as the step"),
    slt: include_str!("turn_gae.slt"),
};

const DEFINITION: Definition = Definition {
    function: &TURN_GAE,
    columns: 4,
    output: || DataType::Float64,
    kernel: |constants| {
        Ok(Arc::new(TurnGae {
            factors: Factors { gamma: factor(constants, "gamma")?, lam: factor(constants, "lam")? },
            is_return: constants.choice("output", &[("advantage", false), ("return", true)])?,
            not_finite: NotFinite::of(constants)?,
        }))
    },
};

#[derive(Debug)]
struct TurnGae {
    factors: Factors,
    is_return: bool,
    not_finite: NotFinite,
}

impl Kernel for TurnGae {
    fn evaluate(&self, columns: &[ArrayRef], rows: usize) -> Result<ArrayRef> {
        let name = TURN_GAE.name;
        let [rewards, values, call_ids, turns, ..] = columns else {
            return internal_err!("{name} over {} columns", columns.len());
        };
        let ids = CallIds::of(call_ids)?;
        let rewards = column(name, "reward", rewards, &ids, self.not_finite)?;
        let values = column(name, "value", values, &ids, self.not_finite)?;
        let starts = turn_starts(name, turns, rows)?;
        let Factors { gamma, lam } = self.factors;
        let mut results = vec![0.0; starts.len().saturating_sub(1)];
        let (mut next_value, mut carried) = (0.0, 0.0);
        for (result, bounds) in results.iter_mut().zip(starts.windows(2)).rev() {
            let reward: f64 = rewards[bounds[0]..bounds[1]].iter().sum();
            let value = values[bounds[0]];
            carried = reward + gamma * next_value - value + gamma * lam * carried;
            next_value = value;
            *result = if self.is_return { carried + value } else { carried };
        }
        Ok(Arc::new(by_call(name, &ids, &starts, &results)?))
    }
}
