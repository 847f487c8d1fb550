//! The configurations that credits are known to be made by, and the names their parts go by.
//!
//! The formulas are those of the trainers (TRL, verl, `SkyRL`, slime, `AReaL`, rLLM, NeMo-RL, prime-rl, OpenRLHF): one formula of
//! four parts, and a few that have no such parts.

use std::fmt;

use super::statistics::Expected;

/// What is subtracted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Center {
    GroupMean,
    LeaveOneOut,
    BatchMean,
    None,
}

/// Over what the standard deviation runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Std {
    None,
    Group,
    /// The other members; not divided where they have no spread if the flag is set.
    Others {
        undivided: bool,
    },
    /// The rewards of the batch.
    Batch,
    /// The centered rewards of the batch.
    BatchCentered,
    /// The centered rewards of the batch, each as often as its rollout has trained tokens, less their mean.
    BatchTokens,
}

/// How eps stands beside the standard deviation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Eps {
    /// `std + eps`.
    Added(f64),
    /// `sqrt(variance + eps)`.
    UnderRoot(f64),
}

impl Eps {
    pub(super) fn value(self) -> f64 {
        match self {
            Self::Added(eps) | Self::UnderRoot(eps) => eps,
        }
    }
}

/// What counts once in a statistic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Over {
    Rollouts,
    /// Trainer rows.
    Rows,
    Calls,
}

/// Who is a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Members {
    /// Every rollout with a reward and a token that trains.
    Rewarded,
    /// Those of them that were not dropped.
    Kept,
    /// Rollouts without a token that trains too.
    Idle,
    /// A null reward counts as 0.
    NullIsZero,
}

/// How the statistic is made of rollouts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Basis {
    pub(super) over: Over,
    pub(super) members: Members,
    /// Whether rollouts of several tasks under one group id are taken as one group.
    pub(super) merges_tasks: bool,
}

impl Basis {
    /// What the lake's rule is: distinct rollouts of one task, nulls no members.
    pub(super) fn is_proper(self, null_is_zero: bool) -> bool {
        let members = match self.members {
            Members::Rewarded | Members::Kept => true,
            Members::NullIsZero => null_is_zero,
            Members::Idle => false,
        };
        self.over == Over::Rollouts && members && !self.merges_tasks
    }
}

/// A formula over the statistics.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Formula {
    /// `(r - center) / (std + eps)`.
    Scaled { center: Center, std: Std, ddof: u8, eps: Eps },
    /// `(r - mean) / (mean + eps)`, 0 where the mean is not above 0 if eps is 0.
    MaxRl { eps: f64 },
    /// `r` less the group's mean weighted by trained tokens.
    Opo,
    /// `(r - mean) * n / n(r != 0)`, counted over the batch.
    Gpg,
    /// The best of the group gets its lead over the second, over `std + eps` where eps is given; the others 0.
    PassAtK { eps: Option<f64> },
}

/// A formula over a basis.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Config {
    pub(super) formula: Formula,
    pub(super) basis: Basis,
}

const EPS: [f64; 6] = [0.0, 1e-6, 1e-8, 1e-9, 1e-5, 1e-4];

/// All known formulas, the usual ones first; `eps` is one that the run declares.
pub(super) fn formulas(eps: Option<f64>, has_tokens: bool) -> Vec<Formula> {
    let mut values: Vec<f64> = EPS.to_vec();
    values.extend(eps.filter(|eps| !EPS.contains(eps)));
    let mut formulas = Vec::new();
    let centers = [Center::GroupMean, Center::LeaveOneOut, Center::BatchMean, Center::None];
    for center in centers {
        formulas.push(Formula::Scaled { center, std: Std::None, ddof: 1, eps: Eps::Added(0.0) });
    }
    for center in centers {
        for std in stds(center, has_tokens) {
            for ddof in [1, 0] {
                let added = values.iter().map(|eps| Eps::Added(*eps));
                let rooted = values.iter().filter(|eps| **eps > 0.0).map(|eps| Eps::UnderRoot(*eps));
                formulas.extend(added.chain(rooted).map(|eps| Formula::Scaled { center, std, ddof, eps }));
            }
        }
    }
    formulas.extend([Formula::MaxRl { eps: 0.0 }, Formula::MaxRl { eps: 1e-6 }, Formula::Gpg]);
    if has_tokens {
        formulas.push(Formula::Opo);
    }
    formulas.push(Formula::PassAtK { eps: None });
    formulas.extend(values.iter().map(|eps| Formula::PassAtK { eps: Some(*eps) }));
    formulas
}

fn stds(center: Center, has_tokens: bool) -> Vec<Std> {
    let mut stds = vec![Std::Group, Std::Batch];
    match center {
        Center::LeaveOneOut => stds.extend([Std::Others { undivided: false }, Std::Others { undivided: true }]),
        Center::GroupMean => stds.push(Std::BatchCentered),
        Center::BatchMean | Center::None => {}
    }
    if has_tokens && center == Center::GroupMean {
        stds.push(Std::BatchTokens);
    }
    stds
}

/// What the run declares; null parts are not declared.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Rule {
    pub(super) center: Option<String>,
    pub(super) std_scope: Option<String>,
    pub(super) ddof: Option<i64>,
    pub(super) eps: Option<f64>,
    pub(super) singleton: Option<String>,
    pub(super) null: Option<String>,
    /// The size at which the trainer cuts a credit off, from the derivation's parameters.
    pub(super) clip: Option<f64>,
}

