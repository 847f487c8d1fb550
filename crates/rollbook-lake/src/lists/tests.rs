//! Against Parquet's own reader.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanBuilder, Float32Builder, Int32Builder, Int64Builder, ListArray, ListBuilder,
    RecordBatch, UInt64Array,
};
use arrow::compute::concat;
use arrow::datatypes::{DataType, Field, FieldRef, Schema, UInt64Type};
use bytes::Bytes;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::basic::{Compression, Encoding};
use parquet::file::metadata::{PageIndexPolicy, ParquetMetaData, ParquetMetaDataReader};
use parquet::file::properties::{WriterProperties, WriterVersion};
use proptest::collection::vec;
use proptest::option::weighted;
use proptest::prelude::*;

use super::{ListChunk, Lists, Much};

type Rows = Vec<Option<Vec<Option<i32>>>>;

/// Lists of 0 to 40 items; long runs, single items, nulls of both kinds.
fn rows() -> impl Strategy<Value = Rows> {
    vec(weighted(0.8, vec(weighted(0.9, any::<i32>()), 0..40)), 0..120)
}

fn list(kind: &DataType, rows: &Rows, nullable: bool) -> ListArray {
    macro_rules! build {
        ($builder:expr, $of:expr) => {{
            let field = Field::new("item", kind.clone(), nullable);
            let mut lists = ListBuilder::new($builder).with_field(field);
            for row in rows {
                for item in row.iter().flatten() {
                    let item = if nullable { *item } else { Some(item.unwrap_or(7)) };
                    lists.values().append_option(item.map($of));
                }
                lists.append(row.is_some());
            }
            lists.finish()
        }};
    }
    match kind {
        DataType::Int32 => build!(Int32Builder::new(), |item: i32| item),
        DataType::Int64 => build!(Int64Builder::new(), |item: i32| i64::from(item) << 20),
        DataType::Float32 => {
            build!(Float32Builder::new(), |item: i32| f32::from_bits(item.cast_unsigned() & 0x7f7f_ffff))
        }
        _ => build!(BooleanBuilder::new(), |item: i32| item % 3 == 0),
    }
}

struct File {
    bytes: Bytes,
    footer: ParquetMetaData,
}

/// Small pages and row groups, so that rows, pages and groups end at different places.
fn file(array: &ListArray, optional: bool, version: WriterVersion, dictionary: bool) -> File {
    let field = Field::new("list", array.data_type().clone(), optional);
    let schema = Arc::new(Schema::new(vec![field]));
    let properties = WriterProperties::builder()
        .set_writer_version(version)
        .set_dictionary_enabled(dictionary)
        .set_encoding(Encoding::PLAIN)
        .set_compression(Compression::ZSTD(parquet::basic::ZstdLevel::default()))
        .set_data_page_size_limit(256)
        .set_write_batch_size(16)
        .set_max_row_group_row_count(Some(50))
        .build();
    let mut bytes = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut bytes, Arc::clone(&schema), Some(properties)).unwrap();
    writer.write(&RecordBatch::try_new(schema, vec![Arc::new(array.clone())]).unwrap()).unwrap();
    writer.close().unwrap();
    let bytes = Bytes::from(bytes);
    let mut reader = ParquetMetaDataReader::new().with_page_index_policy(PageIndexPolicy::Required);
    reader.try_parse(&bytes).unwrap();
    File { footer: reader.finish().unwrap(), bytes }
}

fn chunk(file: &File, group: usize, with_pages: bool) -> parquet::errors::Result<ListChunk> {
    chunk_of(file, group, with_pages, Much::Whole)
}

fn chunk_of(file: &File, group: usize, with_pages: bool, much: Much) -> parquet::errors::Result<ListChunk> {
    let metadata = file.footer.row_group(group);
    let (start, length) = metadata.column(0).byte_range();
    let start = usize::try_from(start).unwrap();
    let bytes = file.bytes.slice(start..start + usize::try_from(length).unwrap());
    let pages = file.footer.offset_index().map(|index| index[group][0].page_locations().clone());
    ListChunk::try_new(bytes, start as u64, metadata, 0, pages.filter(|_| with_pages), much)
}

