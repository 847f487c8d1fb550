//! Lists of numbers out of Parquet, page by page.
//!
//! A reader of Parquet makes each item's levels before it makes offsets of them: for a list of tokens that is more work than reading
//! the tokens. Here a run of levels is one step, and the values of a page are copied in one piece.
//!
//! ```text
//! page   repetition runs | definition runs | plain values
//!        0 1×199 0 1×311   3×512             [17, 4, …]       ->  offsets 0, 200, 512   values [17, 4, …]
//! ```
//!
//! Levels come first in a page. Where only the lengths of lists are asked for, a page is decompressed no further than they reach; where
//! some rows are, no further than the last of them.
//!
//! It reads what [`crate::TableWriter`] writes: lists of int32, int64, float32, float64 and booleans with plain values. It knows no
//! dictionaries.

mod items;
mod levels;
mod plain;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use bytes::{Buf, Bytes};
use parquet::basic::{Compression, Encoding, Repetition};
use parquet::column::page::{Page, PageReader};
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::RowGroupMetaData;
use parquet::file::page_index::offset_index::PageLocation;
use parquet::file::reader::{ChunkReader, Length};
use parquet::file::serialized_reader::SerializedPageReader;
use parquet::schema::types::ColumnDescriptor;

pub use items::Lists;
use levels::Levels;
use plain::{Decompressed, Plain};

/// How much of a page is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Much {
    /// All of it, mostly.
    Whole,
    /// Its levels for [`Lists::lengths`], or some of its rows. Correct for all of them, and slower.
    Part,
}

/// A list column of one row group, read from its first row to its last.
pub struct ListChunk {
    pages: SerializedPageReader<Chunk>,
    shape: Shape,
    page: Option<Values>,
    /// Whether pages come as they lie, to be decompressed as far as they are read.
    as_it_lies: bool,
}

impl std::fmt::Debug for ListChunk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ListChunk").field("shape", &self.shape).finish_non_exhaustive()
    }
}

impl ListChunk {
    /// Reads the leaf `column` of a row group from its bytes, which begin at byte `start` of the file. Where `pages` tells where its
    /// pages lie, only the bytes of pages that are read need be there.
    ///
    /// # Errors
    ///
    /// A column that is no list of single values, or is not written plainly.
    pub fn try_new(
        bytes: Bytes,
        start: u64,
        group: &RowGroupMetaData,
        column: usize,
        pages: Option<Vec<PageLocation>>,
        much: Much,
    ) -> Result<Self> {
        let chunk = group.columns().get(column).ok_or_else(|| general("a row group has no such column"))?;
        let shape = Shape::of(chunk.column_descr())?;
        let rows =
            usize::try_from(group.num_rows()).ok().ok_or_else(|| general("a row group has no number of rows"))?;
        let bytes = Arc::new(Chunk { start, bytes });
        let as_it_lies = much == Much::Part && matches!(chunk.compression(), Compression::ZSTD(_));
        let pages = if as_it_lies {
            // Told that nothing is compressed, the reader hands a page over as it lies.
            let plain = chunk.clone().into_builder().set_compression(Compression::UNCOMPRESSED).build()?;
            SerializedPageReader::new(bytes, &plain, rows, pages)?
        } else {
            SerializedPageReader::new(bytes, chunk, rows, pages)?
        };
        Ok(Self { pages, shape, page: None, as_it_lies })
    }

    /// Reads the next rows.
    ///
    /// # Errors
    ///
    /// A chunk that has fewer rows, or is damaged.
    pub fn read(&mut self, rows: usize, into: &mut Lists) -> Result<()> {
        self.advance(rows, Some(into))
    }

    /// Passes over the next rows.
    ///
    /// # Errors
    ///
    /// As for [`Self::read`].
    pub fn skip(&mut self, mut rows: usize) -> Result<()> {
        if rows == 0 {
            return Ok(());
        }
        while self.page.as_ref().is_none_or(|page| page.left == 0) {
            let whole = self.pages.peek_next_page()?.and_then(|page| page.num_rows);
            match whole.filter(|&whole| whole > 0 && whole <= rows) {
                Some(whole) => {
                    self.pages.skip_next_page()?;
                    rows -= whole;
                }
                None => break,
            }
        }
        self.advance(rows, None)
    }

