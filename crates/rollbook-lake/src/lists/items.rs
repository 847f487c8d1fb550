//! Lists on their way into an array.

use std::sync::Arc;

use arrow::array::{ArrayData, ArrayRef, BooleanBufferBuilder, ListArray, NullBufferBuilder, make_array};
use arrow::buffer::{Buffer, MutableBuffer, OffsetBuffer};
use arrow::datatypes::{DataType, FieldRef};
use parquet::errors::{ParquetError, Result};

/// Lists that become one array.
#[derive(Debug)]
pub struct Lists {
    item: FieldRef,
    /// Where each row begins.
    begins: Vec<i32>,
    rows: NullBufferBuilder,
    values: Values,
    valid: NullBufferBuilder,
    items: usize,
}

/// Values as Arrow holds them; where one is null, anything.
#[derive(Debug)]
enum Values {
    Bytes { width: usize, bytes: MutableBuffer },
    Bits(BooleanBufferBuilder),
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
        Some(Self {
            item: Arc::clone(item),
            begins: Vec::with_capacity(rows + 1),
            rows: NullBufferBuilder::new(rows),
            values,
            valid: NullBufferBuilder::new(0),
            items: 0,
        })
    }

    /// Adds rows that are null.
    pub fn push_nulls(&mut self, rows: usize) -> Result<()> {
        for _ in 0..rows {
            self.begin(false)?;
        }
        Ok(())
    }

    /// Begins a row; the items that follow are its own. A row that is null has none.
    pub(super) fn begin(&mut self, is_valid: bool) -> Result<()> {
        self.begins.push(self.offset()?);
        self.rows.append(is_valid);
        Ok(())
    }

    /// Counts items that [`Self::copy`] brings later, or that are null.
    pub(super) fn count(&mut self, items: usize, are_valid: bool) {
        self.items += items;
        if are_valid {
            self.valid.append_n_non_nulls(items);
        } else {
            self.valid.append_n_nulls(items);
            match &mut self.values {
                Values::Bytes { width, bytes } => bytes.extend_zeros(items * *width),
                Values::Bits(bits) => bits.append_n(items, false),
            }
        }
    }

    /// Copies plain values of a page, from item `from` on.
    pub(super) fn copy(&mut self, page: &[u8], from: usize, items: usize) -> Result<()> {
        let short = || ParquetError::General("the values of a page end before its levels do".to_owned());
        match &mut self.values {
            Values::Bytes { width, bytes } => {
                bytes.extend_from_slice(page.get(from * *width..(from + items) * *width).ok_or_else(short)?);
            }
            Values::Bits(bits) => {
                if page.len() * 8 < from + items {
                    return Err(short());
                }
                bits.append_packed_range(from..from + items, page);
            }
        }
        Ok(())
    }

    /// Ends the array.
    pub fn finish(mut self) -> Result<ListArray> {
        self.begins.push(self.offset()?);
        let buffer = match self.values {
            Values::Bytes { bytes, .. } => Buffer::from(bytes),
            Values::Bits(mut bits) => bits.finish().into_inner(),
        };
        let items = ArrayData::builder(self.item.data_type().clone())
            .len(self.items)
            .add_buffer(buffer)
            .nulls(self.valid.finish())
            .build()?;
        let items: ArrayRef = make_array(items);
        let begins = OffsetBuffer::new(self.begins.into());
        Ok(ListArray::try_new(self.item, begins, items, self.rows.finish())?)
    }

    fn offset(&self) -> Result<i32> {
        let too_many = || ParquetError::General("a batch has more than 2^31 items".to_owned());
        i32::try_from(self.items).ok().ok_or_else(too_many)
    }
}
