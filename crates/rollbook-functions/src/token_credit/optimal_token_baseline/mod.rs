//! `optimal_token_baseline(rewards, mask, logprobs, sum_pi_squared, trajectory_id, call_id)`: returns less a baseline of their own for each token.

mod kernel;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::ArrayRef;
use datafusion_common::{Result, exec_err, internal_err};

use super::read::{CALL_ID, GAMMA, GAP, MASK, REWARDS, gaps};
use super::scan::factor;
use crate::call_window::{CallIds, Definition, Kernel, Tokens, udwf};
use crate::constants::Constants;
use crate::function::{Function, Kind, Param};
use crate::number_lists::{Lists, NOT_FINITE, NotFinite, UNSELECTED, Unselected, number_list};
use kernel::{Align, Member, Rule, advantages};

/// `optimal_token_baseline`.
pub(crate) const OPTIMAL_TOKEN_BASELINE: Function = Function {
    name: "optimal_token_baseline",
    family: "token_credit",
    version: 1,
    kind: Kind::Window(|| udwf(DEFINITION)),
    params: &[
        REWARDS,
        MASK,
        Param::required("logprobs", "double[]", "Logprob of each token under the policy that trains."),
        Param::required("sum_pi_squared", "double[]", "Sum of the squared probabilities of the vocabulary, by token."),
        Param::required("trajectory_id", "varchar", "The trajectory; its calls make one member of the group."),
        CALL_ID,
        Param::optional("weights", "double[]", "NULL", "Importance weights of the tokens; null is 1."),
        GAP,
        GAMMA,
        Param::optional("eps", "double", "1e-8", "Added to the sum of the path weights."),
        Param::optional(
            "align",
            "varchar",
            "'selected'",
            "Which tokens of the members share a baseline: the n-th 'selected' ones, or those at one 'position'.",
        ),
        Param::optional(
            "zero_tail",
            "boolean",
            "true",
            "Whether the baseline is 0 where only the longest member has tokens.",
        ),
        UNSELECTED,
        NOT_FINITE,
    ],
    returns: "double[]",
    doc: "Returns the return of each token less the optimal baseline of the tokens at the same place in the group.",
    definition: "\
`A_t = G_t - B_t` with `B_t = sum(G_t * W_t) / (sum(W_t) + eps)` over the members that have the place t, `G_t = r_t + gamma * G_next` over the selected \
tokens, and `W_t` the sum up to t of `(1 - 2 * exp(logprob) + sum_pi_squared) * weight^2`.\n\
\n\
- **Window**: `OVER (PARTITION BY run_id, group_id ORDER BY trajectory_id, call_index)`. Calls with one trajectory_id make one member, in the window's \
order; a null trajectory_id is an error.\n\
- **Place**: with `align => 'selected'` the n-th selected token (verl's tir_optimal_token_baseline); with 'position' the position among all tokens, \
the `gap` ones included (verl's optimal_token_baseline).\n\
- **Singleton**: the only member with selected tokens has baseline 0.\n\
- **Zero tail**: if one member alone has most selected tokens, its baseline is 0 from place n on, where n is the number of selected tokens of the \
second; verl counts so with 'position' too.\n\
- **Null**: an unknown number makes the returns before it and the weights after it unknown, and so the baseline of every member at those places.\n\
- **NaN or infinity** in a selected token is an error that names the call (`not_finite`); lists that differ in length are one too.\n\
- Members are summed in the order of their ids, so that the order of rows leaves no trace; a group is held at a time.",
    source: Some("verl/trainer/ppo/core_algos.py: optimal_token_baseline and tir_optimal_token_baseline"),
    slt: include_str!("optimal_token_baseline.slt"),
};

const DEFINITION: Definition = Definition {
    function: &OPTIMAL_TOKEN_BASELINE,
    columns: 8,
    output: number_list,
    kernel: |constants| Ok(Arc::new(OptimalTokenBaseline::of(constants)?)),
};

#[derive(Debug)]
struct OptimalTokenBaseline {
    rule: Rule,
    unselected: Unselected,
    not_finite: NotFinite,
}

impl OptimalTokenBaseline {
    fn of(constants: &Constants) -> Result<Self> {
        Ok(Self {
            rule: Rule {
                gamma: factor(constants, "gamma")?,
                eps: constants.number("eps")?,
                align: constants.choice("align", &[("selected", Align::Selected), ("position", Align::Position)])?,
                zero_tail: constants.boolean("zero_tail")?,
            },
            unselected: Unselected::of(constants)?,
            not_finite: NotFinite::of(constants)?,
        })
    }
}

/// Rows of each trajectory, by its id.
fn members<'a>(trajectories: &'a CallIds, ids: &CallIds, rows: usize) -> Result<BTreeMap<&'a str, Vec<usize>>> {
    let mut members: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for row in 0..rows {
        let Some(trajectory) = trajectories.get(row) else {
            return exec_err!("{}: call {} has no trajectory_id", OPTIMAL_TOKEN_BASELINE.name, ids.show(row));
        };
        members.entry(trajectory).or_default().push(row);
    }
    Ok(members)
}

impl Kernel for OptimalTokenBaseline {
    fn evaluate(&self, columns: &[ArrayRef], rows: usize) -> Result<ArrayRef> {
        let name = OPTIMAL_TOKEN_BASELINE.name;
        let [rewards, mask, logprobs, squares, trajectories, call_ids, weights, gap, ..] = columns else {
            return internal_err!("{name} over {} columns", columns.len());
        };
        let ids = CallIds::of(call_ids)?;
        let trajectories = CallIds::of(trajectories)?;
        let lists = [
            Lists::of("rewards", rewards)?,
            Lists::of("logprobs", logprobs)?,
            Lists::of("sum_pi_squared", squares)?,
            Lists::of("weights", weights)?,
        ];
        let mask = Lists::of("mask", mask)?;
        let borrowed: Vec<&Lists> = lists.iter().collect();
        let tokens = Tokens::read(name, &ids, &mask, &borrowed, rows, self.not_finite)?;
        let ranges: Vec<Range<usize>> = tokens.ranges().collect();
        let [rewards, logprobs, squares, weights] = tokens.numbers.as_slice() else {
            return internal_err!("{name} without lists");
        };
        let gaps: BTreeMap<usize, u64> = gaps(name, gap, &ids, &tokens)?.into_iter().collect();
        let members = members(&trajectories, &ids, rows)?;
        let group: Vec<Member> = members
            .values()
            .map(|rows| {
                let mut member = Member::default();
                for row in rows {
                    let is_weighted = lists[3].length(*row).is_some();
                    for at in ranges[*row].clone() {
                        member.skip(gaps.get(&at).map_or(0, |gap| usize::try_from(*gap).unwrap_or(0)));
                        let weight = if is_weighted { weights[at] } else { 1.0 };
                        let energy = (1.0 - 2.0 * logprobs[at].exp() + squares[at]) * weight * weight;
                        member.push(tokens.selected[at], rewards[at], energy);
                    }
                }
                member
            })
            .collect();
        let mut result = vec![f64::NAN; tokens.selected.len()];
        for (rows, credits) in members.values().zip(advantages(&group, self.rule)) {
            let places = rows.iter().flat_map(|row| ranges[*row].clone());
            for (at, credit) in places.zip(credits) {
                result[at] = if tokens.selected[at] { credit } else { self.unselected.value(0.0) };
            }
        }
        tokens.lists(name, &ids, result)
    }
}
