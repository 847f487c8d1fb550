//! An order-free checksum of rows, the same as that of `tests/python/read_tables.py`.

use sha2::{Digest, Sha256};

/// What stands between two values of a row.
const SEPARATOR: &str = "\u{1f}";

/// The sum modulo 2^63 of the first 8 bytes (big-endian, top bit cleared) of every row's sha256.
///
/// A row is its values as text, a null as `\N`, joined by the unit separator.
///
/// ```
/// use rollbook_testing::checksum;
/// let one = checksum::of_rows([vec![Some("a"), None], vec![Some("b"), Some("1")]]);
/// let two = checksum::of_rows([vec![Some("b"), Some("1")], vec![Some("a"), None]]);
/// assert_eq!(one, two);
/// ```
pub fn of_rows<'a>(rows: impl IntoIterator<Item = Vec<Option<&'a str>>>) -> i64 {
    let mut total: u64 = 0;
    for row in rows {
        let text: Vec<&str> = row.iter().map(|value| value.unwrap_or("\\N")).collect();
        let digest = Sha256::digest(text.join(SEPARATOR));
        let mut head = [0; 8];
        head.copy_from_slice(&digest[..8]);
        total = total.wrapping_add(u64::from_be_bytes(head) & (u64::MAX >> 1));
    }
    i64::try_from(total & (u64::MAX >> 1)).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_the_python_reader() {
        // read_tables.py on a table with the rows (a, 0) and (b, null).
        assert_eq!(of_rows([vec![Some("a"), Some("0")], vec![Some("b"), None]]), 1_786_192_550_008_007_164);
    }
}
