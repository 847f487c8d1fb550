//! Times of the exchange format: RFC 3339 with a zone, or integer microseconds of UTC.

use chrono::DateTime;

/// Reads an RFC 3339 time with a zone; what lies below a microsecond is cut off.
pub(crate) fn microseconds(text: &str) -> Option<i64> {
    DateTime::parse_from_rfc3339(text).ok().map(|time| time.timestamp_micros())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("1970-01-01T00:00:01Z", Some(1_000_000))]
    #[case("2026-11-29T12:45:24.148288Z", Some(1_795_956_324_148_288))]
    #[case("2026-11-29T14:45:24.148288999+02:00", Some(1_795_956_324_148_288))]
    #[case("1969-12-31 23:59:59.5Z", Some(-500_000))]
    #[case("2026-11-29T12:45:24", None)]
    #[case("2026-11-29", None)]
    #[case("yesterday", None)]
    fn only_a_time_with_a_zone_is_one(#[case] text: &str, #[case] expected: Option<i64>) {
        assert_eq!(microseconds(text), expected);
    }
}
