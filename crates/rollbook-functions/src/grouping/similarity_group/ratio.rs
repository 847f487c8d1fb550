//! Ratcliff and Obershelp's similarity of two texts, as Python's `difflib.SequenceMatcher(None, a, b).ratio()` gives it.
//!
//! The longest block that both have is found, then the longest on its left and on its right, and so on. Characters that make up more than
//! 1 % of a second text of 200 and more do not begin a block, they only lengthen one: that is its `autojunk`.

use std::collections::BTreeMap;
use std::ops::Range;

/// Length from which frequent characters are left out.
const LONG: usize = 200;

/// A text that others are compared with.
#[derive(Debug)]
pub(super) struct Text {
    characters: Vec<char>,
    /// Where each character stands that is not too frequent.
    places: BTreeMap<char, Vec<usize>>,
    counts: BTreeMap<char, usize>,
}

/// A block of equal characters.
#[derive(Clone, Copy)]
struct Block {
    own: usize,
    other: usize,
    len: usize,
}

impl Text {
    pub(super) fn of(text: &str) -> Self {
        let characters: Vec<char> = text.chars().collect();
        let mut places: BTreeMap<char, Vec<usize>> = BTreeMap::new();
        for (at, character) in characters.iter().enumerate() {
            places.entry(*character).or_default().push(at);
        }
        let counts = places.iter().map(|(character, places)| (*character, places.len())).collect();
        if characters.len() >= LONG {
            let most = characters.len() / 100 + 1;
            places.retain(|_, places| places.len() <= most);
        }
        Self { characters, places, counts }
    }

    /// Whether `text` is similar to this one: its ratio is at least the threshold.
    pub(super) fn is_similar(&self, text: &Self, threshold: f64) -> bool {
        if text.characters == self.characters {
            return true;
        }
        // No ratio is above those of the lengths and of the characters regardless of order.
        let lengths = (text.characters.len(), self.characters.len());
        let shared =
            |(character, count): (&char, &usize)| (*count).min(self.counts.get(character).copied().unwrap_or(0));
        ratio(lengths.0.min(lengths.1), lengths) >= threshold
            && ratio(text.counts.iter().map(shared).sum(), lengths) >= threshold
            && self.ratio(text) >= threshold
    }

    /// Returns the ratio of `text` (Python's a) to this one (its b).
    pub(super) fn ratio(&self, text: &Self) -> f64 {
        let mut matched = 0;
        let mut open = vec![(0..text.characters.len(), 0..self.characters.len())];
        while let Some((other, own)) = open.pop() {
            let block = self.longest(text, other.clone(), own.clone());
            if block.len == 0 {
                continue;
            }
            matched += block.len;
            open.push((other.start..block.other, own.start..block.own));
            open.push((block.other + block.len..other.end, block.own + block.len..own.end));
        }
        ratio(matched, (text.characters.len(), self.characters.len()))
    }

    /// Returns the longest block within two ranges: of equals the first in `text`, then the first in this one.
    fn longest(&self, text: &Self, other: Range<usize>, own: Range<usize>) -> Block {
        let mut best = Block { own: own.start, other: other.start, len: 0 };
        let mut ending: BTreeMap<usize, usize> = BTreeMap::new();
        for at in other.clone() {
            let mut next = BTreeMap::new();
            let places = self.places.get(&text.characters[at]).map_or(&[][..], Vec::as_slice);
            let from = places.partition_point(|place| *place < own.start);
            for place in places[from..].iter().take_while(|place| **place < own.end) {
                let before = place.checked_sub(1).and_then(|before| ending.get(&before)).copied().unwrap_or(0);
                let len = before + 1;
                next.insert(*place, len);
                if len > best.len {
                    best = Block { own: place + 1 - len, other: at + 1 - len, len };
                }
            }
            ending = next;
        }
        self.lengthened(text, best, other, own)
    }

    /// Lengthens a block by the equal characters on both sides of it.
    fn lengthened(&self, text: &Self, mut block: Block, other: Range<usize>, own: Range<usize>) -> Block {
        while block.other > other.start
            && block.own > own.start
            && text.characters[block.other - 1] == self.characters[block.own - 1]
        {
            block = Block { own: block.own - 1, other: block.other - 1, len: block.len + 1 };
        }
        while block.other + block.len < other.end
            && block.own + block.len < own.end
            && text.characters[block.other + block.len] == self.characters[block.own + block.len]
        {
            block.len += 1;
        }
        block
    }
}

#[expect(clippy::cast_precision_loss, reason = "no text has 2^52 characters")]
fn ratio(matched: usize, (one, other): (usize, usize)) -> f64 {
    if one + other == 0 { 1.0 } else { 2.0 * matched as f64 / (one + other) as f64 }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    // Ratios that Python 3 gives for `SequenceMatcher(None, a, b).ratio()`.
    #[rstest]
    #[case("", "", 1.0)]
    #[case("", "a", 0.0)]
    #[case("abcd", "bcde", 0.75)]
    #[case(" abcd", "abcd abcd", 0.714_285_714_285_714_3)]
    #[case("ab", "acab", 0.666_666_666_666_666_6)]
    #[case("private Thread currentThread;", "private volatile Thread currentThread;", 0.865_671_641_791_044_8)]
    #[case("tide", "diet", 0.25)]
    #[case("diet", "tide", 0.5)]
    #[case("größe", "grosse", 0.545_454_545_454_545_4)]
    fn ratios_are_those_of_python(#[case] a: &str, #[case] b: &str, #[case] expected: f64) {
        let found = Text::of(b).ratio(&Text::of(a));
        assert!((found - expected).abs() < 1e-15, "{found}");
    }

    #[test]
    fn frequent_characters_begin_no_block_in_a_long_text() {
        // SequenceMatcher(None, 'b' + 'ab' * 100, 'ab' * 100).ratio() and the same over 198 characters.
        let long = |times: usize| "ab".repeat(times);
        assert_eq!(Text::of(&long(100)).ratio(&Text::of(&format!("b{}", long(100)))).to_bits(), 0.0f64.to_bits());
        let short = Text::of(&long(99)).ratio(&Text::of(&format!("b{}", long(99))));
        assert!((short - 0.997_481_108_312_342_6).abs() < 1e-15, "{short}");
    }
}
