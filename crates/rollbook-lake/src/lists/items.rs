//! Lists on their way into an array.

use std::sync::Arc;

use arrow::array::{ArrayData, ArrayRef, BooleanBufferBuilder, ListArray, NullBufferBuilder, UInt64Array, make_array};
use arrow::buffer::{Buffer, MutableBuffer, OffsetBuffer};
use arrow::datatypes::{DataType, FieldRef};
use parquet::errors::{ParquetError, Result};

use super::plain::Plain;

/// Lists that become one array, of themselves or of their lengths.
#[derive(Debug)]
pub struct Lists {
    item: FieldRef,
    /// Where each row begins.
    begins: Vec<usize>,
    rows: NullBufferBuilder,
    values: Values,
    valid: NullBufferBuilder,
    items: usize,
}

/// Values as Arrow holds them; where one is null, anything.
#[derive(Debug)]
enum Values {
    Bytes {
        width: usize,
        bytes: MutableBuffer,
    },
    Bits(BooleanBufferBuilder),
    /// Lengths alone are asked for.
    Unread,
}

impl Lists {
    /// Starts an array of lists of these items, for about so many rows. `None` where such items are not read.
    pub fn new(item: &FieldRef, rows: usize) -> Option<Self> {
        let values = match item.data_type() {
            DataType::Int32 | DataType::Float32 => Values::Bytes { width: 4, bytes: MutableBuffer::new(0) },
            DataType::Int64 | DataType::Float64 => Values::Bytes { width: 8, bytes: MutableBuffer::new(0) },
            DataType::Boolean => Values::Bits(BooleanBufferBuilder::new(0)),
            _ => return None,
        };
        Some(Self::of(item, values, rows))
    }

    /// Starts an array of how many items each list has: uint64, null where the list is.
    pub fn lengths(item: &FieldRef, rows: usize) -> Option<Self> {
        Self::new(item, 0).map(|_| Self::of(item, Values::Unread, rows))
    }

    fn of(item: &FieldRef, values: Values, rows: usize) -> Self {
        Self {
            item: Arc::clone(item),
            begins: Vec::with_capacity(rows + 1),
            rows: NullBufferBuilder::new(rows),
            values,
            valid: NullBufferBuilder::new(0),
            items: 0,
        }
    }

    /// Adds rows that are null.
    pub fn push_nulls(&mut self, rows: usize) {
        for _ in 0..rows {
            self.begin(false);
        }
    }

    /// Begins a row; the items that follow are its own. A row that is null has none.
    pub(super) fn begin(&mut self, is_valid: bool) {
        self.begins.push(self.items);
        self.rows.append(is_valid);
    }

    /// Counts items that [`Self::copy`] brings later, or that are null.
    pub(super) fn count(&mut self, items: usize, are_valid: bool) {
        self.items += items;
        match &mut self.values {
            Values::Unread => return,
            _ if are_valid => {}
            Values::Bytes { width, bytes } => bytes.extend_zeros(items * *width),
            Values::Bits(bits) => bits.append_n(items, false),
        }
        if are_valid {
            self.valid.append_n_non_nulls(items);
        } else {
            self.valid.append_n_nulls(items);
        }
    }

    /// Copies values of a page, from item `from` on.
    pub(super) fn copy(&mut self, page: &mut Plain, from: usize, items: usize) -> Result<()> {
        let short = || ParquetError::General("the values of a page end before its levels do".to_owned());
        match &mut self.values {
            Values::Bytes { width, bytes } => match page {
                Plain::Whole(page) => {
                    bytes.extend_from_slice(page.get(from * *width..(from + items) * *width).ok_or_else(short)?);
                }
                Plain::Coming(page) => page.append(from * *width, items * *width, bytes)?,
            },
            Values::Bits(bits) => {
                let page = page.whole()?;
                if page.len() * 8 < from + items {
                    return Err(short());
                }
                bits.append_packed_range(from..from + items, page);
            }
            Values::Unread => {}
        }
        Ok(())
    }

    /// Ends the array.
    pub fn finish(mut self) -> Result<ArrayRef> {
        self.begins.push(self.items);
        let buffer = match self.values {
            Values::Bytes { bytes, .. } => Buffer::from(bytes),
            Values::Bits(mut bits) => bits.finish().into_inner(),
            Values::Unread => {
                let lengths = self.begins.windows(2).map(|row| (row[1] - row[0]) as u64);
                return Ok(Arc::new(UInt64Array::new(lengths.collect(), self.rows.finish())));
            }
        };
        let items = ArrayData::builder(self.item.data_type().clone())
            .len(self.items)
            .add_buffer(buffer)
            .nulls(self.valid.finish())
            .build()?;
        let too_many = |_| ParquetError::General("a batch has more than 2^31 items".to_owned());
        let begins = self.begins.into_iter().map(|begin| i32::try_from(begin).map_err(too_many));
        let begins = OffsetBuffer::new(begins.collect::<Result<_>>()?);
        Ok(Arc::new(ListArray::try_new(self.item, begins, make_array(items), self.rows.finish())?))
    }
}
