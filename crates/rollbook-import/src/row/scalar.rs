//! One value of the exchange format, read from a cursor.
//!
//! | column | takes |
//! |---|---|
//! | integer, long | a number that is whole and fits: `3`, `3.0`, `3e0` |
//! | double, float | a number, `NaN` or an infinity, bare or quoted |
//! | boolean | `true`, `false`, `1`, `0` |
//! | timestamp | RFC 3339 with a zone, or whole microseconds |
//! | string | a string; a number or boolean as its JSON text |

use std::borrow::Cow;

use crate::json::{Cursor, Fault, Parse};

use super::time::microseconds;

/// What stands next, in words, for a reason.
fn found(cursor: &mut Cursor<'_>) -> Cow<'static, str> {
    match cursor.peek() {
        Some(b'{') => Cow::Borrowed("an object"),
        Some(b'[') => Cow::Borrowed("an array"),
        Some(b'"') => Cow::Borrowed("a string"),
        Some(b't' | b'f') => Cow::Borrowed("a boolean"),
        Some(b'n') => Cow::Borrowed("null"),
        Some(b'-' | b'0'..=b'9' | b'N' | b'I') => Cow::Borrowed("a number"),
        _ => Cow::Borrowed("no value"),
    }
}

/// The fault of a value of the wrong type; where the JSON itself is broken, that.
pub(crate) fn wrong(cursor: &mut Cursor<'_>, expected: &str) -> Fault {
    let found = found(cursor);
    match cursor.clone().skip() {
        Err(broken) if found != "an object" && found != "an array" => broken,
        _ => Fault::new(format!("{found} where {expected} is expected")),
    }
}

fn is_number(cursor: &mut Cursor<'_>) -> bool {
    matches!(cursor.peek(), Some(b'-' | b'0'..=b'9' | b'N' | b'I'))
}

/// Returns the whole number that a double is, if it is one that a double holds exactly.
#[expect(clippy::cast_possible_truncation, reason = "the range is checked and the fraction is zero")]
pub(crate) fn integral(value: f64) -> Option<i64> {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    (value.fract() == 0.0 && value.abs() <= EXACT).then_some(value as i64)
}

/// Reads a whole number, in any way of writing one.
fn whole(cursor: &mut Cursor<'_>, expected: &str) -> Parse<i64> {
    if !is_number(cursor) {
        return Err(wrong(cursor, expected));
    }
    let text = cursor.number()?;
    if let Ok(value) = text.parse::<i64>() {
        return Ok(value);
    }
    let is_integer_text = text.bytes().all(|byte| byte == b'-' || byte.is_ascii_digit());
    let value = if is_integer_text { None } else { text.parse::<f64>().ok().and_then(integral) };
    value.ok_or_else(|| Fault::new(format!("{} is no {expected}", shown(text))))
}

/// A number's text, cut where it is absurdly long.
fn shown(text: &str) -> &str {
    text.get(..40).unwrap_or(text)
}

pub(crate) fn long(cursor: &mut Cursor<'_>) -> Parse<i64> {
    whole(cursor, "integer of 64 bits")
}

pub(crate) fn int(cursor: &mut Cursor<'_>) -> Parse<i32> {
    let value = whole(cursor, "integer of 32 bits")?;
    i32::try_from(value).map_err(|_out_of_range| Fault::new(format!("{value} is outside int32")))
}

/// A token id: an integer, with its own words for null.
pub(crate) fn id(cursor: &mut Cursor<'_>) -> Parse<i32> {
    if cursor.peek() == Some(b'n') {
        cursor.null()?;
        return Err(Fault::new("null inside a list that cannot hold one"));
    }
    int(cursor)
}

/// The float that a quoted word stands for.
pub(crate) fn float_of_word(word: &str) -> Option<f64> {
    match word {
        "NaN" => Some(f64::NAN),
        "Infinity" => Some(f64::INFINITY),
        "-Infinity" => Some(f64::NEG_INFINITY),
        _ => None,
    }
}

pub(crate) fn double(cursor: &mut Cursor<'_>) -> Parse<f64> {
    if cursor.peek() == Some(b'"') {
        let text = cursor.string()?;
        return float_of_word(&text).ok_or_else(|| Fault::new("a string where a number is expected"));
    }
    if !is_number(cursor) {
        return Err(wrong(cursor, "a number"));
    }
    let text = cursor.number()?;
    if let Some(value) = float_of_word(text) {
        return Ok(value);
    }
    match text.parse::<f64>() {
        Ok(value) if value.is_finite() => Ok(value),
        _ => Err(Fault::new(format!("{} is outside double", shown(text)))),
    }
}

pub(crate) fn boolean(cursor: &mut Cursor<'_>) -> Parse<bool> {
    match cursor.peek() {
        Some(b't' | b'f') => cursor.boolean(),
        Some(b'-' | b'0'..=b'9') => match whole(cursor, "boolean")? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(Fault::new(format!("{other} is no boolean"))),
        },
        _ => Err(wrong(cursor, "a boolean")),
    }
}

