//! Chains among the calls of one rollout.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use arrow::array::{Array, BooleanArray, StringArray};

/// The place of a call in its chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Link {
    /// Row of the first call of the chain.
    pub(super) root: usize,
    /// Calls before this one in the chain.
    pub(super) index: i32,
}

/// Returns the link of each row, in the order of rows; no call id is null.
pub(super) fn chains(call_ids: &StringArray, parents: &StringArray, extends: &BooleanArray) -> Vec<Link> {
    let mut first_row: HashMap<&str, usize> = HashMap::with_capacity(call_ids.len());
    let mut is_continued = vec![false; call_ids.len()];
    let mut links: Vec<Link> = Vec::with_capacity(call_ids.len());
    for row in 0..call_ids.len() {
        let parent = parents.is_valid(row).then(|| first_row.get(parents.value(row)).copied()).flatten();
        let alone = Link { root: row, index: 0 };
        let link = match first_row.entry(call_ids.value(row)) {
            Entry::Occupied(_) => alone,
            Entry::Vacant(place) => {
                place.insert(row);
                let extends = extends.is_valid(row) && extends.value(row);
                match parent.filter(|parent| extends && !is_continued[*parent]) {
                    Some(parent) => {
                        is_continued[parent] = true;
                        Link { root: links[parent].root, index: links[parent].index + 1 }
                    }
                    None => alone,
                }
            }
        };
        links.push(link);
    }
    links
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    type Call = (String, Option<String>, Option<bool>);

    fn links(calls: &[Call]) -> Vec<(usize, i32)> {
        let ids: StringArray = calls.iter().map(|call| Some(call.0.as_str())).collect();
        let parents: StringArray = calls.iter().map(|call| call.1.as_deref()).collect();
        let extends: BooleanArray = calls.iter().map(|call| call.2).collect();
        chains(&ids, &parents, &extends).iter().map(|link| (link.root, link.index)).collect()
    }

    /// The rule, read backwards from each call: is it the one that continues its parent, and if so, where is the parent?
    fn naive(calls: &[Call], row: usize) -> (usize, i32) {
        let first = |id: &str| calls.iter().position(|call| call.0 == id);
        let wanted = |row: usize| -> Option<usize> {
            let (id, parent, extends) = &calls[row];
            let parent = first(parent.as_deref()?)?;
            (*extends == Some(true) && parent < row && first(id) == Some(row)).then_some(parent)
        };
        match wanted(row) {
            Some(parent) if !(0..row).any(|earlier| wanted(earlier) == Some(parent)) => {
                let (root, index) = naive(calls, parent);
                (root, index + 1)
            }
            _ => (row, 0),
        }
    }

    proptest! {
        #[test]
        fn agrees_with_the_rule_read_backwards(
            calls in proptest::collection::vec(
                ("[a-h]", proptest::option::of("[a-i]"), proptest::option::weighted(0.9, proptest::bool::weighted(0.8))),
                0..16,
            ),
        ) {
            let expected: Vec<_> = (0..calls.len()).map(|row| naive(&calls, row)).collect();
            prop_assert_eq!(links(&calls), expected);
        }
    }
}
