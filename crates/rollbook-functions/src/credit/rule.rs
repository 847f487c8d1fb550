//! What a credit window computes, read from the constant arguments of the call.

use datafusion_common::{Result, plan_err};

use crate::constants::Constants;

/// Which plain name was called; it decides the arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Name {
    Grpo,
    DrGrpo,
    Rloo,
    Opo,
    MaxRl,
    GrpoPassK,
    ReMax,
    Rae,
    RunningNorm,
    RolloutCount,
    RolloutSum,
    RolloutMean,
    RolloutStd,
    RolloutRank,
}

/// What a null value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Missing {
    Skip,
    Zero,
    Error,
}

/// What a NaN is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NotANumber {
    Error,
    Missing,
}

/// How values are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Reading {
    pub(super) missing: Missing,
    pub(super) nan: NotANumber,
}

/// What stands in for a credit that the group cannot give.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Fallback {
    Zero,
    Value,
    /// The value over 1 + eps: a mean of 0 and a standard deviation of 1 are taken for the missing ones.
    UnitStd {
        eps: f64,
    },
    Null,
    Error,
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
    /// The standard deviation plus `eps`; one of at most `min_std` is none.
    Std { ddof: u32, eps: f64, min_std: f64 },
    /// Nothing.
    None,
}

/// Which groups have credits at all.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Gate {
    pub(super) singleton: Fallback,
    pub(super) zero_variance: Fallback,
    pub(super) group_size: Option<u64>,
    pub(super) incomplete: Incomplete,
}

/// What a mean that is not positive does to a division by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Nonpositive {
    Zero,
    Null,
    Divide,
}

/// The place that equal values share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ties {
    Average,
    Least,
    Greatest,
}

/// How a rank is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    /// From 1 to n.
    Rank,
    /// (rank - 0.5) / n.
    Quantile,
    /// (rank - 1) / (n - 1), from 0 to 1.
    Unit,
    /// The same from -0.5 to 0.5.
    Centered,
}

/// How the credit of a member comes about.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Method {
    /// Value less the mean of all or of the others, over the spread of the same.
    Relative {
        leave_one_out: bool,
        scale: Scale,
    },
    /// Value less the weighted mean.
    Weighted,
    /// Value less the mean, over the mean.
    OverMean {
        eps: f64,
        nonpositive: Nonpositive,
    },
    /// Best value less the second best, to the best alone.
    Best {
        scale: Scale,
    },
    /// Value less the mean of the greedy members.
    Greedy {
        no_greedy: Fallback,
    },
    /// Value less a moving average of the values before it.
    MovingAverage {
        decay: f64,
        initial: f64,
    },
    /// Value less the mean so far, over the spread so far.
    Running {
        ddof: u32,
        eps: f64,
    },
    /// The place among the others.
    Rank {
        ties: Ties,
        unit: Unit,
    },
    /// A statistic of the group, the same for every row.
    Count,
    Sum,
    Mean,
    Std {
        ddof: u32,
    },
}

/// One written-out rule.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Rule {
    pub(super) method: Method,
    pub(super) gate: Option<Gate>,
    pub(super) reading: Reading,
}

impl Rule {
    /// Reads the rule of a call.
    pub(super) fn of(name: Name, constants: &Constants) -> Result<Self> {
        let method = method(name, constants)?;
        let gate = match method {
            Method::Relative { .. } | Method::Weighted | Method::OverMean { .. } | Method::Best { .. } => {
                Some(gate(method, constants)?)
            }
            _ => None,
        };
        Ok(Self { method, gate, reading: reading(constants)? })
    }
}