pub(crate) fn time(cursor: &mut Cursor<'_>) -> Parse<i64> {
    if cursor.peek() == Some(b'"') {
        let text = cursor.string()?;
        return microseconds(&text)
            .ok_or_else(|| Fault::new("a string that is no RFC 3339 time with a zone, such as 2026-01-31T08:00:00Z"));
    }
    if !is_number(cursor) {
        return Err(wrong(cursor, "a time"));
    }
    whole(cursor, "count of microseconds")
}

pub(crate) fn text<'a>(cursor: &mut Cursor<'a>) -> Parse<Cow<'a, str>> {
    match cursor.peek() {
        Some(b'"') => cursor.string(),
        Some(b't' | b'f' | b'-' | b'0'..=b'9' | b'N' | b'I') => cursor.skip().map(Cow::Borrowed),
        _ => Err(wrong(cursor, "a string")),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("3", Ok(3))]
    #[case("3.0", Ok(3))]
    #[case("-3e2", Ok(-300))]
    #[case("2147483648", Err("2147483648 is outside int32"))]
    #[case("3.5", Err("3.5 is no integer of 32 bits"))]
    #[case("\"3\"", Err("a string where integer of 32 bits is expected"))]
    #[case("99999999999999999999", Err("99999999999999999999 is no integer of 32 bits"))]
    #[case("NaN", Err("NaN is no integer of 32 bits"))]
    #[case("[1]", Err("an array where integer of 32 bits is expected"))]
    fn integers_are_whole_and_fit(#[case] text: &str, #[case] expected: Result<i32, &str>) {
        assert_eq!(
            int(&mut Cursor::new(text)).map_err(|fault| fault.reason().to_owned()),
            expected.map_err(str::to_owned)
        );
    }

    #[rstest]
    #[case("9007199254740993", Some(9_007_199_254_740_993))]
    #[case("9007199254740993.0", Some(9_007_199_254_740_992))]
    #[case("1e30", None)]
    #[case("9223372036854775807", Some(i64::MAX))]
    fn longs_are_exact(#[case] text: &str, #[case] expected: Option<i64>) {
        assert_eq!(long(&mut Cursor::new(text)).ok(), expected);
    }

    #[rstest]
    #[case("NaN", f64::NAN)]
    #[case("\"NaN\"", f64::NAN)]
    #[case("-Infinity", f64::NEG_INFINITY)]
    #[case("\"Infinity\"", f64::INFINITY)]
    #[case("-1.5e-3", -0.0015)]
    #[case("2", 2.0)]
    fn floats_take_words(#[case] text: &str, #[case] expected: f64) {
        let value = double(&mut Cursor::new(text)).unwrap();
        assert!(value.to_bits() == expected.to_bits() || value.is_nan() && expected.is_nan());
    }

    #[rstest]
    #[case("\"1.5\"")]
    #[case("1e999")]
    #[case("true")]
    #[case("null")]
    fn other_things_are_no_floats(#[case] text: &str) {
        assert!(double(&mut Cursor::new(text)).is_err());
    }

    #[rstest]
    #[case("1", Some(true))]
    #[case("0.0", Some(false))]
    #[case("false", Some(false))]
    #[case("2", None)]
    #[case("\"true\"", None)]
    fn masks_are_booleans_or_bits(#[case] text: &str, #[case] expected: Option<bool>) {
        assert_eq!(boolean(&mut Cursor::new(text)).ok(), expected);
    }

    #[rstest]
    #[case("\"a\"", Some("a"))]
    #[case("1.50", Some("1.50"))]
    #[case("true", Some("true"))]
    #[case("{}", None)]
    fn strings_take_bare_scalars(#[case] text_in: &str, #[case] expected: Option<&str>) {
        assert_eq!(text(&mut Cursor::new(text_in)).ok().as_deref(), expected);
    }
}
