//! Where the tokens that ran part from those that a rendering gives, and where they part from a text.

use crate::error::Result;
use crate::tokenizer::{DecodeFlags, Tokenizer};

/// How many leading tokens an earlier call has run or sampled already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inherited {
    /// So many; none for the first call of a rollout.
    Tokens(usize),
    /// An unknown number.
    Unknown,
}

/// The first place at which tokens differ from those expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Offset in the tokens observed; their length where only more was expected.
    pub position: usize,
    /// Whether the text differs, not only how it is cut into tokens.
    pub is_text: bool,
    /// What was expected from there on, a short piece.
    pub expected: String,
    /// What stands there, a short piece.
    pub observed: String,
}

/// Bytes, and so tokens at most, of one character.
const LONGEST_CHARACTER: usize = 4;

/// Characters of a piece that a difference shows.
const SHOWN: usize = 40;

/// Compares the tokens that ran with those of a rendering.
///
/// A model may sample another cut of a text than the tokenizer would make, and an engine that is sent tokens keeps it. So where only
/// the cut differs, what is inherited is right as it is, and the comparison begins behind it.
///
/// # Errors
/// Those of decoding.
pub fn first_difference(
    tokenizer: &Tokenizer,
    observed: &[i32],
    expected: &[i32],
    inherited: Inherited,
) -> Result<Option<Difference>> {
    if observed == expected {
        return Ok(None);
    }
    let (seen, wanted) = (tokenizer.spell(observed)?, tokenizer.spell(expected)?);
    let position = match (seen == wanted, inherited) {
        // Ids that no text tells apart are compared as ids.
        (_, Inherited::Tokens(0)) => shared(observed, expected),
        (true, Inherited::Unknown) => return Ok(None),
        (true, Inherited::Tokens(from)) => match cut_differently(tokenizer, observed, expected, from)? {
            Some(position) => position,
            None => return Ok(None),
        },
        (false, _) => text_position(tokenizer, observed, &wanted, false)?.unwrap_or(observed.len()),
    };
    let start = tokenizer.spell(observed.get(..position).unwrap_or(observed))?.trim_end_matches('\u{fffd}').len();
    Ok(Some(Difference {
        position,
        is_text: seen != wanted,
        expected: piece(&wanted, start),
        observed: piece(&seen, start),
    }))
}

fn shared(left: &[i32], right: &[i32]) -> usize {
    left.iter().zip(right).take_while(|(left, right)| left == right).count()
}

/// The first token from `from` on that another cut of the same text has not, seams with what is inherited aside.
fn cut_differently(tokenizer: &Tokenizer, observed: &[i32], expected: &[i32], from: usize) -> Result<Option<usize>> {
    let mut at = from.min(observed.len());
    let mut text = tokenizer.spell(&observed[..at])?;
    let mut place = boundary(tokenizer, expected, &text)?;
    // A cut-off output may end inside what the tokenizer would make one token: go on at the next common boundary.
    while place.is_none() && at < observed.len() && at < from + LONGEST_CHARACTER {
        at += 1;
        text = tokenizer.spell(&observed[..at])?;
        place = boundary(tokenizer, expected, &text)?;
    }
    let Some(place) = place else {
        return Ok(Some(from.min(observed.len())));
    };
    let (rest, wanted) = (&observed[at..], &expected[place..]);
    Ok((rest != wanted).then(|| at + shared(rest, wanted)))
}

/// How many leading ids spell a text, where some number does.
fn boundary(tokenizer: &Tokenizer, ids: &[i32], text: &str) -> Result<Option<usize>> {
    let (mut low, mut high) = (0, ids.len());
    while low < high {
        let middle = low + (high - low) / 2;
        if tokenizer.spell(&ids[..middle])?.len() < text.len() { low = middle + 1 } else { high = middle }
    }
    Ok((tokenizer.spell(&ids[..low])? == text).then_some(low))
}