fn method(name: Name, constants: &Constants) -> Result<Method> {
    Ok(match name {
        Name::Grpo => Method::Relative { leave_one_out: constants.boolean("leave_one_out")?, scale: scale(constants)? },
        Name::DrGrpo => Method::Relative { leave_one_out: false, scale: Scale::None },
        Name::Rloo => Method::Relative { leave_one_out: true, scale: Scale::None },
        Name::Opo => Method::Weighted,
        Name::MaxRl => Method::OverMean {
            eps: at_least_zero(constants, "eps")?,
            nonpositive: constants.choice(
                "nonpositive_mean",
                &[("zero", Nonpositive::Zero), ("null", Nonpositive::Null), ("divide", Nonpositive::Divide)],
            )?,
        },
        Name::GrpoPassK => Method::Best { scale: scale(constants)? },
        Name::ReMax => Method::Greedy {
            no_greedy: constants.choice(
                "no_greedy",
                &[("null", Fallback::Null), ("value", Fallback::Value), ("error", Fallback::Error)],
            )?,
        },
        Name::Rae => {
            let decay = constants.number("decay")?;
            let initial = constants.number("initial")?;
            if !(0.0..=1.0).contains(&decay) || !initial.is_finite() {
                return plan_err!("rae: decay must be from 0 to 1 and initial a number, not {decay} and {initial}");
            }
            Method::MovingAverage { decay, initial }
        }
        Name::RunningNorm => Method::Running { ddof: ddof(constants)?, eps: at_least_zero(constants, "eps")? },
        Name::RolloutCount => Method::Count,
        Name::RolloutSum => Method::Sum,
        Name::RolloutMean => Method::Mean,
        Name::RolloutStd => Method::Std { ddof: ddof(constants)? },
        Name::RolloutRank => Method::Rank {
            ties: constants
                .choice("ties", &[("average", Ties::Average), ("least", Ties::Least), ("greatest", Ties::Greatest)])?,
            unit: constants.choice(
                "unit",
                &[
                    ("rank", Unit::Rank),
                    ("quantile", Unit::Quantile),
                    ("unit", Unit::Unit),
                    ("centered", Unit::Centered),
                ],
            )?,
        },
    })
}

fn reading(constants: &Constants) -> Result<Reading> {
    Ok(Reading {
        missing: constants
            .choice("missing", &[("skip", Missing::Skip), ("zero", Missing::Zero), ("error", Missing::Error)])?,
        nan: constants.choice("nan", &[("error", NotANumber::Error), ("missing", NotANumber::Missing)])?,
    })
}

fn gate(method: Method, constants: &Constants) -> Result<Gate> {
    let eps = match method {
        Method::Relative { scale: Scale::Std { eps, .. }, .. } => eps,
        _ => 0.0,
    };
    let Ok(group_size) = constants.integer("group_size")?.map(u64::try_from).transpose() else {
        return plan_err!("group_size must not be negative");
    };
    Ok(Gate {
        singleton: constants.choice(
            "singleton",
            &[
                ("zero", Fallback::Zero),
                ("value", Fallback::Value),
                ("unit_std", Fallback::UnitStd { eps }),
                ("null", Fallback::Null),
                ("error", Fallback::Error),
            ],
        )?,
        zero_variance: constants.choice("zero_variance", &[("zero", Fallback::Zero), ("null", Fallback::Null)])?,
        group_size,
        incomplete: constants.choice(
            "incomplete",
            &[("keep", Incomplete::Keep), ("null", Incomplete::Null), ("error", Incomplete::Error)],
        )?,
    })
}

fn scale(constants: &Constants) -> Result<Scale> {
    if !constants.choice("scale", &[("std", true), ("none", false)])? {
        return Ok(Scale::None);
    }
    Ok(Scale::Std {
        ddof: ddof(constants)?,
        eps: at_least_zero(constants, "eps")?,
        min_std: at_least_zero(constants, "min_std")?,
    })
}

fn ddof(constants: &Constants) -> Result<u32> {
    match constants.integer("ddof")? {
        Some(0) => Ok(0),
        Some(1) => Ok(1),
        other => plan_err!("ddof must be 0 or 1, not {}", other.map_or("NULL".to_owned(), |n| n.to_string())),
    }
}

fn at_least_zero(constants: &Constants, name: &str) -> Result<f64> {
    let value = constants.number(name)?;
    if value.is_finite() && value >= 0.0 {
        return Ok(value);
    }
    plan_err!("{name} must be a number of at least 0, not {value}")
}
