//! Credits of the members of one group.

#![expect(
    clippy::float_cmp,
    clippy::cast_precision_loss,
    reason = "equal values are told from nearly equal ones, and no group has 2^53 members"
)]

use super::ordered::{moving_average, running};
use super::rank::ranks;
use super::rule::{Fallback, Gate, Incomplete, Method, Nonpositive, Rule, Scale};
use super::spread::{Counted, Scaled, ScaledMoments, all_equal};
use crate::exact::total;

/// Stands for a credit that is null; no credit is NaN.
pub(super) const NULL: f64 = f64::NAN;

/// Why a group has no credits.
#[derive(Debug, PartialEq)]
pub(super) enum Fault {
    /// It has fewer members than it should.
    Incomplete { members: usize, group_size: u64 },
    /// It has one member, and that is not allowed.
    Singleton { member: usize },
    /// None of its members is the greedy one.
    NoGreedy,
    /// The credit of a member is no double.
    Overflow { member: usize },
}

/// The members of one group; all values are finite. Lists are empty where the call has no such argument.
#[derive(Debug, Clone, Copy)]
pub(super) struct Group<'a> {
    pub(super) members: Counted<'a>,
    /// The same values scaled, with their moments.
    pub(super) scaled: Scaled<'a>,
    pub(super) weights: &'a [f64],
    pub(super) marks: &'a [bool],
    pub(super) positions: &'a [i64],
}

/// What a group's rows get.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Outcome {
    /// Each the credit of its member, which stands in the list; rows without a member get null.
    Each,
    /// All the same, rows without a member too.
    All(f64),
}

/// Computes the credit of each member into `credits`, which is empty, in the order of the values; [`NULL`] is null.
pub(super) fn credits(group: Group, rule: &Rule, credits: &mut Vec<f64>) -> Result<Outcome, Fault> {
    if let Some(gate) = &rule.gate
        && let Some(fallback) = shut(group, gate)?
    {
        let values = group.members.values.iter();
        credits.extend(values.map(|value| match fallback {
            Fallback::Value => *value,
            Fallback::UnitStd { eps } => value / (1.0 + eps),
            Fallback::Zero => 0.0,
            Fallback::Null | Fallback::Error => NULL,
        }));
        return Ok(Outcome::Each);
    }
    let outcome = match rule.method {
        Method::Count => return Ok(Outcome::All(group.members.values.len() as f64)),
        Method::Sum | Method::Mean | Method::Std { .. } => Outcome::All(statistic(group, rule.method)),
        Method::MovingAverage { decay, initial } => moving_average(group, decay, initial, credits),
        Method::Running { ddof, eps } => running(group, ddof, eps, credits),
        Method::Rank { ties, unit } => ranks(group.members.values, ties, unit, credits),
        Method::Greedy { no_greedy } => greedy(group, no_greedy, credits)?,
        Method::Relative { .. } | Method::Weighted | Method::OverMean { .. } | Method::Best { .. } => {
            relative(group, rule.method, credits);
            Outcome::Each
        }
    };
    match outcome {
        Outcome::All(value) if value.is_infinite() => Err(Fault::Overflow { member: 0 }),
        Outcome::All(value) => Ok(Outcome::All(value)),
        Outcome::Each => match credits.iter().position(|credit| credit.is_infinite()) {
            Some(member) => Err(Fault::Overflow { member }),
            None => Ok(outcome),
        },
    }
}

/// Returns what all members get where the group is not compared.
fn shut(group: Group, gate: &Gate) -> Result<Option<Fallback>, Fault> {
    let values = group.members.values;
    if let Some(group_size) = gate.group_size.filter(|size| (values.len() as u64) < *size) {
        match gate.incomplete {
            Incomplete::Keep => {}
            Incomplete::Null => return Ok(Some(Fallback::Null)),
            Incomplete::Error => return Err(Fault::Incomplete { members: values.len(), group_size }),
        }
    }
    if values.len() == 1 && group.scaled.moments.count == 1.0 {
        return match gate.singleton {
            Fallback::Error => Err(Fault::Singleton { member: 0 }),
            singleton => Ok(Some(singleton)),
        };
    }
    Ok(group.scaled.moments.all_equal.then_some(gate.zero_variance))
}