impl Rule {
    /// What is left of a value after the declared clip.
    pub(super) fn clipped(&self, expected: Expected) -> Expected {
        match (expected, self.clip) {
            (Expected::Value(value), Some(clip)) => Expected::Value(value.clamp(-clip, clip)),
            _ => expected,
        }
    }

    /// The word of the schema for what people also call it.
    pub(super) fn plain_center(word: &str) -> &str {
        match word {
            "mean" | "group" | "local" => "group_mean",
            "loo" | "rloo" | "others" => "leave_one_out",
            "batch" | "global" => "batch_mean",
            "off" | "false" | "null" | "" => "none",
            word => word,
        }
    }

    /// The same of the spread's scope.
    pub(super) fn plain_scope(word: &str) -> &str {
        match word {
            "local" | "group_std" => "group",
            "global" | "step" | "batch_std" => "batch",
            "off" | "false" | "null" | "" => "none",
            word => word,
        }
    }

    /// Whether it says anything of the formula.
    pub(super) fn is_declared(&self) -> bool {
        self.center.is_some() || self.std_scope.is_some() || self.ddof.is_some() || self.eps.is_some()
    }

    /// Whether a null reward is declared to count as 0.
    pub(super) fn null_is_zero(&self) -> bool {
        self.null.as_deref().and_then(|text| text.parse::<f64>().ok()) == Some(0.0)
    }

    /// Whether a configuration is one that the run allows.
    pub(super) fn allows(&self, config: Config) -> bool {
        config.basis.is_proper(self.null_is_zero()) && self.broken_parts(config.formula).is_empty()
    }

    /// The parts of a formula that the run declares otherwise, as `part is this, not that`.
    pub(super) fn broken_parts(&self, formula: Formula) -> Vec<String> {
        let mut broken = Vec::new();
        let Formula::Scaled { center, std, ddof, eps } = formula else {
            if self.is_declared() {
                broken.push(format!("the formula is {formula}"));
            }
            return broken;
        };
        if let Some(declared) = self.center.as_deref().filter(|declared| *declared != center.to_string()) {
            broken.push(format!("center is {center}, not {declared}"));
        }
        if let Some(declared) = self.std_scope.as_deref().filter(|declared| *declared != std.scope()) {
            broken.push(format!("std is {}, not {declared}", std.scope()));
        }
        if std == Std::None {
            return broken;
        }
        if let Some(declared) = self.ddof.filter(|declared| *declared != i64::from(ddof)) {
            broken.push(format!("ddof is {ddof}, not {declared}"));
        }
        let is_other = |declared: &f64| (declared - eps.value()).abs() > 1e-3 * declared.abs();
        if let Some(declared) = self.eps.filter(is_other) {
            broken.push(format!("eps is {}, not {}", plain(eps.value()), plain(declared)));
        }
        broken
    }
}

/// A small constant as people write it.
fn plain(value: f64) -> String {
    if value == 0.0 { "0".to_owned() } else { format!("{value:e}") }
}

impl fmt::Display for Center {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::GroupMean => "group_mean",
            Self::LeaveOneOut => "leave_one_out",
            Self::BatchMean => "batch_mean",
            Self::None => "none",
        })
    }
}

impl Std {
    /// The word of `credit_rule.std_scope`.
    pub(super) fn scope(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Group | Self::Others { .. } => "group",
            Self::Batch | Self::BatchCentered | Self::BatchTokens => "batch",
        }
    }
}

impl fmt::Display for Formula {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Scaled { center, std: Std::None, .. } => write!(f, "center {center}, no std"),
            Self::Scaled { center, std, ddof, eps } => {
                let of = match std {
                    Std::Others { undivided: false } => " (of the others)",
                    Std::Others { undivided: true } => " (of the others; undivided where they have no spread)",
                    Std::BatchCentered => " (of centered rewards)",
                    Std::BatchTokens => " (of centered rewards, token by token)",
                    Std::None | Std::Group | Std::Batch => "",
                };
                let place = if matches!(eps, Eps::UnderRoot(_)) { " under the root" } else { "" };
                write!(f, "center {center}, std {}{of}, ddof {ddof}, eps {}{place}", std.scope(), plain(eps.value()))
            }
            Self::MaxRl { eps } => write!(f, "MaxRL (over the group's mean, eps {})", plain(*eps)),
            Self::Opo => f.write_str("OPO (the group's mean weighted by tokens)"),
            Self::Gpg => f.write_str("GPG (times batch size over rewards that are not 0)"),
            Self::PassAtK { eps: None } => f.write_str("pass@k (the best's lead, the others 0)"),
            Self::PassAtK { eps: Some(eps) } => {
                write!(f, "pass@k (the best's lead over std, eps {}, the others 0)", plain(*eps))
            }
        }
    }
}

impl Basis {
    /// What the basis does that the lake's rule does not, in words.
    pub(super) fn faults(self, null_is_zero: bool) -> Vec<&'static str> {
        let mut faults = Vec::new();
        match self.over {
            Over::Rollouts => {}
            Over::Rows => faults.push("the baseline runs over rows, not over rollouts"),
            Over::Calls => faults.push("the baseline runs over calls, not over rollouts"),
        }
        match self.members {
            Members::Rewarded | Members::Kept => {}
            Members::Idle => faults.push("rollouts without a token that trains move the baseline"),
            Members::NullIsZero if null_is_zero => {}
            Members::NullIsZero => faults.push("a null reward counts as 0"),
        }
        if self.merges_tasks {
            faults.push("rollouts of several tasks are one group");
        }
        faults
    }
}