    fn advance(&mut self, rows: usize, mut into: Option<&mut Lists>) -> Result<()> {
        let mut begun = 0;
        loop {
            let Some(page) = self.page.as_mut().filter(|page| page.left > 0) else {
                if let Some(mut done) = self.page.take() {
                    done.hand_over(into.as_deref_mut())?;
                }
                if begun == rows && self.pages.at_record_boundary()? {
                    break;
                }
                self.page = self.next_page()?;
                if self.page.is_none() {
                    break;
                }
                continue;
            };
            let (repetition, again) = page.repetition.peek()?;
            if repetition == 0 && begun == rows {
                break;
            }
            if repetition != 0 && begun == 0 {
                return Err(general("a page goes on with a row that none began"));
            }
            let (definition, alike) = page.definition.peek()?;
            let levels = again.min(alike).min(page.left);
            let levels = if repetition == 0 { levels.min(rows - begun) } else { levels };
            let kind = self.shape.kind(definition)?;
            if repetition == 0 {
                begun += levels;
                page.rows(kind, levels, into.as_deref_mut())?;
            } else {
                page.items(kind, levels, into.as_deref_mut())?;
            }
            page.take(levels);
        }
        if let Some(page) = &mut self.page {
            page.hand_over(into)?;
        }
        if begun < rows { Err(general("a row group ends before its rows do")) } else { Ok(()) }
    }

    fn next_page(&mut self) -> Result<Option<Values>> {
        match self.pages.get_next_page()? {
            Some(page) => Values::of(page, self.shape, self.as_it_lies).map(Some),
            None => Ok(None),
        }
    }
}

/// What a definition level says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    NullRow,
    EmptyRow,
    NullItem,
    Item,
}

/// Which levels a column has.
#[derive(Debug, Clone, Copy)]
struct Shape {
    highest: i16,
    list_is_optional: bool,
    item_is_optional: bool,
}

impl Shape {
    fn of(column: &ColumnDescriptor) -> Result<Self> {
        let optional = |repetition: Repetition| repetition == Repetition::OPTIONAL;
        let leaf = column.self_type().get_basic_info();
        let shape = Self {
            highest: column.max_def_level(),
            item_is_optional: leaf.has_repetition() && optional(leaf.repetition()),
            list_is_optional: false,
        };
        let rest = shape.highest - 1 - i16::from(shape.item_is_optional);
        if column.max_rep_level() != 1 || !(0..=1).contains(&rest) {
            return Err(general(format!("{} is no list of single values", column.path())));
        }
        Ok(Self { list_is_optional: rest == 1, ..shape })
    }

    fn kind(self, definition: u8) -> Result<Kind> {
        let definition = i16::from(definition);
        let empty = i16::from(self.list_is_optional);
        match definition {
            _ if definition == self.highest => Ok(Kind::Item),
            _ if definition < empty => Ok(Kind::NullRow),
            _ if definition == empty => Ok(Kind::EmptyRow),
            _ if definition < self.highest => Ok(Kind::NullItem),
            _ => Err(general("a level is higher than its column's")),
        }
    }
}

/// A page that is being read.
struct Values {
    repetition: Levels,
    definition: Levels,
    /// Levels that are left.
    left: usize,
    plain: Plain,
    /// Values before this one are passed over or copied, those up to `next` are counted.
    copied: usize,
    next: usize,
}

