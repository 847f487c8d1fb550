//! Where files and row groups end, what they say about their rows, and what is refused.

use arrow::array::RecordBatch;
use object_store::ObjectStoreExt;
use object_store::path::Path;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::file::metadata::{ParquetMetaData, RowGroupMetaData};
use rollbook_lake::{DataFile, ErrorKind, Lake, WriterLimits, holds_whole_rollouts};
use rollbook_schema::table;

use crate::fixture::{Fixture, Row, batch};

async fn write(lake: &Lake, name: &str, limits: WriterLimits, batches: &[&[Row<'_>]]) -> Vec<DataFile> {
    let table = table(name).unwrap();
    let mut writer = lake.writer_with(table, limits);
    for rows in batches {
        writer.write(&batch(table, rows)).await.unwrap();
    }
    writer.finish().await.unwrap()
}

async fn read(lake: &Lake, file: &DataFile) -> (ParquetMetaData, Vec<RecordBatch>) {
    let bytes = lake.store().get(&Path::from(file.path.as_str())).await.unwrap().bytes().await.unwrap();
    assert_eq!(bytes.len() as u64, file.size);
    let builder = ParquetRecordBatchReaderBuilder::try_new(bytes).unwrap();
    let metadata = builder.metadata().as_ref().clone();
    (metadata, builder.build().unwrap().collect::<Result<_, _>>().unwrap())
}

fn group_rows(metadata: &ParquetMetaData) -> Vec<i64> {
    metadata.row_groups().iter().map(RowGroupMetaData::num_rows).collect()
}

#[tokio::test]
async fn row_groups_end_where_a_rollout_ends() {
    let fixture = Fixture::new().await;
    // 40 rollouts of 25 calls, in batches that end inside a rollout.
    let names: Vec<String> = (0..40).map(|rollout| format!("rollout-{rollout:02}")).collect();
    let rows: Vec<Row<'_>> = names
        .iter()
        .flat_map(|name| (0..25).map(|call| ("run", Some(1), Some("g"), Some(name.as_str()), call)))
        .collect();
    let batches: Vec<&[Row<'_>]> = rows.chunks(40).collect();
    let limits = WriterLimits { row_group_bytes: 4_000, file_bytes: usize::MAX, ..WriterLimits::default() };
    let files = write(&fixture.lake, "calls", limits, &batches).await;
    assert_eq!(files.len(), 1);
    let (metadata, batches) = read(&fixture.lake, &files[0]).await;
    let groups = group_rows(&metadata);
    assert!(groups.len() > 2 && groups.iter().all(|rows| rows % 25 == 0), "{groups:?}");
    assert_eq!(groups.iter().sum::<i64>(), 1000);
    assert!(holds_whole_rollouts(&metadata));
    assert_eq!(metadata.row_group(0).sorting_columns().map(Vec::len), Some(5));
    // Types come back from Parquet alone: list items keep their name, times their zone.
    let stored = table("calls").unwrap().physical();
    for (read, stored) in batches[0].schema().fields().iter().zip(stored.fields()) {
        assert_eq!(read.data_type(), stored.data_type(), "{}", stored.name());
    }
    assert_eq!(batches.iter().map(RecordBatch::num_rows).sum::<usize>(), 1000);
}

#[tokio::test]
async fn a_rollout_larger_than_a_row_group_is_cut_at_the_hard_limit() {
    let fixture = Fixture::new().await;
    let rows: Vec<Row<'_>> = (0..300).map(|call| ("run", Some(1), Some("g"), Some("a"), call)).collect();
    let batches: Vec<&[Row<'_>]> = rows.chunks(10).collect();
    let limits = WriterLimits { row_group_bytes: 1, file_bytes: 1, ..WriterLimits::default() };
    let files = write(&fixture.lake, "calls", limits, &batches).await;
    assert_eq!(files.len(), 1, "a rollout is never split over files");
    let (metadata, _) = read(&fixture.lake, &files[0]).await;
    assert_eq!(group_rows(&metadata), [10; 30]);
    assert!(!holds_whole_rollouts(&metadata));
}

#[tokio::test]
async fn calls_of_no_rollout_that_may_stand_on_each_other_stay_in_one_file() {
    let fixture = Fixture::new().await;
    let tiny = WriterLimits { row_group_bytes: 1, file_bytes: 1, ..WriterLimits::default() };
    // Numbered on from 0: each may stand on the one before.
    let on: Vec<Row<'_>> = (0..4).map(|call| ("run", None, None, None, call)).collect();
    let batches: Vec<&[Row<'_>]> = on.chunks(1).collect();
    let files = write(&fixture.lake, "calls", tiny, &batches).await;
    assert_eq!(files.iter().map(|file| file.rows).collect::<Vec<_>>(), [4]);
    let (metadata, _) = read(&fixture.lake, &files[0]).await;
    assert!(metadata.num_row_groups() > 1 && !holds_whole_rollouts(&metadata));
    // Of other tables every row of no rollout stands alone.
    let files = write(&fixture.lake, "scores", tiny, &batches).await;
    assert_eq!(files.len(), 4);
}

#[tokio::test]
async fn files_end_with_their_run_and_when_they_are_large() {
    let fixture = Fixture::new().await;
    let row = |run, rollout, index| (run, Some(1), Some("g"), Some(rollout), index);
    let rows = [row("r1", "a", 0), row("r1", "a", 1), row("r2", "a", 0), row("r2", "b", 0), row("r3", "a", 0)];
    let files = write(&fixture.lake, "calls", WriterLimits::default(), &[&rows[..3], &rows[3..]]).await;
    let runs: Vec<_> = files.iter().map(|file| (file.run_id.clone().unwrap().0, file.rows)).collect();
    assert_eq!(runs, [("r1".to_owned(), 2), ("r2".to_owned(), 2), ("r3".to_owned(), 1)]);
    // A rollout is never split over files.
    let tiny = WriterLimits { row_group_bytes: 1, file_bytes: 1, ..WriterLimits::default() };
    let split = write(&fixture.lake, "calls", tiny, &[&rows[..1], &rows[1..2]]).await;
    assert_eq!(split.iter().map(|file| file.rows).collect::<Vec<_>>(), [2]);
    let two = write(&fixture.lake, "calls", tiny, &[&rows[2..3], &rows[3..4]]).await;
    assert_eq!(two.len(), 2);
}

#[tokio::test]
async fn ranges_and_null_counts_describe_the_rows() {
    let fixture = Fixture::new().await;
    let rows: [Row<'_>; 3] = [
        ("run", Some(3), Some("g1"), Some("a"), 7),
        ("run", Some(5), None, Some("b"), 9),
        ("run", None, Some("g0"), Some("c"), 0),
    ];
    let files = write(&fixture.lake, "calls", WriterLimits::default(), &[&rows]).await;
    let file = &files[0];
    assert_eq!(file.step, Some((3, 5)));
    assert_eq!(file.group_id, Some(("g0".to_owned(), "g1".to_owned())));
    assert_eq!((file.step_nulls, file.group_nulls, file.max_prompt_len), (1, 1, Some(9)));
    let none: [Row<'_>; 1] = [("run", None, None, None, 0)];
    let files = write(&fixture.lake, "calls", WriterLimits::default(), &[&none]).await;
    assert_eq!((files[0].step, files[0].group_id.clone(), files[0].step_nulls), (None, None, 1));
}

#[tokio::test]
async fn calls_out_of_order_are_refused_and_other_tables_say_so() {
    let fixture = Fixture::new().await;
    let rows: [Row<'_>; 2] = [("run", Some(1), None, Some("b"), 0), ("run", Some(1), None, Some("a"), 0)];
    let calls = table("calls").unwrap();
    let mut writer = fixture.lake.writer(calls);
    let error = writer.write(&batch(calls, &rows)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    writer.abort().await.unwrap();
    let files = write(&fixture.lake, "scores", WriterLimits::default(), &[&rows]).await;
    assert!(!files[0].sorted);
}

#[tokio::test]
async fn a_batch_of_another_shape_is_refused() {
    let fixture = Fixture::new().await;
    let other = batch(table("rollouts").unwrap(), &[("run", None, None, Some("a"), 0)]);
    let error = fixture.lake.writer(table("calls").unwrap()).write(&other).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
}
