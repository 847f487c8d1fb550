//! Shortens the text bounds of statistics so that they still hold every value.

/// Cuts a lower bound: a prefix never sorts after the whole.
pub(super) fn lower(text: &str, chars_max: usize) -> &str {
    match text.char_indices().nth(chars_max) {
        Some((end, _)) => &text[..end],
        None => text,
    }
}

/// Cuts an upper bound and rounds it up; `None` where no text of that length sorts after it.
pub(super) fn upper(text: &str, chars_max: usize) -> Option<String> {
    let kept = lower(text, chars_max);
    if kept.len() == text.len() {
        return Some(text.to_owned());
    }
    let mut rounded = kept.to_owned();
    while let Some(last) = rounded.pop() {
        if let Some(next) = next_char(last) {
            rounded.push(next);
            return Some(rounded);
        }
    }
    None
}

/// The next Unicode scalar value; surrogates are none.
fn next_char(c: char) -> Option<char> {
    let next = u32::from(c) + 1;
    char::from_u32(if next == 0xD800 { 0xE000 } else { next })
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("abc", 3, "abc", Some("abc"))]
    #[case("abcd", 3, "abc", Some("abd"))]
    #[case("äöüß", 2, "äö", Some("ä÷"))]
    #[case("ab\u{10FFFF}x", 3, "ab\u{10FFFF}", Some("ac"))]
    #[case("\u{10FFFF}\u{10FFFF}", 1, "\u{10FFFF}", None)]
    #[case("\u{D7FF}x", 1, "\u{D7FF}", Some("\u{E000}"))]
    fn bounds_enclose_the_text(
        #[case] text: &str,
        #[case] chars: usize,
        #[case] low: &str,
        #[case] high: Option<&str>,
    ) {
        assert_eq!(lower(text, chars), low);
        assert_eq!(upper(text, chars).as_deref(), high);
        assert!(low <= text);
        assert!(high.is_none_or(|high| text <= high));
    }
}
