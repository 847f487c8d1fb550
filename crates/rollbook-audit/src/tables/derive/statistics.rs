//! Means and spreads of rewards over groups and batches, in double and in two passes.

use std::collections::BTreeMap;

use super::config::{Basis, Center, Config, Eps, Formula, Members, Over, Std};

/// A rollout whose reward may be compared.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Member {
    pub(super) rollout: String,
    pub(super) step: Option<i64>,
    pub(super) group: Option<String>,
    pub(super) task: Option<String>,
    pub(super) reward: Option<f64>,
    /// Whether there is a reward at all, be it null.
    pub(super) is_rewarded: bool,
    pub(super) is_dropped: bool,
    /// Whether no token of it trains.
    pub(super) is_idle: bool,
    /// Trainer rows it was cut into.
    pub(super) rows: f64,
    pub(super) calls: f64,
    /// Trained tokens.
    pub(super) tokens: f64,
}

/// What a configuration gives a rollout.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Expected {
    Value(f64),
    /// 0 over 0: 0, null and NaN are all right.
    Nothing,
    /// The only member of its group: what it gets is a rule of its own, between nothing and its reward.
    Singleton(f64),
    /// No member: it gets no credit.
    Excluded,
}

/// Weight, mean and squared spread of some values.
#[derive(Debug, Clone, Copy, Default)]
struct Moments {
    weight: f64,
    mean: f64,
    squares: f64,
}

impl Moments {
    fn of(values: &[(f64, f64)]) -> Self {
        let weight: f64 = values.iter().map(|(_, weight)| weight).sum();
        if weight <= 0.0 {
            return Self::default();
        }
        let mean = values.iter().map(|(value, weight)| value * weight).sum::<f64>() / weight;
        let squares = values.iter().map(|(value, weight)| weight * (value - mean) * (value - mean)).sum::<f64>();
        // What is left of equal values is rounding.
        let scale = values.iter().map(|(value, weight)| weight * value * value).sum::<f64>();
        Self { weight, mean, squares: if squares <= 1e-24 * scale { 0.0 } else { squares } }
    }

    /// The same without one value.
    fn without(self, value: f64, weight: f64) -> Self {
        let left = self.weight - weight;
        if left <= 0.0 {
            return Self::default();
        }
        let mean = (self.mean * self.weight - value * weight) / left;
        let off = value - self.mean;
        let squares = self.squares - weight * off * off * self.weight / left;
        Self { weight: left, mean, squares: if squares <= 1e-12 * self.squares { 0.0 } else { squares } }
    }

    fn variance(self, ddof: u8) -> Option<f64> {
        let freedom = self.weight - f64::from(ddof);
        (freedom > 0.0).then(|| self.squares / freedom)
    }
}

#[derive(Debug, Clone, Default)]
struct Group {
    all: Moments,
    /// Mean weighted by trained tokens.
    token_mean: f64,
    best: Option<usize>,
    lead: f64,
    has_tie: bool,
}

#[derive(Debug, Clone, Default)]
struct Batch {
    raw: Moments,
    centered: Moments,
    tokens: Moments,
    nonzero: f64,
}

/// The statistics of all members on one basis.
#[derive(Debug)]
pub(super) struct Statistics {
    /// Reward, weight, group and batch of each member; none for one that is left out.
    places: Vec<Option<(f64, f64, usize, usize)>>,
    groups: Vec<Group>,
    batches: Vec<Batch>,
}

impl Statistics {
    pub(super) fn new(members: &[Member], basis: Basis) -> Self {
        let mut keys: BTreeMap<(&str, Option<&str>), usize> = BTreeMap::new();
        let mut steps: BTreeMap<Option<i64>, usize> = BTreeMap::new();
        let mut by_group: Vec<Vec<usize>> = Vec::new();
        let mut by_batch: Vec<Vec<usize>> = Vec::new();
        let mut places = Vec::with_capacity(members.len());
        for (at, member) in members.iter().enumerate() {
            let (Some(reward), Some(group)) = (counted(member, basis.members), &member.group) else {
                places.push(None);
                continue;
            };
            let weight = match basis.over {
                Over::Rollouts => 1.0,
                Over::Rows => member.rows,
                Over::Calls => member.calls,
            };
            let task = if basis.merges_tasks { None } else { member.task.as_deref() };
            let next = keys.len();
            let group = *keys.entry((group, task)).or_insert(next);
            let next = steps.len();
            let batch = *steps.entry(member.step).or_insert(next);
            by_group.resize(by_group.len().max(group + 1), Vec::new());
            by_batch.resize(by_batch.len().max(batch + 1), Vec::new());
            by_group[group].push(at);
            by_batch[batch].push(at);
            places.push(Some((reward, weight, group, batch)));
        }
        let value = |at: usize| places[at].unwrap_or_default();
        let groups: Vec<Group> = by_group.iter().map(|members_of| group_of(members, members_of, &value)).collect();
        let batches = by_batch.iter().map(|members_of| batch_of(members, members_of, &groups, &value)).collect();
        Self { places, groups, batches }
    }

    /// Whether a member's reward differs from another's in its group, so that it can tell configurations apart.
    pub(super) fn is_informative(&self, member: usize) -> bool {
        self.places[member].is_some_and(|(_, _, group, _)| self.groups[group].all.squares > 0.0)
    }

