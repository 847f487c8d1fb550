//! `balance(value, advantage_balance)`: advantages of one sign made smaller.

use datafusion_common::{Result, plan_err};

use super::elementwise::{Elementwise, Rule, udf};
use crate::constants::Constants;
use crate::function::{Function, Kind, Param};

/// `balance`.
pub(crate) const BALANCE: Function = Function {
    name: "balance",
    family: "shaping",
    version: 1,
    kind: Kind::Scalar(|| udf(Elementwise { function: &BALANCE, rule })),
    params: &[
        Param::required("value", "double | double[]", "The advantage, or a list of them."),
        Param::required(
            "advantage_balance",
            "double",
            "From -1 to 1: above 0 negative advantages become smaller, below 0 positive ones.",
        ),
    ],
    returns: "double | double[]",
    doc: "Returns an advantage, or each advantage of a list, with those of one sign made smaller.",
    definition: "\
`value * (1 - b)` for a negative value and b above 0, `value * (1 + b)` for a positive value and b below 0, else the value. At 1 only positive advantages \
are left, at -1 only negative ones.\n\
\n\
- A null stays null, NaN stays NaN.\n\
- An advantage_balance that is null, NaN or outside -1..1 is an error.",
    source: Some("openpipe-art 0.5.23, advantage_balance in art/preprocessing/pack.py"),
    slt: include_str!("balance.slt"),
};

fn rule(constants: &Constants) -> Result<Rule> {
    let balance = constants.number("advantage_balance")?;
    if !(-1.0..=1.0).contains(&balance) {
        return plan_err!("balance: advantage_balance must lie between -1 and 1, not be {balance}");
    }
    Ok(Rule::Balance { negative: 1.0 - balance.max(0.0), positive: 1.0 + balance.min(0.0) })
}
