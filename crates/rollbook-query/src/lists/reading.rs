//! Lists of the rows that a scan gives.

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch, RecordBatchOptions};
use datafusion::arrow::datatypes::{DataType, Field, Int64Type, SchemaRef};
use datafusion::common::{DataFusionError, Result, ScalarValue, exec_err, internal_err};
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::parquet::ParquetFileReaderFactory;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::{StreamExt, TryStreamExt};
use parquet::arrow::async_reader::AsyncFileReader;
use parquet::errors::ParquetError;
use parquet::file::metadata::{ParquetMetaData, RowGroupMetaData};
use parquet::file::page_index::offset_index::PageLocation;
use rollbook_lake::lists::{ListChunk, Lists, Much};

use super::span::Span;

/// Where a column comes from.
#[derive(Debug, Clone, Copy)]
pub(super) enum Part {
    /// From the scan, at this place.
    Column(usize),
    /// From the file; it is the next list.
    List,
}

/// What is read of a list.
#[derive(Debug)]
pub(super) enum Wanted {
    List(Arc<Field>),
    Length(Arc<Field>),
}

impl Wanted {
    fn field(&self) -> &Field {
        match self {
            Self::List(field) | Self::Length(field) => field,
        }
    }

    fn start(&self, rows: usize) -> Option<Lists> {
        let DataType::List(item) = self.field().data_type() else {
            return None;
        };
        match self {
            Self::List(_) => Lists::new(item, rows),
            Self::Length(_) => Lists::lengths(item, rows),
        }
    }
}

impl fmt::Display for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::List(field) => write!(f, "{}", field.name()),
            Self::Length(field) => write!(f, "cardinality({})", field.name()),
        }
    }
}

/// The files of a scan, by the numbers that its rows carry.
pub(super) struct Files {
    files: HashMap<i64, PartitionedFile>,
    factory: Arc<dyn ParquetFileReaderFactory>,
    lists: Vec<Wanted>,
    /// Whether the scan gives all rows.
    reads_all: bool,
}

impl fmt::Debug for Files {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Files").field("files", &self.files.len()).finish_non_exhaustive()
    }
}

impl Files {
    /// Reads the numbers; `None` where a file has none.
    pub(super) fn new<'a>(
        files: impl Iterator<Item = &'a PartitionedFile>,
        place: usize,
        factory: Arc<dyn ParquetFileReaderFactory>,
        lists: Vec<Wanted>,
        reads_all: bool,
    ) -> Option<Self> {
        let numbered = files.map(|file| match file.partition_values.get(place) {
            Some(ScalarValue::Int64(Some(number))) => Some((*number, file.clone())),
            _ => None,
        });
        Some(Self { files: numbered.collect::<Option<_>>()?, factory, lists, reads_all })
    }

    /// What is read.
    pub(super) fn lists(&self) -> &[Wanted] {
        &self.lists
    }
}

/// Reads lists row by row.
pub(super) struct Reading {
    files: Arc<Files>,
    parts: Arc<[Part]>,
    schema: SchemaRef,
    partition: usize,
    of_files: ExecutionPlanMetricsSet,
    /// Time alone: the scan counts the rows.
    metrics: BaselineMetrics,
    open: Option<Open>,
}

/// A file and the rows of it that are at hand.
struct Open {
    number: i64,
    path: String,
    reader: Box<dyn AsyncFileReader + Send>,
    footer: Arc<ParquetMetaData>,
    /// Rows whose pages are there, as the file counts them: all in one row group.
    rows: Range<i64>,
    /// The row before which the chunks stand.
    next: i64,
    /// One for each list. `None` = the file has no such column.
    chunks: Vec<Option<ListChunk>>,
}

impl Reading {
    pub(super) fn new(
        files: Arc<Files>,
        parts: Arc<[Part]>,
        schema: SchemaRef,
        partition: usize,
        metrics: &ExecutionPlanMetricsSet,
    ) -> Self {
        Self {
            files,
            parts,
            schema,
            partition,
            of_files: metrics.clone(),
            metrics: BaselineMetrics::new(metrics, partition),
            open: None,
        }
    }

