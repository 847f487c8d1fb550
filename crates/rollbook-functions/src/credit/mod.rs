//! Credit: how the rewards of a group become advantages.
//!
//! A credit window is used `OVER (PARTITION BY run_id, group_id)`. Its statistic is over the **distinct rollouts** of the partition, so a
//! join that repeats rollouts cannot change it:
//!
//! ```text
//! rows (value, rollout_id)  ->  members: one value a rollout, sorted by id  ->  credits  ->  one for each row of the rollout
//! ```
//!
//! Sums are exact, so neither the order of rows nor how they were batched can change a bit of the result.

mod dr_grpo;
mod grpo;
mod kernel;
mod members;
mod rloo;
mod rule;
#[cfg(test)]
mod tests;
mod window;

use crate::function::Param;

pub(crate) use dr_grpo::DR_GRPO;
pub(crate) use grpo::GRPO;
pub(crate) use rloo::RLOO;

// Arguments that the functions share.
const VALUE: Param = Param::required("value", "double", "Reward of the row's rollout.");
const ROLLOUT_ID: Param = Param::required("rollout_id", "varchar", "The rollout; its rows count once.");
const SINGLETON: Param = Param::optional(
    "singleton",
    "varchar",
    "'zero'",
    "Credit of the only member of a group: 'zero', its 'value', or 'null'.",
);
const ZERO_VARIANCE: Param = Param::optional(
    "zero_variance",
    "varchar",
    "'zero'",
    "Credit where all members of a group have the same value: 'zero' or 'null'.",
);
const MISSING: Param = Param::optional(
    "missing",
    "varchar",
    "'skip'",
    "A null value: 'skip' (no member, credit null), 'zero' (a member with value 0) or 'error'.",
);
const NAN: Param =
    Param::optional("nan", "varchar", "'error'", "A NaN value: 'error', or 'missing' to treat it as a null one.");
const GROUP_SIZE: Param =
    Param::optional("group_size", "bigint", "NULL", "Members of a complete group; NULL takes any number for complete.");
const INCOMPLETE: Param = Param::optional(
    "incomplete",
    "varchar",
    "'keep'",
    "A group with fewer members than group_size: 'keep' (credit as it is), 'null' or 'error'.",
);

/// The rules that hold for every credit window, for the documentation.
macro_rules! shared_rules {
    () => {
        "\
- **Members** are the distinct rollouts of the partition; a rollout that stands in several rows votes once and every row gets its credit. \
Unequal values of one rollout are an error that names it and both values, a null rollout_id is one too.\n\
- **Null**: a rollout whose value is null is no member and gets null (`missing`). A rollout with a null in one row and a value in another is an error.\n\
- **NaN** is an error that names the rollout (`nan`); an infinite value always is.\n\
- **Singleton**: the only member of a group gets 0 (`singleton`).\n\
- **Zero variance**: where all members have the same value each gets exactly 0 (`zero_variance`).\n\
- **Ragged and incomplete groups**: groups may have any size; with `group_size`, smaller ones follow `incomplete`.\n\
- Sums are exact (`math.fsum`), values near the limits of a double are scaled by a power of two first, a credit beyond the doubles is an error."
    };
}
use shared_rules;
