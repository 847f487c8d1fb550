//! Best-fit decreasing over the free space of bins.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

/// Returns the bin of each length; no length is negative or over `capacity`.
pub(super) fn best_fit_decreasing(lengths: &[i64], capacity: i64) -> Vec<i64> {
    // Equal lengths keep the order of the window.
    let mut order: Vec<(Reverse<i64>, usize)> =
        lengths.iter().enumerate().map(|(row, length)| (Reverse(*length), row)).collect();
    order.sort_unstable();
    // Bins by free space: there are fewer spaces than bins. The first that is large enough is that of the fullest bins that
    // fit, and the lowest of those is taken.
    let mut bins: BTreeMap<i64, BinaryHeap<Reverse<i64>>> = BTreeMap::new();
    let mut opened = 0;
    let mut bin_of = vec![0; lengths.len()];
    for (Reverse(length), row) in order {
        let (free, bin) = take(&mut bins, length).unwrap_or_else(|| {
            opened += 1;
            (capacity, opened - 1)
        });
        bins.entry(free - length).or_default().push(Reverse(bin));
        bin_of[row] = bin;
    }
    bin_of
}

/// Takes out the fullest bin with room for a length, the lowest of equals, with its free space.
fn take(bins: &mut BTreeMap<i64, BinaryHeap<Reverse<i64>>>, length: i64) -> Option<(i64, i64)> {
    let (&free, equals) = bins.range_mut(length..).next()?;
    let Reverse(bin) = equals.pop()?;
    if equals.is_empty() {
        bins.remove(&free);
    }
    Some((free, bin))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::nothing(&[], &[])]
    #[case::pairs(&[6, 4, 6, 4], &[0, 0, 1, 1])]
    #[case::tightest_not_first(&[7, 8, 2], &[1, 0, 0])]
    #[case::lowest_of_equals(&[6, 6, 2], &[0, 1, 0])]
    #[case::opened_longest_first(&[1, 10, 9], &[1, 0, 1])]
    #[case::zeros_share_a_full_bin(&[0, 10, 0], &[0, 0, 0])]
    #[case::only_zeros(&[0, 0], &[0, 0])]
    fn packs_as_by_hand(#[case] lengths: &[i64], #[case] expected: &[i64]) {
        assert_eq!(best_fit_decreasing(lengths, 10), expected);
    }

    /// Every bin is looked at for every row.
    fn naive(lengths: &[i64], capacity: i64) -> Vec<i64> {
        let mut bin_of = vec![-1; lengths.len()];
        let mut free: Vec<i64> = vec![];
        for _ in lengths {
            let mut next = None;
            for (row, length) in lengths.iter().enumerate() {
                if bin_of[row] < 0 && next.is_none_or(|best: usize| *length > lengths[best]) {
                    next = Some(row);
                }
            }
            let row = next.unwrap();
            let mut chosen = None;
            for (bin, room) in free.iter().enumerate() {
                if *room >= lengths[row] && chosen.is_none_or(|best: usize| *room < free[best]) {
                    chosen = Some(bin);
                }
            }
            let bin = chosen.unwrap_or_else(|| {
                free.push(capacity);
                free.len() - 1
            });
            free[bin] -= lengths[row];
            bin_of[row] = i64::try_from(bin).unwrap();
        }
        bin_of
    }

    proptest! {
        #[test]
        fn agrees_with_looking_at_every_bin(lengths in proptest::collection::vec(0..=30i64, 0..80)) {
            prop_assert_eq!(best_fit_decreasing(&lengths, 30), naive(&lengths, 30));
        }

        #[test]
        fn bins_are_filled_within_bounds_and_numbered_without_gaps(lengths in proptest::collection::vec(1..=100i64, 1..200)) {
            let bins = best_fit_decreasing(&lengths, 100);
            let count = bins.iter().max().unwrap() + 1;
            let place = |bin: i64| usize::try_from(bin).unwrap();
            let mut filled = vec![0; place(count)];
            bins.iter().zip(&lengths).for_each(|(bin, length)| filled[place(*bin)] += length);
            prop_assert!(filled.iter().all(|tokens| (1..=100).contains(tokens)));
            // Johnson's bound, against the least number of bins that the tokens could need.
            let least = (lengths.iter().sum::<i64>() + 99) / 100;
            prop_assert!(9 * count <= 22 * least + 9);
        }
    }
}