    /// Gives the rows with their lists; the last two columns of `rows` are file and row.
    pub(super) fn beside(self, rows: SendableRecordBatchStream) -> SendableRecordBatchStream {
        let schema = Arc::clone(&self.schema);
        let batches = futures::stream::try_unfold((self, rows), |(mut reading, mut rows)| async move {
            let Some(batch) = rows.try_next().await? else {
                return Ok(None);
            };
            let batch = reading.complete(&batch).await?;
            Ok(Some((batch, (reading, rows))))
        });
        Box::pin(RecordBatchStreamAdapter::new(schema, batches.boxed()))
    }

    async fn complete(&mut self, batch: &RecordBatch) -> Result<RecordBatch> {
        let mut lists = Vec::new();
        for wanted in &self.files.lists {
            match wanted.start(batch.num_rows()) {
                Some(builder) => lists.push(builder),
                None => return internal_err!("a column that is no list is read as one"),
            }
        }
        let (files, rows) = places(batch)?;
        let mut at = 0;
        while at < batch.num_rows() {
            let (file, first) = (files.value(at), rows.value(at));
            let mut end = at + 1;
            while end < batch.num_rows() && files.value(end) == file && rows.value(end) == rows.value(end - 1) + 1 {
                end += 1;
            }
            if !self.has(file, first) {
                let mut last = end - 1;
                while last + 1 < batch.num_rows()
                    && files.value(last + 1) == file
                    && rows.value(last + 1) > rows.value(last)
                {
                    last += 1;
                }
                self.fetch(file, first..rows.value(last) + 1).await?;
            }
            let at_hand = self.open.as_ref().map_or(first, |open| open.rows.end);
            let read = usize::try_from(at_hand - first).unwrap_or(0).min(end - at);
            if read == 0 {
                return internal_err!("row {first} of file {file} was not fetched");
            }
            let spent = self.metrics.elapsed_compute().clone();
            let _timer = spent.timer();
            self.read(first, read, &mut lists)?;
            at += read;
        }
        let mut lists = lists.into_iter().zip(&self.files.lists);
        let mut columns: Vec<ArrayRef> = Vec::with_capacity(self.parts.len());
        for part in self.parts.iter() {
            columns.push(match part {
                Part::Column(place) => Arc::clone(batch.column(*place)),
                Part::List => match lists.next() {
                    Some((list, wanted)) => list.finish().map_err(|error| self.damaged(wanted, error))?,
                    None => return internal_err!("a list was not read"),
                },
            });
        }
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        Ok(RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)?)
    }

    /// Whether a row is at hand, and not passed.
    fn has(&self, file: i64, row: i64) -> bool {
        self.open.as_ref().is_some_and(|open| open.number == file && open.rows.contains(&row) && open.next <= row)
    }

    async fn open_file(&mut self, number: i64) -> Result<Open> {
        let Some(file) = self.files.files.get(&number) else {
            return internal_err!("a row is of file {number}, which is not read");
        };
        let mut reader = self.files.factory.create_reader(self.partition, file.clone(), None, &self.of_files)?;
        let footer = reader.get_metadata(None).await?;
        let path = file.object_meta.location.to_string();
        Ok(Open { number, path, reader, footer, rows: 0..0, next: 0, chunks: Vec::new() })
    }

    /// Fetches pages of the row group that holds the first of the wanted rows: all of them where the scan reads everything,
    /// else those from the first wanted row to the last.
    async fn fetch(&mut self, file: i64, wanted: Range<i64>) -> Result<()> {
        let mut open = match self.open.take() {
            Some(open) if open.number == file => open,
            _ => self.open_file(file).await?,
        };
        let mut before = 0;
        let found = open.footer.row_groups().iter().enumerate().find_map(|(index, group)| {
            let first = before;
            before += group.num_rows();
            (first..before).contains(&wanted.start).then_some((index, group, first))
        });
        let Some((index, group, first)) = found else {
            return exec_err!("{} has no row {}", open.path, wanted.start);
        };
        let mut spans = Vec::new();
        for list in &self.files.lists {
            let Some(leaf) = leaf_of(group, list.field().name()) else {
                spans.push(None);
                continue;
            };
            let pages = open.footer.offset_index().and_then(|groups| groups.get(index)?.get(leaf));
            let pages = pages.map(|pages| pages.page_locations().as_slice());
            let rows = wanted.start - first..wanted.end - first;
            let some = pages
                .filter(|_| !self.files.reads_all)
                .and_then(|pages| Span::of_pages(leaf, pages, &rows, group.num_rows()));
            spans.push(Some((some.unwrap_or_else(|| Span::whole(leaf, group)), pages)));
        }
        let ranges = spans.iter().flatten().map(|(span, _)| span.bytes.clone()).collect();
        let mut bytes = open.reader.get_byte_ranges(ranges).await?.into_iter();
        let mut chunks = Vec::with_capacity(spans.len());
        let mut end = group.num_rows();
        for (span, wanted) in spans.into_iter().zip(&self.files.lists) {
            let chunk = span.and_then(|span| Some((span, bytes.next()?))).map(|((span, pages), bytes)| {
                end = end.min(span.end);
                let is_part = !self.files.reads_all || matches!(wanted, Wanted::Length(_));
                let much = if is_part { Much::Part } else { Much::Whole };
                let pages = pages.map(<[PageLocation]>::to_vec);
                ListChunk::try_new(bytes, span.bytes.start, group, span.leaf, pages, much)
            });
            chunks.push(chunk.transpose().map_err(|error| damaged(&open.path, wanted, error))?);
        }
        (open.next, open.rows, open.chunks) = (first, wanted.start..first + end, chunks);
        self.open = Some(open);
        Ok(())
    }

    /// Reads rows that follow one another in the row group that is open.
    fn read(&mut self, row: i64, rows: usize, lists: &mut [Lists]) -> Result<()> {
        let Some(open) = &mut self.open else {
            return internal_err!("no row group is open");
        };
        let skipped = usize::try_from(row - open.next).unwrap_or(0);
        for ((chunk, lists), wanted) in open.chunks.iter_mut().zip(lists).zip(&self.files.lists) {
            let read = match chunk {
                Some(chunk) => chunk.skip(skipped).and_then(|()| chunk.read(rows, lists)),
                None => {
                    lists.push_nulls(rows);
                    Ok(())
                }
            };
            read.map_err(|error| damaged(&open.path, wanted, error))?;
        }
        open.next = row + i64::try_from(rows).unwrap_or(0);
        Ok(())
    }

    fn damaged(&self, wanted: &Wanted, error: ParquetError) -> DataFusionError {
        damaged(self.open.as_ref().map_or("", |open| &open.path), wanted, error)
    }
}

fn damaged(path: &str, wanted: &Wanted, error: ParquetError) -> DataFusionError {
    DataFusionError::from(error).context(format!("{path}: column {} cannot be read", wanted.field().name()))
}

/// File and row of each row.
fn places(batch: &RecordBatch) -> Result<(&Int64Array, &Int64Array)> {
    let place = |back: usize| {
        let column = batch.num_columns().checked_sub(back).map(|at| batch.column(at));
        column.and_then(|column| column.as_primitive_opt::<Int64Type>())
    };
    match (place(2), place(1)) {
        (Some(files), Some(rows)) => Ok((files, rows)),
        _ => internal_err!("rows do not say where they lie"),
    }
}

/// The leaf of a list; `None` where the file has no such column.
fn leaf_of(group: &RowGroupMetaData, name: &str) -> Option<usize> {
    group.columns().iter().position(|column| column.column_path().parts().first().is_some_and(|root| root == name))
}
