//! The comparison of two token lists that share their beginning.

/// Tokens compared at once; equality of slices of integers is a `memcmp`.
const BLOCK: usize = 256;

/// Returns how many tokens two lists have in common from the first on.
pub(super) fn common_prefix(left: &[i32], right: &[i32]) -> usize {
    let shorter = left.len().min(right.len());
    let (left, right) = (&left[..shorter], &right[..shorter]);
    let equal_blocks = left.chunks(BLOCK).zip(right.chunks(BLOCK)).take_while(|(a, b)| a == b).count();
    let start = (equal_blocks * BLOCK).min(shorter);
    start + left[start..].iter().zip(&right[start..]).take_while(|(a, b)| a == b).count()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn one_by_one(left: &[i32], right: &[i32]) -> usize {
        let mut length = 0;
        while length < left.len() && length < right.len() && left[length] == right[length] {
            length += 1;
        }
        length
    }

    proptest! {
        #[test]
        fn agrees_with_comparing_one_by_one(
            shared in proptest::collection::vec(0..3i32, 0..700),
            left in proptest::collection::vec(0..3i32, 0..300),
            right in proptest::collection::vec(0..3i32, 0..300),
        ) {
            let left = [shared.clone(), left].concat();
            let right = [shared, right].concat();
            prop_assert_eq!(common_prefix(&left, &right), one_by_one(&left, &right));
        }
    }

    #[test]
    fn block_edges_are_no_edges() {
        let left: Vec<i32> = (0..600).collect();
        for differ in [0, 1, 255, 256, 257, 511, 512, 599] {
            let mut right = left.clone();
            right[differ] = -1;
            assert_eq!(common_prefix(&left, &right), differ);
            assert_eq!(common_prefix(&left, &left[..differ]), differ);
        }
    }
}
