//! Baselines of one group.

/// Which tokens of different members share a baseline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Align {
    Selected,
    Position,
}

/// The constants of a call.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rule {
    pub(super) gamma: f64,
    pub(super) eps: f64,
    pub(super) align: Align,
    pub(super) zero_tail: bool,
}

/// One trajectory.
#[derive(Debug, Default)]
pub(super) struct Member {
    selected: Vec<bool>,
    rewards: Vec<f64>,
    energies: Vec<f64>,
    positions: Vec<usize>,
    count: usize,
    next: usize,
}

impl Member {
    /// Adds a token; what one that is not selected holds does not matter.
    pub(super) fn push(&mut self, selected: bool, reward: f64, energy: f64) {
        self.selected.push(selected);
        self.rewards.push(reward);
        self.energies.push(energy);
        self.positions.push(self.next);
        self.next += 1;
        self.count += usize::from(selected);
    }

    /// Leaves room for tokens that stand in no list.
    pub(super) fn skip(&mut self, tokens: usize) {
        self.next += tokens;
    }

    /// Returns the return of each token; one that is not selected has that of the next.
    fn returns(&self, gamma: f64) -> Vec<f64> {
        let mut carried = 0.0;
        let mut returns = vec![0.0; self.rewards.len()];
        for at in (0..returns.len()).rev() {
            if self.selected[at] {
                carried = self.rewards[at] + gamma * carried;
            }
            returns[at] = carried;
        }
        returns
    }

    /// Returns place, token and path weight of each selected token.
    fn path(&self, align: Align) -> impl Iterator<Item = (usize, usize, f64)> + '_ {
        let mut weight = 0.0;
        let selected = (0..self.selected.len()).filter(|at| self.selected[*at]);
        selected.enumerate().map(move |(place, at)| {
            weight += self.energies[at];
            (if align == Align::Selected { place } else { self.positions[at] }, at, weight)
        })
    }
}

/// Returns the advantage of each token of each member; only those of selected tokens mean something.
pub(super) fn advantages(group: &[Member], rule: Rule) -> Vec<Vec<f64>> {
    let mut returns: Vec<Vec<f64>> = group.iter().map(|member| member.returns(rule.gamma)).collect();
    if group.iter().filter(|member| member.count > 0).count() < 2 {
        return returns;
    }
    let longest = group.iter().map(|member| member.next).max().unwrap_or(0);
    let (mut weighted, mut weights) = (vec![0.0; longest], vec![rule.eps; longest]);
    for (member, returns) in group.iter().zip(&returns) {
        for (place, at, weight) in member.path(rule.align) {
            weighted[place] += returns[at] * weight;
            weights[place] += weight;
        }
    }
    let tail = tail(group).filter(|_| rule.zero_tail);
    for (which, (member, returns)) in group.iter().zip(&mut returns).enumerate() {
        for (place, at, _) in member.path(rule.align) {
            if tail.is_none_or(|(longest, from)| longest != which || place < from) {
                returns[at] -= weighted[place] / weights[place];
            }
        }
    }
    returns
}

/// Returns the member that alone is longest, and the length of the second.
fn tail(group: &[Member]) -> Option<(usize, usize)> {
    let (which, longest) = group.iter().enumerate().max_by_key(|(_, member)| member.count)?;
    let others = group.iter().enumerate().filter(|(other, _)| *other != which);
    let second = others.map(|(_, member)| member.count).max()?;
    (longest.count > second).then_some((which, second))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    type Tokens = Vec<(bool, f64, f64)>;

    /// Tokens that are not selected stand in the lists, or are skipped.
    fn member(tokens: &Tokens, skips: bool) -> Member {
        let mut member = Member::default();
        for (selected, reward, energy) in tokens {
            if *selected || !skips {
                member.push(*selected, *reward, *energy);
            } else {
                member.skip(1);
            }
        }
        member
    }

    /// The definition, token by token, each from the start.
    fn naive(group: &[Tokens], which: usize, at: usize, rule: Rule) -> f64 {
        let picked = |member: &Tokens| -> Vec<usize> { (0..member.len()).filter(|at| member[*at].0).collect() };
        let place = |member: &Tokens, at: usize| match rule.align {
            Align::Selected => picked(member).iter().position(|known| *known == at).unwrap(),
            Align::Position => at,
        };
        let total = |member: &Tokens, at: usize| -> f64 {
            let rest = picked(member).into_iter().filter(|later| *later >= at);
            rest.enumerate().map(|(n, later)| rule.gamma.powi(i32::try_from(n).unwrap()) * member[later].1).sum()
        };
        let weight = |member: &Tokens, at: usize| -> f64 {
            picked(member).into_iter().filter(|earlier| *earlier <= at).map(|earlier| member[earlier].2).sum()
        };
        let counts: Vec<usize> = group.iter().map(|member| picked(member).len()).collect();
        let own = place(&group[which], at);
        let second = counts.iter().enumerate().filter(|(other, _)| *other != which).map(|(_, n)| *n).max().unwrap_or(0);
        let is_tail = rule.zero_tail && counts[which] > second && own >= second;
        if counts.iter().filter(|count| **count > 0).count() < 2 || is_tail {
            return total(&group[which], at);
        }
        let (mut above, mut below) = (0.0, rule.eps);
        for other in group {
            for token in picked(other).into_iter().filter(|token| place(other, *token) == own) {
                above += total(other, token) * weight(other, token);
                below += weight(other, token);
            }
        }
        total(&group[which], at) - above / below
    }

    proptest! {
        #[test]
        fn agrees_with_the_definition(
            group in proptest::collection::vec(proptest::collection::vec((any::<bool>(), -2.0..2.0f64, 0.1..2.0f64), 0..8), 0..6),
            align in prop_oneof![Just(Align::Selected), Just(Align::Position)],
            zero_tail in any::<bool>(),
            gamma in prop_oneof![Just(1.0), 0.1..1.0f64],
        ) {
            let rule = Rule { gamma, eps: 1e-8, align, zero_tail };
            let members: Vec<Member> = group.iter().map(|tokens| member(tokens, false)).collect();
            let found = advantages(&members, rule);
            let skipped: Vec<Member> = group.iter().map(|tokens| member(tokens, true)).collect();
            let mut skipped = advantages(&skipped, rule).into_iter().flatten();
            for (which, tokens) in group.iter().enumerate() {
                for at in (0..tokens.len()).filter(|at| tokens[*at].0) {
                    let expected = naive(&group, which, at, rule);
                    prop_assert!((found[which][at] - expected).abs() <= 1e-9 * expected.abs().max(1.0));
                    prop_assert_eq!(skipped.next(), Some(found[which][at]));
                }
            }
        }
    }
}