fn relative(group: Group, method: Method, credits: &mut Vec<f64>) {
    let Scaled { members, moments } = group.scaled;
    let mean = moments.mean;
    let values = members.values.iter();
    match method {
        Method::Relative { leave_one_out, scale } => {
            let n = moments.count;
            // r - mean of the others = n / (n - 1) * (r - mean).
            let less = |value: &f64| {
                let difference = moments.difference(*value);
                if leave_one_out { n * difference / (n - 1.0) } else { difference }
            };
            match scale {
                Scale::None => credits.extend(values.map(|value| moments.back(less(value)))),
                Scale::Std { ddof, eps, min_std } if leave_one_out => {
                    let stds = moments.stds_of_others(group.members, ddof);
                    // Only leaving one out gives no spread beside a difference: then nothing is divided.
                    let divided = |(value, std): (&f64, f64)| {
                        if std <= min_std {
                            moments.back(less(value))
                        } else {
                            moments.divided(less(value), moments.forth(std), eps)
                        }
                    };
                    credits.extend(values.zip(stds).map(divided));
                }
                Scale::Std { ddof, eps, min_std } => {
                    let std = moments.scaled_std(ddof);
                    let is_none = moments.back(std) <= min_std;
                    let divided = |value| if is_none { 0.0 } else { moments.divided(less(value), std, eps) };
                    credits.extend(values.map(divided));
                }
            }
        }
        // Without weights every length is 1.
        Method::Weighted if group.weights.is_empty() => {
            credits.extend(values.map(|value| moments.back(moments.difference(*value))));
        }
        Method::Weighted => {
            let mean = weighted_mean(members.values, group.weights);
            credits.extend(values.map(|value| moments.back(value - mean)));
        }
        Method::OverMean { eps, nonpositive } => {
            credits.extend(values.map(|value| match nonpositive {
                Nonpositive::Zero if mean <= 0.0 => 0.0,
                Nonpositive::Null if mean <= 0.0 => NULL,
                _ => moments.divided(moments.difference(*value), mean, eps),
            }));
        }
        Method::Best { scale } => {
            let gap = best_gap(members);
            let credit = match scale {
                Scale::Std { ddof, eps, min_std } => {
                    let std = moments.scaled_std(ddof);
                    if moments.back(std) <= min_std { 0.0 } else { moments.divided(gap.over, std, eps) }
                }
                Scale::None => moments.back(gap.over),
            };
            credits.extend(values.map(|value| if *value == gap.best { credit } else { 0.0 }));
        }
        _ => {}
    }
}

struct Gap {
    best: f64,
    over: f64,
}

/// Returns the best value and how far it lies over the second best; 0 where they are equal.
fn best_gap(members: Counted) -> Gap {
    let (mut best, mut second) = (f64::NEG_INFINITY, f64::NEG_INFINITY);
    for (value, votes) in members.iter() {
        if value > best {
            second = if votes > 1 { value } else { best };
            best = value;
        } else if value > second {
            second = value;
        }
    }
    Gap { best, over: best - second }
}

/// Returns `sum(w * v) / sum(w)`; [`NULL`] without weight.
fn weighted_mean(values: &[f64], weights: &[f64]) -> f64 {
    let mut scaled = Vec::with_capacity(weights.len());
    let _ = ScaledMoments::new(Counted { values: weights, votes: &[] }, &mut scaled);
    let sum = total(scaled.iter().copied());
    if sum == 0.0 {
        return NULL;
    }
    total(scaled.iter().zip(values).map(|(weight, value)| weight * value)) / sum
}

fn statistic(group: Group, method: Method) -> f64 {
    let Scaled { members, moments } = group.scaled;
    if members.values.is_empty() {
        return NULL;
    }
    if method == Method::Sum {
        return total(group.members.values.iter().copied());
    }
    let is_plain = group.weights.is_empty();
    // Equal values have that mean, rounded or not.
    let mean = if is_plain || (moments.all_equal && group.weights.iter().all(|weight| *weight > 0.0)) {
        moments.mean
    } else {
        weighted_mean(members.values, group.weights)
    };
    let Method::Std { ddof } = method else {
        return moments.back(mean);
    };
    let weight: f64 = if is_plain { moments.count } else { total(group.weights.iter().copied()) };
    let freedom = weight - f64::from(ddof);
    if freedom <= 0.0 {
        return NULL;
    }
    if is_plain {
        return moments.std(ddof);
    }
    let square = |(value, weight): (&f64, &f64)| weight * (value - mean) * (value - mean);
    moments.back((total(members.values.iter().zip(group.weights).map(square)) / freedom).sqrt())
}

/// Computes the difference to the greedy members of a group, which have no credit themselves.
fn greedy(group: Group, no_greedy: Fallback, credits: &mut Vec<f64>) -> Result<Outcome, Fault> {
    let values = group.members.values;
    let chosen: Vec<f64> = values.iter().zip(group.marks).filter(|(_, mark)| **mark).map(|(value, _)| *value).collect();
    let baseline = match (chosen.first(), no_greedy) {
        (Some(first), _) if all_equal(&chosen) => *first,
        (Some(_), _) => {
            let moments = ScaledMoments::new(Counted { values: &chosen, votes: &[] }, &mut Vec::new());
            moments.back(moments.mean)
        }
        (None, _) if values.is_empty() => return Ok(Outcome::Each),
        (None, Fallback::Value) => 0.0,
        (None, Fallback::Error) => return Err(Fault::NoGreedy),
        (None, _) => NULL,
    };
    let credit = |(value, mark): (&f64, &bool)| if *mark { NULL } else { value - baseline };
    credits.extend(values.iter().zip(group.marks).map(credit));
    Ok(Outcome::Each)
}
