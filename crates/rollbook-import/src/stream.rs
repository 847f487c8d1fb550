//! From files of lines to items: what all line formats share, and the rule of the strict import.

use std::collections::VecDeque;
use std::fs::File;
use std::io::BufReader;

use crate::error::{Error, Result};
use crate::importer::{Item, Items, RAW_LIMIT, Reject};
use crate::json::{LINE_LIMIT, Line, Lines, Parse};
use crate::source::SourceFile;

/// A format whose records are lines.
pub(crate) trait LineFormat: Send {
    /// Reads one line, or leaves no trace of it.
    fn line(&mut self, text: &str) -> Parse<()>;

    /// Says whether the rows read so far should go out.
    fn is_full(&self) -> bool;

    /// Moves the rows read so far, and any notes, to the queue.
    fn flush(&mut self, queue: &mut VecDeque<Item>) -> Result<()>;

    /// Adds what can only be said at the end.
    fn end(&mut self, _queue: &mut VecDeque<Item>) {}

    /// Returns what stands before the path of a fault.
    fn prefix(&self) -> &str;
}

/// How far an import has come.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extent {
    /// Bytes of the files before this one.
    pub(crate) before: u64,
    /// Bytes of all files.
    pub(crate) total: u64,
}

impl Extent {
    pub(crate) fn progress(self, done: u64) -> Item {
        Item::Progress { bytes_done: (self.before + done).min(self.total), bytes_total: self.total }
    }
}

/// The items of line files, read by one format.
pub(crate) struct LineItems<F> {
    format: F,
    files: VecDeque<SourceFile>,
    open: Option<(SourceFile, Lines<BufReader<File>>)>,
    queue: VecDeque<Item>,
    extent: Extent,
    has_ended: bool,
}

impl<F: LineFormat> LineItems<F> {
    pub(crate) fn new(format: F, files: Vec<SourceFile>, extent: Extent) -> Self {
        Self { format, files: files.into(), open: None, queue: VecDeque::new(), extent, has_ended: false }
    }

    /// Reads one line or opens the next file.
    fn step(&mut self) -> Result<()> {
        let Some((file, lines)) = &mut self.open else {
            return self.open_next();
        };
        let line = match lines.next_line() {
            Ok(line) => line,
            Err(source) => return Err(Error::io(&file.name, source)),
        };
        let rejected = match line {
            None => return self.close(),
            Some(Line::Text(text)) => self.format.line(text).err().map(|fault| {
                let field = format!("{}{}", self.format.prefix(), fault.path());
                let field = field.trim_start_matches('.').to_owned();
                (Some(field).filter(|field| !field.is_empty()), fault.reason().to_owned(), start_of(text))
            }),
            Some(Line::TooLong { start, length }) => {
                let reason = format!("a line of {length} bytes, longer than the limit of {LINE_LIMIT}");
                Some((None, reason, start_of(&String::from_utf8_lossy(start))))
            }
            Some(Line::NotText { bytes, valid_up_to }) => {
                let reason = format!("not UTF-8 at byte {valid_up_to} of the line");
                let start = bytes.get(..RAW_LIMIT).unwrap_or(bytes);
                Some((None, reason, start_of(&String::from_utf8_lossy(start))))
            }
        };
        if let Some((field, reason, raw)) = rejected {
            let line = Some(lines.number());
            self.queue.push_back(Item::Reject(Reject { file: file.name.clone(), line, field, reason, raw: Some(raw) }));
        }
        if self.format.is_full() {
            let done = lines.bytes();
            self.format.flush(&mut self.queue)?;
            self.queue.push_back(self.extent.progress(done));
        }
        Ok(())
    }

    fn open_next(&mut self) -> Result<()> {
        let Some(file) = self.files.pop_front() else {
            self.has_ended = true;
            self.format.end(&mut self.queue);
            return Ok(());
        };
        let lines = Lines::new(BufReader::with_capacity(1 << 18, file.open()?), LINE_LIMIT);
        self.open = Some((file, lines));
        Ok(())
    }

    fn close(&mut self) -> Result<()> {
        self.format.flush(&mut self.queue)?;
        if let Some((file, _)) = self.open.take() {
            self.queue.push_back(self.extent.progress(file.bytes));
            self.extent.before += file.bytes;
        }
        Ok(())
    }
}

impl<F: LineFormat> Iterator for LineItems<F> {
    type Item = Result<Item>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.queue.is_empty() && !self.has_ended {
            if let Err(error) = self.step() {
                self.has_ended = true;
                return Some(Err(error));
            }
        }
        self.queue.pop_front().map(Ok)
    }
}

/// The start of a record for a reject, cut between characters.
pub(crate) fn start_of(text: &str) -> String {
    let mut end = text.len().min(RAW_LIMIT);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].to_owned()
}

/// Ends a stream at its first error, and a strict one at its first reject.
pub(crate) fn guarded(items: impl Iterator<Item = Result<Item>> + Send + 'static, is_strict: bool) -> Items {
    let mut has_failed = false;
    Box::new(items.map(move |item| if is_strict { item.and_then(refuse) } else { item }).take_while(move |item| {
        let is_after = has_failed;
        has_failed |= item.is_err();
        !is_after
    }))
}

fn refuse(item: Item) -> Result<Item> {
    let Item::Reject(reject) = item else {
        return Ok(item);
    };
    let mut error = Error::invalid(reject.reason).with("file", &reject.file);
    if let Some(line) = reject.line {
        error = error.with("line", line);
    }
    if let Some(field) = &reject.field {
        error = error.with("field", field);
    }
    Err(error)
}
