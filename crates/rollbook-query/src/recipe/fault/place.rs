//! Lines and columns of SQL text.

use std::fmt;

/// A place in a text; line and column count from 1, a column is a character.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) line: u64,
    pub(crate) column: u64,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}", self.line, self.column)
    }
}

impl Place {
    /// Finds a word of SQL, whatever its case: not within comments, text literals or longer words.
    pub(crate) fn of(text: &str, word: &str) -> Option<Self> {
        Self::all(text, word, true).into_iter().next()
    }

    /// Finds the last place of a word.
    pub(crate) fn last_of(text: &str, word: &str) -> Option<Self> {
        Self::all(text, word, false).into_iter().next_back()
    }

    fn all(text: &str, word: &str, first_only: bool) -> Vec<Self> {
        let mut places = Vec::new();
        let mut literal = false;
        if word.is_empty() {
            return places;
        }
        for (line, content) in text.lines().enumerate() {
            let characters: Vec<char> = content.chars().collect();
            let mut at = 0;
            while at < characters.len() {
                match (literal, characters[at]) {
                    (_, '\'') => literal = !literal,
                    (false, '-') if characters.get(at + 1) == Some(&'-') => break,
                    (false, _) if starts(&characters, at, word) => {
                        places.push(Self { line: line as u64 + 1, column: at as u64 + 1 });
                        if first_only {
                            return places;
                        }
                    }
                    _ => {}
                }
                at += 1;
            }
        }
        places
    }

    /// Whether one of some words stands at the place, so that it is about this text; with no word any place will do.
    pub(super) fn stands_in(self, text: &str, words: &[String]) -> bool {
        let line = usize::try_from(self.line).ok().and_then(|line| text.lines().nth(line.checked_sub(1)?));
        let Some(line) = line else {
            return false;
        };
        let characters: Vec<char> = line.chars().collect();
        let at = usize::try_from(self.column).unwrap_or(0).saturating_sub(1);
        at < characters.len() && (words.is_empty() || words.iter().any(|word| starts(&characters, at, word)))
    }
}

fn starts(characters: &[char], at: usize, word: &str) -> bool {
    let is_part = |c: &char| c.is_alphanumeric() || *c == '_' || *c == '$';
    let mut end = at;
    for expected in word.chars() {
        // A quoted name is the same word.
        if characters.get(end) == Some(&'"') && expected != '"' {
            end += 1;
        }
        match characters.get(end) {
            Some(found) if found.to_lowercase().eq(expected.to_lowercase()) => end += 1,
            _ => return false,
        }
    }
    let begins = at == 0 || !is_part(&characters[at - 1]) || word.starts_with('$');
    begins && !characters.get(end).is_some_and(is_part)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "-- valeu in a comment\nSELECT 'valeu', values,\n  r.valeu AS Value\nFROM \"r\"";

    #[test]
    fn a_word_is_found_whole_and_outside_of_comments_and_literals() {
        assert_eq!(Place::of(TEXT, "valeu"), Some(Place { line: 3, column: 5 }));
        assert_eq!(Place::of(TEXT, "r.valeu"), Some(Place { line: 3, column: 3 }));
        assert_eq!(Place::of(TEXT, "value"), Some(Place { line: 3, column: 14 }));
        assert_eq!(Place::of(TEXT, "alue"), None);
        assert_eq!(Place::of("a $b", "$b"), Some(Place { line: 1, column: 3 }));
        assert_eq!(Place::of(TEXT, "comment"), None);
    }

    #[test]
    fn a_place_of_another_text_is_told_by_its_word() {
        let words = ["valeu".to_owned()];
        assert!(Place { line: 3, column: 5 }.stands_in(TEXT, &words));
        assert!(!Place { line: 3, column: 3 }.stands_in(TEXT, &words));
        assert!(!Place { line: 9, column: 1 }.stands_in(TEXT, &[]));
        assert!(!Place { line: 0, column: 0 }.stands_in(TEXT, &words));
    }
}
