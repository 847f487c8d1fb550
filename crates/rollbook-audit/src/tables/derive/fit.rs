//! Which configurations give the credits that are stored.
//!
//! A configuration that gives them all is sought by giving up at the first one it does not give; the nearest of those that the
//! run allows by [`SAMPLE`] credits at most, and only that one is followed through all. So a million credits that fit nothing
//! cost little more than a reading of them.

use super::config::{Basis, Config, Formula, Rule};
use super::statistics::{Expected, Member, Statistics};

/// Relative difference that a trainer's float arithmetic makes; eps 1e-5 and 1e-6 are further apart.
const FLOAT: f64 = 1e-5;
/// Credits by which the nearest configuration is told from others.
const SAMPLE: usize = 4096;

/// A stored credit of a member.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Stored {
    pub(super) member: usize,
    pub(super) call: Option<String>,
    pub(super) value: Option<f64>,
}

/// A configuration and the credits that it does not give.
#[derive(Debug, Clone)]
pub(super) struct Fit {
    pub(super) config: Config,
    pub(super) wrong: Vec<usize>,
}

/// What the search has found.
#[derive(Debug)]
pub(super) struct Found {
    /// Configurations that give every credit.
    pub(super) perfect: Vec<Fit>,
    /// The allowed configuration with the fewest credits it does not give.
    pub(super) nearest: Option<Fit>,
    /// Credits that could tell configurations apart.
    pub(super) informative: usize,
}

/// How near a value must be: the rounding of a source that keeps three to six places counts, and that of floats.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tolerance {
    rounding: f64,
}

impl Tolerance {
    pub(super) fn of(stored: &[Stored]) -> Self {
        let places = stored.iter().filter_map(|stored| stored.value).map(places).max().unwrap_or(0);
        let rounding = if (3..=6).contains(&places) { 0.5 * 0.1_f64.powi(places) } else { 0.0 };
        Self { rounding: rounding * (1.0 + 1e-6) }
    }

    /// Whether two values are one but for rounding.
    pub(super) fn near(self, expected: f64, stored: f64) -> bool {
        if !expected.is_finite() || !stored.is_finite() {
            return (expected.is_nan() && stored.is_nan()) || expected.total_cmp(&stored).is_eq();
        }
        (expected - stored).abs() <= self.rounding + FLOAT * expected.abs().max(stored.abs()) + 1e-9
    }
}

/// Decimal places of a number as it is written, 99 for one that is not short.
fn places(value: f64) -> i32 {
    let text = format!("{value}");
    match text.split_once('.') {
        Some((_, fraction)) if fraction.len() <= 6 => i32::try_from(fraction.len()).unwrap_or(99),
        Some(_) => 99,
        None => 0,
    }
}

/// Whether a stored credit is what a configuration gives.
pub(super) fn agrees(expected: Expected, stored: Option<f64>, rule: &Rule, tolerance: Tolerance) -> bool {
    let is_nothing = stored.is_none_or(|value| value == 0.0);
    match rule.clipped(expected) {
        Expected::Value(value) => match stored {
            Some(stored) => tolerance.near(value, stored),
            // A null trains nothing, as a 0 would.
            None => value == 0.0,
        },
        Expected::Nothing => is_nothing || stored.is_some_and(f64::is_nan),
        Expected::Excluded => is_nothing,
        Expected::Singleton(reward) => match rule.singleton.as_deref() {
            None => is_nothing || stored.is_some_and(|stored| stored.is_nan() || tolerance.near(reward, stored)),
            Some("null") => stored.is_none_or(f64::is_nan),
            Some("raw") => stored.is_some_and(|stored| tolerance.near(reward, stored)),
            Some(number) => number.parse().is_ok_and(|number: f64| tolerance.near(number, stored.unwrap_or(0.0))),
        },
    }
}

/// Tries all formulas on all bases. The statistics of one basis are held at a time.
pub(super) fn search(
    members: &[Member],
    stored: &[Stored],
    bases: &[Basis],
    formulas: &[Formula],
    rule: &Rule,
) -> Found {
    let tolerance = Tolerance::of(stored);
    let (order, informative) = order(members, stored, bases, rule);
    let sample = order.get(..SAMPLE.min(order.len())).unwrap_or_default();
    let mut found = Found { perfect: Vec::new(), nearest: None, informative };
    for basis in bases {
        let statistics = Statistics::new(members, *basis);
        let trial = Trial { statistics: &statistics, stored, rule, tolerance };
        for formula in formulas {
            let config = Config { formula: *formula, basis: *basis };
            let is_allowed = rule.allows(config);
            let best = found.nearest.as_ref().map_or(usize::MAX, |fit| fit.wrong.len());
            let limit = if is_allowed { best.saturating_sub(1) } else { 0 };
            let Some(wrong) = trial.misses(config, sample, limit) else {
                continue;
            };
            if wrong.is_empty() && trial.misses(config, &order, 0).is_some() {
                found.perfect.push(Fit { config, wrong: Vec::new() });
            }
            if is_allowed && wrong.len() < best {
                found.nearest = Some(Fit { config, wrong });
            }
        }
    }
    if let Some(nearest) = &mut found.nearest {
        let statistics = Statistics::new(members, nearest.config.basis);
        let trial = Trial { statistics: &statistics, stored, rule, tolerance };
        nearest.wrong = trial.misses(nearest.config, &order, usize::MAX).unwrap_or_default();
    }
    found.perfect.sort_by_key(|fit| (!rule.allows(fit.config), !fit.config.basis.is_proper(rule.null_is_zero())));
    found
}

/// The credits to be judged, those first that tell configurations apart, so that a wrong one is soon given up; and how many
/// those are.
fn order(members: &[Member], stored: &[Stored], bases: &[Basis], rule: &Rule) -> (Vec<usize>, usize) {
    let mut is_informative = vec![false; stored.len()];
    for basis in bases.iter().filter(|basis| basis.is_proper(rule.null_is_zero())) {
        let statistics = Statistics::new(members, *basis);
        for (slot, credit) in is_informative.iter_mut().zip(stored) {
            *slot |= statistics.is_informative(credit.member);
        }
    }
    // A rollout that trains nothing needs no credit, whatever it did to the baseline.
    let needs_none =
        |credit: &Stored| credit.value.is_none() && members.get(credit.member).is_some_and(|member| member.is_idle);
    let (mut order, rest): (Vec<usize>, Vec<usize>) = (0..stored.len())
        .filter(|at| !stored.get(*at).is_some_and(&needs_none))
        .partition(|at| is_informative.get(*at) == Some(&true));
    let informative = order.len();
    order.extend(rest);
    (order, informative)
}

/// Stored credits and what they are compared with.
struct Trial<'a> {
    statistics: &'a Statistics,
    stored: &'a [Stored],
    rule: &'a Rule,
    tolerance: Tolerance,
}

impl Trial<'_> {
    /// The credits that a configuration does not give; none where there are more than `limit`.
    fn misses(&self, config: Config, order: &[usize], limit: usize) -> Option<Vec<usize>> {
        let mut wrong = Vec::new();
        for at in order {
            let credit = self.stored.get(*at)?;
            let expected = self.statistics.expected(credit.member, config);
            if !agrees(expected, credit.value, self.rule, self.tolerance) {
                if wrong.len() >= limit {
                    return None;
                }
                wrong.push(*at);
            }
        }
        Some(wrong)
    }
}
