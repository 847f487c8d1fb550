//! How files are dealt out to the partitions that read them.
//!
//! ```text
//! a.parquet 30 MB  row groups 1 2 3 4        partition 0: a[1 3]
//! b.parquet  1 MB                            partition 1: a[2 4], b
//! ```
//!
//! A range of bytes names the row groups that begin in it, as `DataFusion` reads them.

use std::ops::Range;
use std::sync::Arc;

use datafusion::common::{DataFusionError, Result};
use datafusion::config::ConfigOptions;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::ParquetSource;
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use parquet::file::metadata::ParquetMetaData;

/// Files smaller than this are read by one partition.
const CUT_BYTES: u64 = 1 << 20;

/// What a partition reads in one go: a file, or neighbouring row groups of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Piece {
    /// Place of the file among all.
    pub(crate) file: usize,
    size: u64,
    bytes: Range<u64>,
}

impl Piece {
    /// A file.
    pub(crate) fn whole(file: usize, size: u64) -> Self {
        Self { file, size, bytes: 0..size }
    }

    /// Limits a file to the piece.
    pub(crate) fn of(&self, file: PartitionedFile) -> PartitionedFile {
        if self.bytes == (0..self.size) {
            return file;
        }
        let place = |at: u64| i64::try_from(at).unwrap_or(i64::MAX);
        file.with_range(place(self.bytes.start), place(self.bytes.end))
    }

    fn load(&self) -> u64 {
        self.bytes.end - self.bytes.start
    }
}

/// Whether a file holds so much of `total` that one partition should not read it alone. Few files can.
pub(super) fn is_worth_cutting(size: u64, total: u64, partitions: usize) -> bool {
    let share = total / (4 * u64::try_from(partitions).unwrap_or(1).max(1));
    partitions > 1 && size >= CUT_BYTES && size > share
}

/// Cuts a file between its row groups.
pub(crate) fn row_group_pieces(file: usize, size: u64, footer: &ParquetMetaData) -> Vec<Piece> {
    let starts = footer.row_groups().iter().skip(1).map(|group| {
        let first = group.columns().first()?;
        u64::try_from(first.dictionary_page_offset().unwrap_or_else(|| first.data_page_offset())).ok()
    });
    let Some(starts) = starts.collect::<Option<Vec<u64>>>() else {
        return vec![Piece::whole(file, size)];
    };
    let ends: Vec<u64> = starts.iter().copied().chain([size]).collect();
    let starts: Vec<u64> = [0].into_iter().chain(starts).collect();
    if starts.iter().zip(&ends).any(|(start, end)| start >= end) {
        return vec![Piece::whole(file, size)];
    }
    starts.into_iter().zip(ends).map(|(start, end)| Piece { file, size, bytes: start..end }).collect()
}

/// Deals pieces out to at most so many partitions, the largest first, each to the partition with least to do. Within a
/// partition they stand in the order of the files, and neighbours are one.
pub(super) fn deal(mut pieces: Vec<Piece>, partitions: usize) -> Vec<Vec<Piece>> {
    pieces.sort_by_key(|piece| std::cmp::Reverse(piece.load()));
    let mut hands = vec![(0_u64, Vec::new()); partitions.clamp(1, pieces.len().max(1))];
    for piece in pieces {
        if let Some(lightest) = hands.iter_mut().min_by_key(|(load, _)| *load) {
            lightest.0 += piece.load();
            lightest.1.push(piece);
        }
    }
    hands.into_iter().map(|(_, hand)| joined(hand)).collect()
}

fn joined(mut hand: Vec<Piece>) -> Vec<Piece> {
    hand.sort_by_key(|piece| (piece.file, piece.bytes.start));
    let mut joined: Vec<Piece> = Vec::with_capacity(hand.len());
    for piece in hand {
        match joined.last_mut() {
            Some(last) if last.file == piece.file && last.bytes.end == piece.bytes.start => {
                last.bytes.end = piece.bytes.end;
            }
            _ => joined.push(piece),
        }
    }
    joined
}

/// Reads the footer of a file; the scan that follows finds it in the session's cache.
pub(crate) async fn footer_of(
    source: &ParquetSource,
    file: PartitionedFile,
    options: &ConfigOptions,
) -> Result<Arc<ParquetMetaData>> {
    let Some(factory) = source.parquet_file_reader_factory() else {
        return Err(DataFusionError::Internal("a scan of the lake has no reader of its files".to_owned()));
    };
    let hint = options.execution.parquet.metadata_size_hint;
    let mut reader = factory.create_reader(0, file, hint, &ExecutionPlanMetricsSet::new())?;
    Ok(reader.get_metadata(None).await?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(file: usize, bytes: Range<u64>, size: u64) -> Piece {
        Piece { file, size, bytes }
    }

    #[test]
    fn row_groups_of_one_file_are_shared_out_and_neighbours_join() {
        let groups = [0..10, 10..20, 20..30, 30..44].map(|bytes| piece(0, bytes, 44)).to_vec();
        let hands = deal(groups, 2);
        // 14, then 10, 10, 10: the second hand gets two, then the first is the lighter one.
        assert_eq!(hands, [vec![piece(0, 20..44, 44)], vec![piece(0, 0..20, 44)]]);
    }

    #[test]
    fn whole_files_go_to_whoever_has_least() {
        let hands = deal(vec![Piece::whole(0, 1), Piece::whole(1, 9), Piece::whole(2, 5), Piece::whole(3, 3)], 2);
        assert_eq!(hands, [vec![Piece::whole(1, 9)], vec![Piece::whole(0, 1), Piece::whole(2, 5), Piece::whole(3, 3)]]);
        assert_eq!(deal(vec![Piece::whole(0, 1)], 4), [vec![Piece::whole(0, 1)]]);
    }

    #[test]
    fn all_row_groups_of_a_file_are_the_file() {
        let hands = deal(vec![piece(0, 0..10, 20), piece(0, 10..20, 20)], 1);
        assert_eq!(hands, [vec![Piece::whole(0, 20)]]);
        let file = hands[0][0].of(PartitionedFile::new("a", 20));
        assert!(file.range.is_none());
    }

    #[test]
    fn small_files_and_small_shares_are_left_whole() {
        assert!(is_worth_cutting(40 << 20, 40 << 20, 2));
        assert!(!is_worth_cutting(40 << 20, 40 << 20, 1));
        assert!(!is_worth_cutting(1 << 19, 1 << 19, 2));
        assert!(!is_worth_cutting(40 << 20, 400 << 20, 2));
    }
}
