//! Which bytes of a column hold which rows.
//!
//! ```text
//! pages of a column       |0        |400      |800      1000 rows in the row group
//! wanted rows 410..420               ^^^^^^^^^           this page, up to row 800
//! ```

use std::ops::Range;

use parquet::file::metadata::RowGroupMetaData;
use parquet::file::page_index::offset_index::PageLocation;

/// Bytes of one column, and the row of its row group up to which they reach.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) leaf: usize,
    pub(super) bytes: Range<u64>,
    pub(super) end: i64,
}

impl Span {
    /// The whole column.
    pub(super) fn whole(leaf: usize, group: &RowGroupMetaData) -> Self {
        let (start, length) = group.column(leaf).byte_range();
        Self { leaf, bytes: start..start + length, end: group.num_rows() }
    }

    /// The pages from the first of the wanted rows to the last, of `all` rows; none where the pages do not say which rows they hold.
    pub(super) fn of_pages(leaf: usize, pages: &[PageLocation], wanted: &Range<i64>, all: i64) -> Option<Self> {
        let begin = pages.partition_point(|page| page.first_row_index <= wanted.start).checked_sub(1)?;
        let stop = pages.partition_point(|page| page.first_row_index < wanted.end);
        let (first, last) = (pages.get(begin)?, pages.get(stop.checked_sub(1)?)?);
        let end = u64::try_from(last.offset + i64::from(last.compressed_page_size)).ok()?;
        let bytes = u64::try_from(first.offset).ok()?..end;
        Some(Self { leaf, bytes, end: pages.get(stop).map_or(all, |page| page.first_row_index) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pages of 100 bytes that begin at these rows.
    fn pages(first_rows: &[i64]) -> Vec<PageLocation> {
        let offsets = (0_i64..).map(|page| 1_000 + 100 * page);
        let pages = first_rows.iter().zip(offsets);
        pages
            .map(|(&first_row_index, offset)| PageLocation { offset, compressed_page_size: 100, first_row_index })
            .collect()
    }

    #[test]
    fn pages_from_the_first_wanted_row_to_the_last() {
        let pages = pages(&[0, 400, 800]);
        for (wanted, bytes, end) in [
            (410..420, 1_100..1_200, 800),
            (400..401, 1_100..1_200, 800),
            (399..400, 1_000..1_100, 400),
            (399..401, 1_000..1_200, 800),
            (0..1_000, 1_000..1_300, 1_000),
            (900..5_000, 1_200..1_300, 1_000),
        ] {
            assert_eq!(Span::of_pages(3, &pages, &wanted, 1_000), Some(Span { leaf: 3, bytes, end }), "{wanted:?}");
        }
    }

    #[test]
    fn without_a_page_for_the_first_row_nothing_is_known() {
        assert_eq!(Span::of_pages(0, &[], &(0..1), 10), None);
        assert_eq!(Span::of_pages(0, &pages(&[5]), &(0..1), 10), None);
    }
}
