//! Credit: how the rewards of a group become advantages.
//!
//! A credit window is used `OVER (PARTITION BY run_id, group_id)`. Its statistic is over the **distinct rollouts** of the partition, so a
//! join that repeats rollouts cannot change it:
//!
//! ```text
//! rows (value, rollout_id)  ->  members: one value a rollout, sorted by id  ->  credits  ->  one for each row of the rollout
//!                                 groups.rs                                       kernel.rs
//! ```
//!
//! Sums are exact, so neither the order of rows nor how they were batched can change a bit of the result. Members are collected over all
//! groups of a batch at once and once for all calls over the same columns ([`evaluate_groups`]); a session may give them so, or group by group.

mod call;
mod dr_grpo;
mod groups;
mod grpo;
mod grpo_passk;
mod kernel;
mod maxrl;
mod opo;
#[cfg(test)]
mod oracle;
mod ordered;
mod rae;
mod rank;
mod remax;
mod rloo;
mod rollout_count;
mod rollout_mean;
mod rollout_rank;
mod rollout_std;
mod rollout_sum;
mod rule;
mod running_norm;
mod spread;
#[cfg(test)]
mod tests;
mod window;

use crate::function::Param;

pub use call::{GroupWindow, evaluate_groups};
pub(crate) use dr_grpo::DR_GRPO;
pub use groups::Groups;
pub(crate) use grpo::GRPO;
pub(crate) use grpo_passk::GRPO_PASSK;
pub(crate) use maxrl::MAXRL;
pub(crate) use opo::OPO;
pub(crate) use rae::RAE;
pub(crate) use remax::REMAX;
pub(crate) use rloo::RLOO;
pub(crate) use rollout_count::ROLLOUT_COUNT;
pub(crate) use rollout_mean::ROLLOUT_MEAN;
pub(crate) use rollout_rank::ROLLOUT_RANK;
pub(crate) use rollout_std::ROLLOUT_STD;
pub(crate) use rollout_sum::ROLLOUT_SUM;
pub(crate) use running_norm::RUNNING_NORM;

// Arguments that the functions share.
const VALUE: Param = Param::required("value", "double", "Reward of the row's rollout.");
const ROLLOUT_ID: Param = Param::required("rollout_id", "varchar", "The rollout; its rows count once.");
const DDOF: Param =
    Param::optional("ddof", "bigint", "1", "Subtracted from n in the variance: 1 (sample) or 0 (population).");
const EPS: Param = Param::optional("eps", "double", "1e-6", "Added to the standard deviation.");
const SCALE: Param =
    Param::optional("scale", "varchar", "'std'", "'std' divides by the standard deviation plus eps, 'none' does not.");
const MIN_STD: Param = Param::optional(
    "min_std",
    "double",
    "0",
    "A standard deviation of at most this is none: the credit is 0, with leave_one_out the undivided difference.",
);
const SINGLETON: Param = Param::optional(
    "singleton",
    "varchar",
    "'zero'",
    "Credit of the only member of a group: 'zero', its 'value', 'unit_std' (value / (1 + eps)), 'null', or 'error'.",
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
const VOTES: Param = Param::optional(
    "votes",
    "bigint",
    "1",
    "Rows that the rollout counts as, a column or a constant; 0 leaves it out of the group.",
);
const POSITION: Param = Param::required(
    "position",
    "bigint",
    "Place of the rollout in the order of scoring; equal places follow the rollout id.",
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
- **Votes**: with `votes => k` a rollout counts k times in every mean, standard deviation and n, as in a trainer that counts rows; one vote a \
rollout is the default. A rollout of several votes is no singleton.\n\
- Sums are exact (`math.fsum`), values near the limits of a double are scaled by a power of two first, a credit beyond the doubles is an error."
    };
}
use shared_rules;

/// The rules of the windows that compare nobody with a group.
macro_rules! reading_rules {
    () => {
        "\
- **Members** are the distinct rollouts of the partition; a rollout that stands in several rows counts once. Unequal values of one rollout are an \
error that names it and both values, a null rollout_id is one too.\n\
- **Null**: a rollout whose value is null is no member (`missing`). A rollout with a null in one row and a value in another is an error.\n\
- **NaN** is an error that names the rollout (`nan`); an infinite value always is, and so is a result beyond the doubles."
    };
}
use reading_rules;