/// The first token at which ids stop spelling a text; none where the text starts with all that they spell.
///
/// A character whose bytes lie in several tokens differs at the first of them.
///
/// # Errors
/// Those of decoding.
pub fn text_position(
    tokenizer: &Tokenizer,
    ids: &[i32],
    text: &str,
    skip_special_tokens: bool,
) -> Result<Option<usize>> {
    let flags = DecodeFlags { skip_special_tokens, is_streamed: false };
    let spells = |count: usize| -> Result<bool> {
        Ok(text.starts_with(tokenizer.decode(&ids[..count], flags)?.trim_end_matches('\u{fffd}')))
    };
    if spells(ids.len())? {
        return Ok(None);
    }
    let (mut low, mut high) = (0, ids.len());
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if spells(middle)? { low = middle } else { high = middle }
    }
    // `low` tokens spell the text so far. Those of them that only began a character belong to the difference.
    for _ in 0..LONGEST_CHARACTER - 1 {
        if low == 0 || !tokenizer.decode(&ids[..low], flags)?.ends_with('\u{fffd}') {
            break;
        }
        low -= 1;
    }
    Ok(Some(low))
}

fn piece(text: &str, start: usize) -> String {
    let mut start = start.min(text.len());
    while !text.is_char_boundary(start) {
        start -= 1;
    }
    text[start..].chars().take(SHOWN).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small() -> Tokenizer {
        Tokenizer::from_bytes(include_bytes!("../tests/small/tokenizer.json")).unwrap()
    }

    fn ids(text: &str) -> Vec<i32> {
        small().encode(text).unwrap()
    }

    /// The ids of each character alone: another cut of the same text.
    fn apart(text: &str) -> Vec<i32> {
        text.chars().flat_map(|c| ids(&c.to_string())).collect()
    }

    fn position(observed: &[i32], expected: &[i32], inherited: Inherited) -> Option<(usize, bool)> {
        let found = first_difference(&small(), observed, expected, inherited).unwrap();
        found.map(|found| (found.position, found.is_text))
    }

    #[test]
    fn another_cut_is_a_difference_only_where_nothing_is_inherited() {
        let (whole, own) =
            (ids("<|im_start|>hello<|im_end|>\n"), [ids("<|im_start|>"), apart("hello"), ids("<|im_end|>\n")].concat());
        assert_ne!(whole, own);
        assert_eq!(position(&own, &whole, Inherited::Tokens(0)), Some((1, false)));
        assert_eq!(position(&own, &whole, Inherited::Tokens(7)), None);
        assert_eq!(position(&own, &whole, Inherited::Unknown), None);
        assert_eq!(position(&whole, &whole, Inherited::Tokens(0)), None);
    }

    #[test]
    fn another_cut_behind_what_is_inherited_stands_where_it_begins() {
        let sampled = [ids("<|im_start|>"), apart("hello"), ids("<|im_end|>")].concat();
        let observed = [sampled.clone(), ids("\nuser\n"), apart("hello")].concat();
        let expected = ids("<|im_start|>hello<|im_end|>\nuser\nhello");
        let behind = sampled.len() + ids("\nuser\n").len();
        assert_eq!(position(&observed, &expected, Inherited::Tokens(sampled.len())), Some((behind, false)));
    }

    #[test]
    fn a_lost_line_end_stands_where_it_is_lost() {
        let context = ids("<|im_start|>user\nhi<|im_end|>");
        let observed = [context.clone(), ids("<|im_start|>tool")].concat();
        let expected = ids("<|im_start|>user\nhi<|im_end|>\n<|im_start|>tool");
        assert_eq!(position(&observed, &expected, Inherited::Tokens(context.len())), Some((context.len(), true)));
    }

    #[test]
    fn a_text_parts_at_the_first_byte_of_its_character() {
        let emoji = ids("ab😀c");
        let at = ids("ab").len();
        assert_eq!(text_position(&small(), &emoji, "ab\u{fffd}\u{fffd}c", false).unwrap(), Some(at));
        assert_eq!(text_position(&small(), &emoji, "ab😀c and more", false).unwrap(), None);
        assert_eq!(text_position(&small(), &emoji, "", false).unwrap(), Some(0));
        assert_eq!(text_position(&small(), &[], "x", false).unwrap(), None);
    }
}