    /// What a configuration on this basis gives a member.
    pub(super) fn expected(&self, member: usize, config: Config) -> Expected {
        let Some((reward, weight, group, batch)) = self.places[member] else {
            return Expected::Excluded;
        };
        let (group, batch) = (&self.groups[group], &self.batches[batch]);
        let is_single = group.all.weight <= weight;
        match config.formula {
            Formula::Scaled { center, std, ddof, eps } => {
                let others = group.all.without(reward, weight);
                let base = match center {
                    Center::GroupMean | Center::LeaveOneOut if is_single => return Expected::Singleton(reward),
                    Center::GroupMean => group.all.mean,
                    Center::LeaveOneOut => others.mean,
                    Center::BatchMean => batch.raw.mean,
                    Center::None => 0.0,
                };
                let spread = match std {
                    Std::None => return Expected::Value(reward - base),
                    Std::Group => group.all,
                    Std::Others { .. } => others,
                    Std::Batch => batch.raw,
                    Std::BatchCentered => batch.centered,
                    Std::BatchTokens => batch.tokens,
                };
                let base = if std == Std::BatchTokens { base + batch.tokens.mean } else { base };
                let undivided = matches!(std, Std::Others { undivided: true });
                scaled(reward - base, spread.variance(ddof), eps, undivided, is_single, reward)
            }
            _ if is_single => Expected::Singleton(reward),
            Formula::MaxRl { eps } if eps == 0.0 && group.all.mean <= 0.0 => Expected::Value(0.0),
            Formula::MaxRl { eps } => Expected::Value((reward - group.all.mean) / (group.all.mean + eps)),
            Formula::Opo => Expected::Value(reward - group.token_mean),
            Formula::Gpg if batch.nonzero <= 0.0 => Expected::Nothing,
            Formula::Gpg => Expected::Value((reward - group.all.mean) * batch.raw.weight / batch.nonzero),
            Formula::PassAtK { .. } if group.best != Some(member) => Expected::Value(0.0),
            Formula::PassAtK { .. } if group.has_tie => Expected::Nothing,
            Formula::PassAtK { eps: None } => Expected::Value(group.lead),
            Formula::PassAtK { eps: Some(eps) } => {
                scaled(group.lead, group.all.variance(1), Eps::Added(eps), false, is_single, reward)
            }
        }
    }
}

fn scaled(over: f64, variance: Option<f64>, eps: Eps, undivided: bool, is_single: bool, reward: f64) -> Expected {
    let Some(variance) = variance else {
        // A single other member has no spread; what that gives is as open as a singleton's.
        return if undivided && !is_single { Expected::Value(over) } else { Expected::Singleton(reward) };
    };
    if undivided && variance == 0.0 {
        return Expected::Value(over);
    }
    let divisor = match eps {
        Eps::Added(eps) => variance.sqrt() + eps,
        Eps::UnderRoot(eps) => (variance + eps).sqrt(),
    };
    if divisor == 0.0 && over == 0.0 { Expected::Nothing } else { Expected::Value(over / divisor) }
}

/// The reward that a member enters a statistic with, none if it does not.
fn counted(member: &Member, members: Members) -> Option<f64> {
    // A reward that is no number is no member; score/range names it.
    let reward = member.reward.filter(|reward| reward.is_finite());
    match members {
        Members::Rewarded => reward.filter(|_| !member.is_idle),
        Members::Kept => reward.filter(|_| !member.is_idle && !member.is_dropped),
        Members::Idle => reward,
        Members::NullIsZero => (member.is_rewarded && !member.is_idle).then(|| reward.unwrap_or(0.0)),
    }
}

type Place<'a> = &'a dyn Fn(usize) -> (f64, f64, usize, usize);

fn group_of(members: &[Member], of: &[usize], place: Place<'_>) -> Group {
    let values: Vec<(f64, f64)> = of.iter().map(|at| (place(*at).0, place(*at).1)).collect();
    let tokens: Vec<(f64, f64)> = of.iter().map(|at| (place(*at).0, members[*at].tokens)).collect();
    let mut sorted = of.to_vec();
    sorted.sort_by(|a, b| place(*b).0.total_cmp(&place(*a).0).then(a.cmp(b)));
    let lead = match sorted.as_slice() {
        [first, second, ..] => place(*first).0 - place(*second).0,
        _ => 0.0,
    };
    Group {
        all: Moments::of(&values),
        token_mean: Moments::of(&tokens).mean,
        best: sorted.first().copied(),
        lead,
        has_tie: lead == 0.0,
    }
}

fn batch_of(members: &[Member], of: &[usize], groups: &[Group], place: Place<'_>) -> Batch {
    let raw: Vec<(f64, f64)> = of.iter().map(|at| (place(*at).0, place(*at).1)).collect();
    let centered = |at: &usize| place(*at).0 - groups.get(place(*at).2).map_or(0.0, |group| group.all.mean);
    let by_rollout: Vec<(f64, f64)> = of.iter().map(|at| (centered(at), place(*at).1)).collect();
    let by_token: Vec<(f64, f64)> = of.iter().map(|at| (centered(at), members[*at].tokens)).collect();
    let nonzero = raw.iter().filter(|(value, _)| *value != 0.0).map(|(_, weight)| weight).sum();
    Batch { raw: Moments::of(&raw), centered: Moments::of(&by_rollout), tokens: Moments::of(&by_token), nonzero }
}