fn item_of(array: &ListArray) -> FieldRef {
    match array.data_type() {
        DataType::List(item) => Arc::clone(item),
        other => panic!("{other}"),
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum How {
    Whole,
    InPart,
    Lengths,
}

impl How {
    fn start(self, item: &FieldRef) -> Lists {
        if self == Self::Lengths { Lists::lengths(item, 0) } else { Lists::new(item, 0) }.unwrap()
    }

    fn much(self) -> Much {
        if self == Self::Whole { Much::Whole } else { Much::Part }
    }
}

/// Reads every group in steps of these lengths, of which each odd one is passed over; gives what was read and which rows these are.
fn read(file: &File, item: &FieldRef, steps: &[usize], with_pages: bool, how: How) -> (ArrayRef, Vec<u64>) {
    let mut lists = how.start(item);
    let mut places = Vec::new();
    let mut first = 0;
    for group in 0..file.footer.num_row_groups() {
        let rows = usize::try_from(file.footer.row_group(group).num_rows()).unwrap();
        let mut chunk = chunk_of(file, group, with_pages, how.much()).unwrap();
        let mut at = 0;
        for (n, step) in steps.iter().cycle().enumerate() {
            let step = (*step).min(rows - at);
            if n % 2 == 0 {
                chunk.read(step, &mut lists).unwrap();
                places.extend((first + at..first + at + step).map(|row| row as u64));
            } else {
                chunk.skip(step).unwrap();
            }
            at += step;
            if at == rows {
                break;
            }
        }
        assert!(chunk.read(1, &mut Lists::new(item, 1).unwrap()).is_err(), "a row that is not there");
        first += rows;
    }
    (lists.finish().unwrap(), places)
}

fn by_parquet(file: &File) -> ArrayRef {
    let reader = ParquetRecordBatchReaderBuilder::try_new(file.bytes.clone()).unwrap();
    let schema = Arc::clone(reader.schema());
    let reader = reader.build().unwrap();
    let arrays: Vec<ArrayRef> = reader.map(|batch| Arc::clone(batch.unwrap().column(0))).collect();
    let arrays: Vec<&dyn Array> = arrays.iter().map(AsRef::as_ref).collect();
    if arrays.is_empty() {
        arrow::array::new_empty_array(schema.field(0).data_type())
    } else {
        concat(&arrays).unwrap()
    }
}

proptest! {
    #[test]
    fn rows_are_those_that_parquet_reads(
        rows in rows(),
        steps in vec(1_usize..30, 1..6),
        kind in prop_oneof![
            Just(DataType::Int32), Just(DataType::Int64), Just(DataType::Float32), Just(DataType::Boolean)
        ],
        nullable in any::<bool>(),
        optional in any::<bool>(),
        with_pages in any::<bool>(),
    ) {
        let rows: Rows = if optional { rows } else { rows.into_iter().map(|row| row.or(Some(vec![]))).collect() };
        let array = list(&kind, &rows, nullable);
        let item = item_of(&array);
        for version in [WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0] {
            // The second version packs booleans in runs, which is another encoding.
            if kind == DataType::Boolean && version == WriterVersion::PARQUET_2_0 {
                continue;
            }
            let file = file(&array, optional, version, false);
            let expected = by_parquet(&file);
            prop_assert_eq!(expected.as_list::<i32>(), &array);
            let (found, places) = read(&file, &item, &steps, with_pages, How::Whole);
            let wanted = arrow::compute::take(&expected, &UInt64Array::from(places), None).unwrap();
            prop_assert_eq!(&found, &wanted);
            let (found, _) = read(&file, &item, &steps, with_pages, How::InPart);
            prop_assert_eq!(&found, &wanted);
            let (lengths, _) = read(&file, &item, &steps, with_pages, How::Lengths);
            let wanted: UInt64Array = wanted.as_list::<i32>().iter().map(|row| Some(row?.len() as u64)).collect();
            prop_assert_eq!(lengths.as_primitive::<UInt64Type>(), &wanted);
        }
    }
}

#[test]
fn pages_that_are_not_read_need_not_be_there() {
    let rows: Rows = (0..50).map(|row| Some(vec![Some(row); 30])).collect();
    let array = list(&DataType::Int32, &rows, false);
    let file = file(&array, true, WriterVersion::PARQUET_1_0, false);
    let pages = file.footer.offset_index().unwrap()[0][0].page_locations().clone();
    assert!(pages.len() > 3, "{} pages", pages.len());
    let (page, next) = (&pages[1], &pages[2]);
    let start = usize::try_from(page.offset).unwrap();
    let bytes = file.bytes.slice(start..start + usize::try_from(page.compressed_page_size).unwrap());
    let (first, end) = (page.first_row_index, next.first_row_index);
    let group = file.footer.row_group(0);
    let open = || ListChunk::try_new(bytes.clone(), start as u64, group, 0, Some(pages.clone()), Much::Whole).unwrap();
    let read = |skip: i64, count: i64| {
        let mut lists = Lists::new(&item_of(&array), 1)?;
        let mut chunk = open();
        chunk.skip(usize::try_from(skip).unwrap()).ok()?;
        chunk.read(usize::try_from(count).unwrap(), &mut lists).ok()?;
        lists.finish().ok()
    };
    for (skip, count) in [(first, end - first), (first, 1), (end - 1, 1), (first + 1, end - first - 1)] {
        let expected = array.slice(usize::try_from(skip).unwrap(), usize::try_from(count).unwrap());
        assert_eq!(read(skip, count), Some(Arc::new(expected) as ArrayRef), "{count} rows from {skip} on");
    }
    assert_eq!(read(first, end - first + 1), None, "the page behind is not there");
}

#[test]
fn what_is_not_written_plainly_is_an_error() {
    let rows: Rows = (0..40).map(|row| Some(vec![Some(row % 3); 9])).collect();
    let array = list(&DataType::Int32, &rows, false);
    let file = file(&array, true, WriterVersion::PARQUET_1_0, true);
    let mut chunk = chunk(&file, 0, false).unwrap();
    let error = chunk.read(1, &mut Lists::new(&item_of(&array), 1).unwrap()).unwrap_err().to_string();
    assert!(error.contains("dictionary"), "{error}");
}

#[test]
fn damage_is_an_error_and_no_panic() {
    let rows: Rows = (0..40).map(|row| Some(vec![Some(row); 5 + usize::try_from(row).unwrap()])).collect();
    let array = list(&DataType::Int32, &rows, true);
    let item = item_of(&array);
    let mut file = file(&array, true, WriterVersion::PARQUET_1_0, false);
    let whole = file.bytes.to_vec();
    let (start, length) = file.footer.row_group(0).column(0).byte_range();
    for at in start..start + length {
        let at = usize::try_from(at).unwrap();
        for flip in [0x01, 0x80, 0xff] {
            let mut bytes = whole.clone();
            bytes[at] ^= flip;
            file.bytes = bytes.into();
            // Other values may come of it, as of any store's bit error; a panic or an endless loop may not.
            for how in [How::Whole, How::InPart, How::Lengths] {
                let mut lists = how.start(&item);
                let read = chunk_of(&file, 0, false, how.much()).and_then(|mut chunk| chunk.read(40, &mut lists));
                if read.is_ok() {
                    assert!(lists.finish().is_ok_and(|lists| lists.len() == 40));
                }
            }
        }
    }
}

#[test]
fn texts_are_not_read() {
    assert!(Lists::new(&Arc::new(Field::new("item", DataType::Utf8, true)), 1).is_none());
}
