//! The inside of JSON strings: where the plain part ends, and what escapes stand for.

use super::fault::{Fault, Parse};

/// The number of bytes before the first quote, backslash or control character, eight at a time.
pub(super) fn plain_length(bytes: &[u8]) -> usize {
    const ONES: u64 = u64::MAX / 255;
    const HIGHS: u64 = ONES << 7;
    let zeros = |word: u64| word.wrapping_sub(ONES) & !word;
    let mut length = 0;
    while let Some(chunk) = bytes[length..].first_chunk::<8>() {
        let word = u64::from_le_bytes(*chunk);
        let controls = word.wrapping_sub(ONES * 0x20) & !word;
        let hits = (zeros(word ^ (ONES * 0x22)) | zeros(word ^ (ONES * 0x5c)) | controls) & HIGHS;
        if hits != 0 {
            // The lowest hit is exact: a borrow only reaches bytes above one.
            return length + (hits.trailing_zeros() / 8) as usize;
        }
        length += 8;
    }
    let is_stop = |byte: &u8| matches!(byte, b'"' | b'\\' | 0..=0x1f);
    length + bytes[length..].iter().position(is_stop).unwrap_or(bytes.len() - length)
}

/// Decodes the inside of a string whose escapes have been checked.
pub(super) fn unescape(inner: &str) -> Parse<String> {
    let mut out = String::with_capacity(inner.len());
    let mut rest = inner;
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        let letter = rest.as_bytes().get(at + 1).copied().unwrap_or_default();
        rest = rest.get(at + 2..).unwrap_or_default();
        match letter {
            b'b' => out.push('\u{8}'),
            b'f' => out.push('\u{c}'),
            b'n' => out.push('\n'),
            b'r' => out.push('\r'),
            b't' => out.push('\t'),
            b'u' => {
                let (decoded, used) = unicode(rest)?;
                out.push(decoded);
                rest = &rest[used..];
            }
            other => out.push(char::from(other)),
        }
    }
    out.push_str(rest);
    Ok(out)
}

/// Decodes the digits after `\u`, with the low half of a pair where there is one; returns the bytes used.
fn unicode(rest: &str) -> Parse<(char, usize)> {
    let unit = |text: &str| u32::from_str_radix(text, 16).ok();
    let lone = || Fault::new("a string with half a surrogate pair, which is no text");
    let high = rest.get(..4).and_then(unit).ok_or_else(lone)?;
    if let Some(decoded) = char::from_u32(high) {
        return Ok((decoded, 4));
    }
    let low = rest.get(4..10).and_then(|text| text.strip_prefix("\\u")).and_then(unit).ok_or_else(lone)?;
    if !(0xd800..0xdc00).contains(&high) || !(0xdc00..0xe000).contains(&low) {
        return Err(lone());
    }
    char::from_u32(0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00)).map(|decoded| (decoded, 10)).ok_or_else(lone)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::json::Cursor;

    #[rstest]
    #[case(r#""\ud83d\ude00""#, Some("😀"))]
    #[case(r#""\ud83d""#, None)]
    #[case(r#""\ud83dx\ude00""#, None)]
    #[case(r#""\ude00\ud83d""#, None)]
    #[case(r#""a\"\\\/\n""#, Some("a\"\\/\n"))]
    fn strings_decode(#[case] text: &str, #[case] expected: Option<&str>) {
        assert_eq!(Cursor::new(text).string().ok().as_deref(), expected);
    }

    #[test]
    fn the_plain_part_ends_at_the_first_stop_wherever_it_lies() {
        for stop in [b'"', b'\\', 0, b'\n', 0x1f] {
            for at in 0..40 {
                let mut bytes = "é~ \u{7f}x".repeat(8).into_bytes();
                bytes[at] = stop;
                assert_eq!(plain_length(&bytes), at);
            }
        }
        assert_eq!(plain_length("é~ \u{7f}x".repeat(8).as_bytes()), 48);
    }
}
