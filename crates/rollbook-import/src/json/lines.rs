//! Cuts a reader into lines, holding at most one, and never one longer than the limit.

use std::io::{self, BufRead, Read};

/// The longest line that is read: 64 MiB.
pub(crate) const LINE_LIMIT: usize = 64 << 20;

/// How much buffer is kept from one line to the next.
const KEPT_CAPACITY: usize = 4 << 20;

/// One line, or what stood in its place.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Line<'a> {
    /// A line that is text and not blank, without its line end.
    Text(&'a str),
    /// A line longer than the limit: its start and its whole length.
    TooLong { start: &'a [u8], length: u64 },
    /// A line that is not UTF-8, and the offset of the first bad byte.
    NotText { bytes: &'a [u8], valid_up_to: usize },
}

/// A cursor over the lines of a reader.
pub(crate) struct Lines<R> {
    reader: R,
    limit: usize,
    buffer: Vec<u8>,
    number: u64,
    bytes: u64,
}

impl<R: BufRead> Lines<R> {
    pub(crate) fn new(reader: R, limit: usize) -> Self {
        Self { reader, limit, buffer: Vec::new(), number: 0, bytes: 0 }
    }

    /// Returns the number of the line last returned, from 1.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Returns the bytes read so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the next line that is not blank, or none at the end.
    pub(crate) fn next_line(&mut self) -> io::Result<Option<Line<'_>>> {
        let mut length = self.fill()?;
        while length > 0 && length <= self.limit as u64 && is_blank(self.content()) {
            length = self.fill()?;
        }
        if length == 0 {
            return Ok(None);
        }
        if length > self.limit as u64 {
            return Ok(Some(Line::TooLong { start: &self.buffer, length }));
        }
        let content = self.content();
        Ok(Some(match std::str::from_utf8(content) {
            Ok(text) => Line::Text(text),
            Err(error) => Line::NotText { bytes: content, valid_up_to: error.valid_up_to() },
        }))
    }

    /// Reads one line into the buffer and returns its length with its end; of a line beyond the limit only the start stays.
    fn fill(&mut self) -> io::Result<u64> {
        self.buffer.clear();
        self.buffer.shrink_to(KEPT_CAPACITY);
        let most = self.limit as u64 + 1;
        let read = (&mut self.reader).take(most).read_until(b'\n', &mut self.buffer)? as u64;
        let mut length = read;
        if read == most && self.buffer.last() != Some(&b'\n') {
            self.buffer.truncate(crate::RAW_LIMIT);
            self.buffer.shrink_to(KEPT_CAPACITY);
            length += self.skip_rest()?;
        }
        self.bytes += length;
        if read > 0 {
            self.number += 1;
        }
        Ok(length)
    }

    /// Reads to the end of the line and keeps nothing.
    fn skip_rest(&mut self) -> io::Result<u64> {
        let mut skipped = 0;
        loop {
            let available = match self.reader.fill_buf() {
                Ok(available) => available,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            if available.is_empty() {
                return Ok(skipped);
            }
            let end = available.iter().position(|&byte| byte == b'\n');
            let used = end.map_or(available.len(), |at| at + 1);
            self.reader.consume(used);
            skipped += used as u64;
            if end.is_some() {
                return Ok(skipped);
            }
        }
    }

    /// The line in the buffer without its end, and in the first line without a byte order mark.
    fn content(&self) -> &[u8] {
        let line = self.buffer.strip_suffix(b"\n").unwrap_or(&self.buffer);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if self.number == 1 { line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line) } else { line }
    }
}

fn is_blank(line: &[u8]) -> bool {
    line.iter().all(u8::is_ascii_whitespace)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8], limit: usize) -> Vec<String> {
        let mut lines = Lines::new(bytes, limit);
        let mut seen = Vec::new();
        while let Some(line) = lines.next_line().unwrap() {
            let text = match line {
                Line::Text(text) => text.to_owned(),
                Line::TooLong { length, .. } => format!("long {length}"),
                Line::NotText { valid_up_to, .. } => format!("bad {valid_up_to}"),
            };
            seen.push(format!("{}:{text}", lines.number()));
        }
        assert_eq!(lines.bytes(), bytes.len() as u64);
        seen
    }

    #[test]
    fn line_ends_marks_and_blank_lines_are_no_content() {
        assert_eq!(read(b"\xef\xbb\xbfa\r\n\n  \nb\n\n\n", 100), ["1:a", "4:b"]);
        assert_eq!(read(b"", 100), Vec::<String>::new());
        assert_eq!(read(b"a", 100), ["1:a"]);
        assert_eq!(read(b"a\xffb\nc", 100), ["1:bad 1", "2:c"]);
    }

    #[test]
    fn a_long_line_is_passed_over_without_being_held() {
        let mut bytes = vec![b'x'; 100_000];
        bytes.extend_from_slice(b"\nshort\n");
        bytes.extend_from_slice(&[b'y'; 50]);
        assert_eq!(read(&bytes, 20), ["1:long 100001", "2:short", "3:long 50"]);
        let mut lines = Lines::new(&bytes[..], 20_000);
        lines.next_line().unwrap();
        assert!(lines.buffer.len() <= crate::RAW_LIMIT);
    }

    #[test]
    fn a_line_of_exactly_the_limit_is_read() {
        assert_eq!(read(b"12345\n12345", 6), ["1:12345", "2:12345"]);
    }
}
