//! Building batches of one table from rows that arrive one value at a time.
//!
//! | part | what it does |
//! |---|---|
//! | `scalar` | reads one number, boolean, text or time by the exchange format's rules |
//! | `time` | RFC 3339 to UTC microseconds |
//! | `column` | a growing column of any logical type, which can take back its last row |
//! | `extra` | joins what a source says beyond the schema |
//! | `batch` | the columns of one table, cut into bounded batches |
//!
//! A row goes straight into the columns while its line is parsed; when a value turns out bad, every column is cut
//! back to the row before. So no row is held twice and a token id is touched once.

mod batch;
mod column;
mod extra;
mod scalar;
mod time;

pub(crate) use batch::{BATCH_BYTES, BATCH_ROWS, RowBatch, is_ours, logical_nullable};
pub(crate) use extra::merge_extra;
pub(crate) use scalar::{double, float_of_word, id, int, integral, long, text};
pub(crate) use time::microseconds;
