//! What a credit window computes, read from the constant arguments of the call.

use datafusion_common::{Result, plan_err};

use super::members::{Missing, NotANumber};
use crate::constants::Constants;

/// Which plain name was called; it decides the arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Name {
    Grpo,
    DrGrpo,
    Rloo,
}

/// What stands in for a credit that the group cannot give.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fallback {
    Zero,
    Value,
    Null,
}

/// What becomes of a group with fewer members than it should have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Incomplete {
    Keep,
    Null,
    Error,
}

/// What the difference to the baseline is divided by.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Scale {
    /// The standard deviation plus `eps`.
    Std { ddof: u32, eps: f64 },
    /// Nothing.
    None,
}

/// One written-out rule.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Rule {
    pub(super) scale: Scale,
    pub(super) leave_one_out: bool,
    pub(super) singleton: Fallback,
    pub(super) zero_variance: Fallback,
    pub(super) missing: Missing,
    pub(super) not_a_number: NotANumber,
    pub(super) group_size: Option<u64>,
    pub(super) incomplete: Incomplete,
}

impl Rule {
    /// Reads the rule of a call.
    pub(super) fn of(name: Name, constants: &Constants) -> Result<Self> {
        let group_size = constants.integer("group_size")?;
        let Ok(group_size) = group_size.map(u64::try_from).transpose() else {
            return plan_err!("group_size must not be negative");
        };
        Ok(Self {
            scale: if name == Name::Grpo { scale(constants)? } else { Scale::None },
            leave_one_out: match name {
                Name::Grpo => constants.boolean("leave_one_out")?,
                Name::DrGrpo => false,
                Name::Rloo => true,
            },
            singleton: constants.choice(
                "singleton",
                &[("zero", Fallback::Zero), ("value", Fallback::Value), ("null", Fallback::Null)],
            )?,
            zero_variance: constants.choice("zero_variance", &[("zero", Fallback::Zero), ("null", Fallback::Null)])?,
            missing: constants
                .choice("missing", &[("skip", Missing::Skip), ("zero", Missing::Zero), ("error", Missing::Error)])?,
            not_a_number: constants.choice("nan", &[("error", NotANumber::Error), ("missing", NotANumber::Missing)])?,
            group_size,
            incomplete: constants.choice(
                "incomplete",
                &[("keep", Incomplete::Keep), ("null", Incomplete::Null), ("error", Incomplete::Error)],
            )?,
        })
    }
}

fn scale(constants: &Constants) -> Result<Scale> {
    if !constants.choice("scale", &[("std", true), ("none", false)])? {
        return Ok(Scale::None);
    }
    let ddof = match constants.integer("ddof")? {
        Some(0) => 0,
        Some(1) => 1,
        other => {
            return plan_err!("ddof must be 0 or 1, not {}", other.map_or("NULL".to_owned(), |n| n.to_string()));
        }
    };
    let eps = constants.number("eps")?;
    if !eps.is_finite() || eps < 0.0 {
        return plan_err!("eps must be a number of at least 0, not {eps}");
    }
    Ok(Scale::Std { ddof, eps })
}
