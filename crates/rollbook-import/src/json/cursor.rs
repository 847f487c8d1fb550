//! A cursor over one JSON text: every step checks the grammar, nothing is built that the caller does not ask for.

use std::borrow::Cow;

use super::fault::{Fault, Parse};
use super::string::{plain_length, unescape};

/// The deepest nesting of objects and arrays that is read.
pub(crate) const DEPTH_LIMIT: u32 = 128;

/// The most items of one array that is read.
pub(crate) const LIST_LIMIT: usize = 1 << 24;

/// A place in a JSON text.
#[derive(Clone)]
pub(crate) struct Cursor<'a> {
    text: &'a str,
    at: usize,
    depth: u32,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        Self { text, at: 0, depth: 0 }
    }

    fn bytes(&self) -> &'a [u8] {
        self.text.as_bytes()
    }

    fn byte(&self) -> Option<u8> {
        self.bytes().get(self.at).copied()
    }

    /// Returns the first byte of the next value or mark, after white space.
    pub(crate) fn peek(&mut self) -> Option<u8> {
        while let Some(byte) = self.byte() {
            if !matches!(byte, b' ' | b'\t' | b'\r' | b'\n') {
                return Some(byte);
            }
            self.at += 1;
        }
        None
    }

    fn broken(&self, expected: &str) -> Fault {
        let found = match self.text.get(self.at..).and_then(|rest| rest.chars().next()) {
            Some(found) => format!("{found:?}"),
            None => "the end".to_owned(),
        };
        Fault::new(format!("broken JSON at byte {}: expected {expected}, found {found}", self.at))
    }

    fn take(&mut self, byte: u8, expected: &str) -> Parse<()> {
        if self.peek() == Some(byte) {
            self.at += 1;
            return Ok(());
        }
        Err(self.broken(expected))
    }

    /// Checks that nothing but white space is left.
    pub(crate) fn end(&mut self) -> Parse<()> {
        if self.peek().is_none() { Ok(()) } else { Err(self.broken("the end of the line")) }
    }

    fn deeper(&mut self) -> Parse<()> {
        self.depth += 1;
        if self.depth > DEPTH_LIMIT {
            return Err(Fault::new(format!("nested deeper than the limit of {DEPTH_LIMIT} levels")));
        }
        Ok(())
    }

    /// Walks an object; `member` must read the value of each key.
    pub(crate) fn object(&mut self, mut member: impl FnMut(&mut Self, Cow<'a, str>) -> Parse<()>) -> Parse<()> {
        self.take(b'{', "an object")?;
        self.deeper()?;
        if self.peek() == Some(b'}') {
            self.at += 1;
        } else {
            loop {
                if self.peek() != Some(b'"') {
                    return Err(self.broken("a key"));
                }
                let key = self.string()?;
                self.take(b':', "a colon")?;
                member(self, key)?;
                if self.closes(b'}', "a comma or the end of the object")? {
                    break;
                }
            }
        }
        self.depth -= 1;
        Ok(())
    }

    /// Walks an array; `item` must read each item.
    pub(crate) fn array(&mut self, mut item: impl FnMut(&mut Self, usize) -> Parse<()>) -> Parse<()> {
        self.take(b'[', "an array")?;
        self.deeper()?;
        if self.peek() == Some(b']') {
            self.at += 1;
        } else {
            let mut index = 0;
            loop {
                item(self, index).map_err(|fault| fault.at_index(index))?;
                index += 1;
                if self.closes(b']', "a comma or the end of the array")? {
                    break;
                }
                if index == LIST_LIMIT {
                    return Err(Fault::new(format!("a list of more than the limit of {LIST_LIMIT} items")));
                }
            }
        }
        self.depth -= 1;
        Ok(())
    }

    fn closes(&mut self, close: u8, expected: &str) -> Parse<bool> {
        let next = self.peek();
        if next == Some(b',') {
            self.at += 1;
            return Ok(false);
        }
        if next == Some(close) {
            self.at += 1;
            return Ok(true);
        }
        Err(self.broken(expected))
    }

    /// Reads an array of plain integers straight into `values`, the hot path of every import.
    ///
    /// Anything but a plain integer of int32 is left to `slow`, which reads it or says what is wrong with it.
    pub(crate) fn ids(&mut self, values: &mut Vec<i32>, mut slow: impl FnMut(&mut Self) -> Parse<i32>) -> Parse<()> {
        self.take(b'[', "an array")?;
        self.deeper()?;
        if self.peek() == Some(b']') {
            self.at += 1;
            self.depth -= 1;
            return Ok(());
        }
        let start = values.len();
        loop {
            if !self.plain_ids(values) {
                values.push(slow(self).map_err(|fault| fault.at_index(values.len() - start))?);
            }
            if self.closes(b']', "a comma or the end of the array")? {
                break;
            }
            if values.len() - start >= LIST_LIMIT {
                return Err(Fault::new(format!("a list of more than the limit of {LIST_LIMIT} items")));
            }
        }
        self.depth -= 1;
        Ok(())
    }

    /// Reads a run of integers of at most nine digits without sign, and stops after the last one's digits.
    ///
    /// Returns false, the cursor at the start of a value, where something else comes next.
    fn plain_ids(&mut self, values: &mut Vec<i32>) -> bool {
        let bytes = self.bytes();
        let mut at = self.at;
        loop {
            while let Some(b' ' | b'\n' | b'\r' | b'\t') = bytes.get(at) {
                at += 1;
            }
            self.at = at;
            let mut value = 0_i32;
            while let Some(digit) = bytes.get(at).map(|byte| byte.wrapping_sub(b'0')).filter(|&digit| digit < 10) {
                if at - self.at == 9 {
                    return false;
                }
                value = value * 10 + i32::from(digit);
                at += 1;
            }
            let digits = at - self.at;
            if digits == 0 || digits > 1 && bytes.get(self.at) == Some(&b'0') {
                return false;
            }
            match bytes.get(at) {
                Some(b',') if matches!(bytes.get(at + 1), Some(b' ' | b'0'..=b'9')) && values.len() < LIST_LIMIT => {
                    values.push(value);
                    at += 1;
                }
                Some(b',' | b']' | b' ' | b'\n' | b'\r' | b'\t') => {
                    values.push(value);
                    self.at = at;
                    return true;
                }
                _ => return false,
            }
        }
    }

    /// Reads `null` if it is next.
    pub(crate) fn null(&mut self) -> Parse<bool> {
        if self.peek() != Some(b'n') {
            return Ok(false);
        }
        self.word("null")?;
        Ok(true)
    }

    fn word(&mut self, word: &str) -> Parse<()> {
        if self.bytes()[self.at..].starts_with(word.as_bytes()) {
            self.at += word.len();
            let follows = self.byte();
            if !follows.is_some_and(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
                return Ok(());
            }
            self.at -= word.len();
        }
        Err(self.broken("a value"))
    }

    /// Reads `true` or `false`.
    pub(crate) fn boolean(&mut self) -> Parse<bool> {
        if self.peek() == Some(b't') {
            self.word("true")?;
            return Ok(true);
        }
        self.word("false")?;
        Ok(false)
    }

    /// Reads a number, `NaN` or an infinity, and returns its text.
    pub(crate) fn number(&mut self) -> Parse<&'a str> {
        self.peek();
        let start = self.at;
        if self.byte() == Some(b'-') {
            self.at += 1;
        }
        match self.byte() {
            Some(b'N') if start == self.at => self.word("NaN")?,
            Some(b'I') => self.word("Infinity")?,
            Some(b'0') => self.at += 1,
            Some(b'1'..=b'9') => self.digits(),
            _ => return Err(self.broken("a value")),
        }
        if self.byte() == Some(b'.') {
            self.at += 1;
            self.some_digits()?;
        }
        if let Some(b'e' | b'E') = self.byte() {
            self.at += 1;
            if let Some(b'+' | b'-') = self.byte() {
                self.at += 1;
            }
            self.some_digits()?;
        }
        if self.byte().is_some_and(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'+' | b'-')) {
            return Err(self.broken("the end of a number"));
        }
        Ok(&self.text[start..self.at])
    }

    fn digits(&mut self) {
        while self.byte().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
    }

    fn some_digits(&mut self) -> Parse<()> {
        let start = self.at;
        self.digits();
        if self.at == start { Err(self.broken("a digit")) } else { Ok(()) }
    }

    /// Reads a string; it is copied only where it holds an escape.
    pub(crate) fn string(&mut self) -> Parse<Cow<'a, str>> {
        let raw = self.raw_string()?;
        let inner = &raw[1..raw.len() - 1];
        if !inner.as_bytes().contains(&b'\\') {
            return Ok(Cow::Borrowed(inner));
        }
        unescape(inner).map(Cow::Owned)
    }

    /// Passes over a string and returns its text, quotes and escapes included.
    fn raw_string(&mut self) -> Parse<&'a str> {
        if self.peek() != Some(b'"') {
            return Err(self.broken("a string"));
        }
        let start = self.at;
        self.at += 1;
        loop {
            self.at += plain_length(&self.bytes()[self.at..]);
            match self.byte() {
                Some(b'"') => break,
                Some(b'\\') => self.escape()?,
                Some(_) => return Err(self.broken("an escape in place of a control character")),
                None => return Err(self.broken("the end of a string")),
            }
        }
        self.at += 1;
        Ok(&self.text[start..self.at])
    }

    fn escape(&mut self) -> Parse<()> {
        self.at += 1;
        match self.byte() {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => self.at += 1,
            Some(b'u') => {
                self.at += 1;
                for _ in 0..4 {
                    if !self.byte().is_some_and(|byte| byte.is_ascii_hexdigit()) {
                        return Err(self.broken("four hexadecimal digits"));
                    }
                    self.at += 1;
                }
            }
            _ => return Err(self.broken("an escape")),
        }
        Ok(())
    }

    /// Passes over any value and returns its text, the grammar checked.
    pub(crate) fn skip(&mut self) -> Parse<&'a str> {
        self.peek();
        let start = self.at;
        let outer = self.depth;
        // One bit a level: whether it is an object.
        let mut objects = 0_u128;
        loop {
            match self.peek() {
                Some(open @ (b'{' | b'[')) => {
                    self.at += 1;
                    self.deeper()?;
                    let bit = 1 << (self.depth - outer - 1);
                    objects = if open == b'{' { objects | bit } else { objects & !bit };
                    match self.peek() {
                        Some(close) if close == open + 2 => {
                            self.at += 1;
                            self.depth -= 1;
                        }
                        _ if open == b'{' => {
                            self.key()?;
                            continue;
                        }
                        _ => continue,
                    }
                }
                Some(b'"') => drop(self.raw_string()?),
                Some(b'n') => self.word("null")?,
                Some(b't' | b'f') => drop(self.boolean()?),
                _ => drop(self.number()?),
            }
            if self.after_value(outer, objects)? {
                return Ok(&self.text[start..self.at]);
            }
        }
    }

    /// Goes on after a value inside `skip`: closes what ends, and returns true after the outermost value.
    fn after_value(&mut self, outer: u32, objects: u128) -> Parse<bool> {
        while self.depth > outer {
            let is_object = objects >> (self.depth - outer - 1) & 1 == 1;
            match self.peek() {
                Some(b',') => {
                    self.at += 1;
                    if is_object {
                        self.key()?;
                    }
                    return Ok(false);
                }
                Some(b'}') if is_object => self.at += 1,
                Some(b']') if !is_object => self.at += 1,
                _ => return Err(self.broken("a comma or the end of the object or array")),
            }
            self.depth -= 1;
        }
        Ok(true)
    }

    /// Passes over a key and its colon.
    fn key(&mut self) -> Parse<()> {
        if self.peek() != Some(b'"') {
            return Err(self.broken("a key"));
        }
        self.raw_string()?;
        self.take(b':', "a colon")
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("{\"a\": [1, 2.5e-3, \"x\\u00e9\", null, true]}", true)]
    #[case("[NaN, -Infinity, Infinity]", true)]
    #[case("-NaN", false)]
    #[case("01", false)]
    #[case("1.", false)]
    #[case("[1,]", false)]
    #[case("{\"a\" 1}", false)]
    #[case("{a: 1}", false)]
    #[case("\"a\nb\"", false)]
    #[case("\"\\x\"", false)]
    #[case("nul", false)]
    #[case("nullx", false)]
    #[case("\"open", false)]
    #[case("[1", false)]
    #[case("", false)]
    fn only_json_passes(#[case] text: &str, #[case] is_good: bool) {
        let mut cursor = Cursor::new(text);
        assert_eq!(cursor.skip().and_then(|_| cursor.end()).is_ok(), is_good, "{text}");
    }

    #[test]
    fn ten_thousand_levels_are_a_fault_and_no_overflow() {
        let deep = "[".repeat(10_000);
        let fault = Cursor::new(&deep).skip().unwrap_err();
        assert!(fault.to_string().contains("128"), "{fault}");
        let fits = format!("{}{}", "[".repeat(128), "]".repeat(128));
        assert_eq!(Cursor::new(&fits).skip().unwrap(), fits);
    }
}