impl Values {
    fn of(page: Page, shape: Shape, as_it_lies: bool) -> Result<Self> {
        let (repetition, definition, plain, levels, encoding) = match page {
            Page::DataPage { mut buf, num_values, encoding, def_level_encoding, rep_level_encoding, .. } => {
                if [def_level_encoding, rep_level_encoding] != [Encoding::RLE; 2] {
                    return Err(general("levels are not written in runs"));
                }
                if as_it_lies {
                    let mut page = Decompressed::new(buf)?;
                    (page.levels()?, page.levels()?, Plain::Coming(page), num_values, encoding)
                } else {
                    let repetition = with_length(&mut buf)?;
                    let definition = with_length(&mut buf)?;
                    (repetition, definition, Plain::Whole(buf), num_values, encoding)
                }
            }
            Page::DataPageV2 {
                mut buf,
                num_values,
                encoding,
                rep_levels_byte_len,
                def_levels_byte_len,
                is_compressed,
                ..
            } => {
                let repetition = split(&mut buf, rep_levels_byte_len)?;
                let definition = split(&mut buf, def_levels_byte_len)?;
                let plain = if as_it_lies && is_compressed && !buf.is_empty() {
                    Plain::Coming(Decompressed::new(buf)?)
                } else {
                    Plain::Whole(buf)
                };
                (repetition, definition, plain, num_values, encoding)
            }
            Page::DictionaryPage { .. } => return Err(general("a list has a dictionary")),
        };
        if encoding != Encoding::PLAIN {
            return Err(general(format!("a list is written as {encoding}")));
        }
        Ok(Self {
            repetition: Levels::new(repetition, 1),
            definition: Levels::new(definition, shape.highest),
            left: usize::try_from(levels).unwrap_or(usize::MAX),
            plain,
            copied: 0,
            next: 0,
        })
    }

    fn take(&mut self, levels: usize) {
        self.repetition.take(levels);
        self.definition.take(levels);
        self.left -= levels;
    }

    /// Rows of one level each, as far as is known.
    fn rows(&mut self, kind: Kind, rows: usize, mut into: Option<&mut Lists>) -> Result<()> {
        for _ in 0..rows {
            if let Some(lists) = into.as_deref_mut() {
                lists.begin(kind != Kind::NullRow);
            }
            if matches!(kind, Kind::Item | Kind::NullItem) {
                self.items(kind, 1, into.as_deref_mut())?;
            }
        }
        Ok(())
    }

    fn items(&mut self, kind: Kind, items: usize, mut into: Option<&mut Lists>) -> Result<()> {
        match kind {
            Kind::Item => {
                self.next += items;
                if let Some(lists) = into {
                    lists.count(items, true);
                } else {
                    self.copied = self.next;
                }
            }
            Kind::NullItem => {
                // A null has no value: those before it are copied first.
                self.hand_over(into.as_deref_mut())?;
                if let Some(lists) = into {
                    lists.count(items, false);
                }
            }
            Kind::NullRow | Kind::EmptyRow => return Err(general("a row without items goes on")),
        }
        Ok(())
    }

    /// Copies the values that are counted.
    fn hand_over(&mut self, into: Option<&mut Lists>) -> Result<()> {
        if let Some(lists) = into
            && self.next > self.copied
        {
            lists.copy(&mut self.plain, self.copied, self.next - self.copied)?;
        }
        self.copied = self.next;
        Ok(())
    }
}

/// Bytes of a chunk, at its place in the file.
struct Chunk {
    start: u64,
    bytes: Bytes,
}

impl Chunk {
    fn from(&self, start: u64) -> Result<Bytes> {
        let at = start.checked_sub(self.start).and_then(|at| usize::try_from(at).ok());
        match at.filter(|&at| at <= self.bytes.len()) {
            Some(at) => Ok(self.bytes.slice(at..)),
            None => Err(general("a page lies outside its column")),
        }
    }
}

impl Length for Chunk {
    fn len(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }
}

impl ChunkReader for Chunk {
    type T = bytes::buf::Reader<Bytes>;

    fn get_read(&self, start: u64) -> Result<Self::T> {
        Ok(self.from(start)?.reader())
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes> {
        let mut bytes = self.from(start)?;
        if length > bytes.len() {
            return Err(general("a page ends outside its column"));
        }
        Ok(bytes.split_to(length))
    }
}

/// Splits off levels that tell their own length.
fn with_length(page: &mut Bytes) -> Result<Bytes> {
    let length = page.try_get_u32_le().ok().ok_or_else(|| general("a page ends before its levels"))?;
    split(page, length)
}

fn split(page: &mut Bytes, length: u32) -> Result<Bytes> {
    match usize::try_from(length).ok().filter(|&length| length <= page.len()) {
        Some(length) => Ok(page.split_to(length)),
        None => Err(general("a page ends within its levels")),
    }
}

fn general(message: impl Into<String>) -> ParquetError {
    ParquetError::General(message.into())
}
