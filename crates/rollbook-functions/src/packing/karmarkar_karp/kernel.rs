//! The largest differencing method for several partitions.
//!
//! ```text
//! state       k sets of items, the set with the largest sum first; its spread is the first sum less the last
//! start       a state for each item, or for each k items of neighboring lengths (equal size)
//! step        the two states of the largest spread become one: the largest set of one joins the smallest of the other
//! end         one state is left
//! ```

use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// Items of one set: a chain through `next`, so that two sets join without copying either.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Set {
    sum: i128,
    count: usize,
    first: usize,
    last: usize,
}

impl Set {
    fn of(item: usize, length: i64) -> Self {
        Self { sum: i128::from(length), count: 1, first: item, last: item }
    }
}

impl Ord for Set {
    /// By sum, number of items, then the items themselves, of which the first decides: no item is in two sets.
    fn cmp(&self, other: &Self) -> Ordering {
        (self.sum, self.count, self.first).cmp(&(other.sum, other.count, other.first))
    }
}

impl PartialOrd for Set {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Sets of one state that hold an item, the largest first; the others, up to k, are empty.
#[derive(Debug, PartialEq, Eq)]
struct State {
    spread: i128,
    sets: Vec<Set>,
}

impl State {
    fn of(mut sets: Vec<Set>, partitions: usize) -> Self {
        sets.sort_unstable_by(|one, other| other.cmp(one));
        let sum = |set: Option<&Set>| set.map_or(0, |set| set.sum);
        let least = if sets.len() < partitions { 0 } else { sum(sets.last()) };
        Self { spread: sum(sets.first()) - least, sets }
    }
}

impl Ord for State {
    fn cmp(&self, other: &Self) -> Ordering {
        self.spread.cmp(&other.spread).then_with(|| self.sets.first().cmp(&other.sets.first()))
    }
}

impl PartialOrd for State {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Returns the partition of each length. No length is negative; with `equal_size` their number is a multiple of `partitions`.
pub(super) fn largest_differencing(lengths: &[i64], partitions: usize, equal_size: bool) -> Vec<i64> {
    let mut order: Vec<usize> = (0..lengths.len()).collect();
    order.sort_by_key(|item| (lengths[*item], *item));
    let mut states: BinaryHeap<State> = order
        .chunks(if equal_size { partitions } else { 1 })
        .map(|items| State::of(items.iter().map(|item| Set::of(*item, lengths[*item])).collect(), partitions))
        .collect();
    let mut next = vec![usize::MAX; lengths.len()];
    while let Some(one) = states.pop() {
        let Some(other) = states.pop() else {
            return numbered(&one, &next);
        };
        states.push(joined(&one, &other, partitions, &mut next));
    }
    Vec::new()
}

/// Joins two states: the i-th set of one with the i-th from the end of the other.
fn joined(one: &State, other: &State, partitions: usize, next: &mut [usize]) -> State {
    let pairs = (0..partitions).map(|at| (one.sets.get(at), other.sets.get(partitions - 1 - at)));
    let sets = pairs.filter_map(|pair| match pair {
        (Some(set), Some(more)) => {
            next[set.last] = more.first;
            Some(Set { sum: set.sum + more.sum, count: set.count + more.count, first: set.first, last: more.last })
        }
        (set, more) => set.or(more).copied(),
    });
    State::of(sets.collect(), partitions)
}

fn numbered(state: &State, next: &[usize]) -> Vec<i64> {
    let mut partition_of = vec![0; next.len()];
    for (number, set) in (0..).zip(&state.sets) {
        let mut item = set.first;
        while let Some(partition) = partition_of.get_mut(item) {
            *partition = number;
            item = next[item];
        }
    }
    partition_of
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    #[rstest]
    // 8 7 6 5 4 over two: 8-7=1, 6-5=1, 4-1=3, 3-1=2: {8, 6} and {7, 5, 4}, which the method is known to miss (15 and 15).
    #[case::classic(&[8, 7, 6, 5, 4], 2, false, &[1, 0, 1, 0, 0])]
    #[case::one_partition(&[3, 1, 2], 1, false, &[0, 0, 0])]
    #[case::one_item_each(&[1, 5, 3], 3, false, &[2, 0, 1])]
    #[case::of_equal_lengths_the_later_item_first(&[4, 4], 2, false, &[1, 0])]
    #[case::equal_size(&[10, 1, 1, 1], 2, true, &[0, 0, 1, 1])]
    #[case::zeros(&[0, 0, 0], 2, false, &[0, 0, 1])]
    fn partitions_are_those_worked_by_hand(
        #[case] lengths: &[i64],
        #[case] partitions: usize,
        #[case] equal_size: bool,
        #[case] expected: &[i64],
    ) {
        assert_eq!(largest_differencing(lengths, partitions, equal_size), expected);
    }

    /// The same with whole lists of items and a search for the two largest states.
    fn naive(lengths: &[i64], partitions: usize, equal_size: bool) -> Vec<i64> {
        type Listed = (i64, usize, Vec<usize>);
        let sorted = |mut sets: Vec<Listed>| {
            sets.sort();
            sets.reverse();
            sets
        };
        let mut order: Vec<usize> = (0..lengths.len()).collect();
        order.sort_by_key(|item| (lengths[*item], *item));
        let mut states: Vec<Vec<Listed>> = order
            .chunks(if equal_size { partitions } else { 1 })
            .map(|items| {
                let mut sets: Vec<Listed> = items.iter().map(|item| (lengths[*item], 1, vec![*item])).collect();
                sets.resize(partitions, (0, 0, vec![]));
                sorted(sets)
            })
            .collect();
        while states.len() > 1 {
            states.sort_by_key(|sets| (sets[0].0 - sets[partitions - 1].0, sets[0].clone()));
            let (one, other) = (states.pop().unwrap(), states.pop().unwrap());
            let sets = one
                .into_iter()
                .zip(other.into_iter().rev())
                .map(|(set, more)| (set.0 + more.0, set.1 + more.1, [set.2, more.2].concat()));
            states.push(sorted(sets.collect()));
        }
        let mut partition_of = vec![0; lengths.len()];
        for (number, set) in states[0].iter().enumerate() {
            set.2.iter().for_each(|item| partition_of[*item] = i64::try_from(number).unwrap());
        }
        partition_of
    }

    proptest! {
        #[test]
        fn agrees_with_the_method_over_lists(
            mut lengths in proptest::collection::vec(prop_oneof![0..4i64, 0..1000i64], 1..60),
            partitions in 1..9usize,
            equal_size in any::<bool>(),
        ) {
            if equal_size {
                lengths.resize(lengths.len().div_ceil(partitions) * partitions, 7);
            }
            let found = largest_differencing(&lengths, partitions, equal_size);
            prop_assert_eq!(&found, &naive(&lengths, partitions, equal_size));
            if equal_size {
                for number in 0..partitions {
                    let members = found.iter().filter(|of| **of == i64::try_from(number).unwrap()).count();
                    prop_assert_eq!(members * partitions, lengths.len());
                }
            }
        }
    }
}
