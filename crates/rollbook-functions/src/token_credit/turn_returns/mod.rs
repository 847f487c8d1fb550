//! `turn_returns(reward, call_id)`: the discounted sum of rewards from each turn on.

use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::datatypes::DataType;
use datafusion_common::{Result, internal_err};

use super::read::{CALL_ID, GAMMA};
use super::scan::factor;
use super::turns::{REWARD, TURN, by_call, column, turn_rules, turn_starts};
use crate::call_window::{CallIds, Definition, Kernel, udwf};
use crate::function::{Function, Kind};
use crate::number_lists::{NOT_FINITE, NotFinite};

/// `turn_returns`.
pub(crate) const TURN_RETURNS: Function = Function {
    name: "turn_returns",
    family: "token_credit",
    version: 1,
    kind: Kind::Window(|| udwf(DEFINITION)),
    params: &[REWARD, CALL_ID, TURN, GAMMA, NOT_FINITE],
    returns: "double",
    doc: "Returns the discounted sum of the rewards from each turn of a trajectory on.",
    definition: concat!(
        "\
`R_i = r_i + gamma * R_next` over the turns of the trajectory, 0 after the last. Computed as a scan, so that no power of gamma overflows.\n\n",
        turn_rules!()
    ),
    source: Some("AReaL's turn discount; the step return of GiGPO, arXiv 2505.10978"),
    slt: include_str!("turn_returns.slt"),
};

const DEFINITION: Definition = Definition {
    function: &TURN_RETURNS,
    columns: 3,
    output: || DataType::Float64,
    kernel: |constants| {
        Ok(Arc::new(TurnReturns { gamma: factor(constants, "gamma")?, not_finite: NotFinite::of(constants)? }))
    },
};

#[derive(Debug)]
struct TurnReturns {
    gamma: f64,
    not_finite: NotFinite,
}

impl Kernel for TurnReturns {
    fn evaluate(&self, columns: &[ArrayRef], rows: usize) -> Result<ArrayRef> {
        let name = TURN_RETURNS.name;
        let [rewards, call_ids, turns, ..] = columns else {
            return internal_err!("{name} over {} columns", columns.len());
        };
        let ids = CallIds::of(call_ids)?;
        let rewards = column(name, "reward", rewards, &ids, self.not_finite)?;
        let starts = turn_starts(name, turns, rows)?;
        let mut results = vec![0.0; starts.len().saturating_sub(1)];
        let mut carried = 0.0;
        for (result, bounds) in results.iter_mut().zip(starts.windows(2)).rev() {
            carried = rewards[bounds[0]..bounds[1]].iter().sum::<f64>() + self.gamma * carried;
            *result = carried;
        }
        Ok(Arc::new(by_call(name, &ids, &starts, &results)?))
    }
}
