//! Exports of hand-made samples: bytes, manifest and what is refused.

use std::collections::BTreeMap;
use std::fs;

use bytes::Bytes;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use rollbook_lake::WriterLimits;
use serde_json::{Value, json};

use super::*;
use crate::error::ErrorKind;
use crate::fixture::{Scratch, batch};
use crate::recipe::table;
use crate::session::{Session, SessionOptions};

async fn scratch() -> Scratch {
    let scratch = Scratch::new().await;
    let derivations = json!([
        {"derivation_id": "dr", "kind": "reward", "name": "value"},
        {"derivation_id": "dc", "kind": "credit", "name": "grpo", "upstream_derivation_ids": ["dr"]},
        {"derivation_id": "db", "kind": "build", "name": "merged", "upstream_derivation_ids": ["dc"]},
    ]);
    scratch.add("derivations", derivations).await;
    let build = |id: &str, derivation: Value, metadata: &str| {
        json!({"build_id": id, "run_id": "r", "derivation_id": derivation, "objective_unit": "rollout",
               "objective_scope": "step", "max_tokens": 4, "metadata": metadata})
    };
    let builds = json!([
        build("one", json!("db"), r#"{"accept_assumed":false}"#),
        build("other", Value::Null, r#"{"accept_assumed":true}"#),
    ]);
    scratch.add("builds", builds).await;
    let sample = |build: &str, row: i32| {
        json!({"run_id": "r", "step": 0, "build_id": build, "optimizer_step": 0, "micro_batch": row, "rank": 0,
               "row_index": row, "token_ids": [row, 5, 6], "position_ids": [0, 1, 2],
               "action_mask": [false, true, true], "loss_weights": [0.0, 0.5, 0.5],
               "segments": [{"start": 0, "length": 3, "sequence_index": 0, "rollout_id": "a", "call_id": "a0",
                             "source": "output", "source_start": 0, "trained": true}]})
    };
    let rows: Vec<Value> = (0..20).rev().map(|row| sample("one", row)).chain([sample("other", 0)]).collect();
    scratch.add("samples", json!(rows)).await;
    scratch
}

fn destination(scratch: &Scratch) -> String {
    scratch.folder.path().join("out").to_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn parquet_parts_hold_the_rows_in_order_and_the_manifest_names_them() {
    let scratch = scratch().await;
    let dest = destination(&scratch);
    let options = ExportOptions { part_bytes: 1, ..ExportOptions::new(Format::Parquet) };
    let session = scratch.session().await;
    let manifest = export(&session, "merged", &dest, &options).await.unwrap();
    assert_eq!((manifest.rows, manifest.tokens, manifest.trained_tokens), (20, 60, 40));
    assert_eq!(manifest.build_id, "one");
    let upstream: Vec<_> = manifest.upstream.iter().map(|up| format!("{} {}", up.kind, up.derivation_id)).collect();
    assert_eq!(upstream, ["credit dc", "reward dr"]);
    let mut rows = Vec::new();
    for file in &manifest.files {
        let bytes = Bytes::from(fs::read(format!("{dest}/{}", file.path)).unwrap());
        let reader = ParquetRecordBatchReaderBuilder::try_new(bytes).unwrap();
        assert_eq!(reader.schema().fields(), table("samples").unwrap().logical().fields());
        for batch in reader.build().unwrap() {
            let batch = batch.unwrap();
            let index = batch.column_by_name("row_index").unwrap();
            rows.extend_from_slice(arrow::array::AsArray::as_primitive::<arrow::datatypes::Int32Type>(index).values());
        }
    }
    assert_eq!(rows, (0..20).collect::<Vec<_>>());
    let (read, faults) = verify(&dest, &BTreeMap::new()).await.unwrap();
    assert_eq!((read, faults), (manifest, Vec::new()));
}

#[tokio::test(flavor = "multi_thread")]
async fn row_groups_read_at_once_go_out_in_order_and_with_the_same_bytes_on_any_number_of_threads() {
    let scratch = scratch().await;
    let rows: Vec<Value> = (0..200)
        .map(|row| {
            json!({"run_id": "r", "step": row / 130, "build_id": "many", "optimizer_step": row / 130, "micro_batch": row,
                   "rank": 0, "row_index": row, "token_ids": vec![row; 1 + usize::try_from(row % 7).unwrap()]})
        })
        .collect();
    scratch.add("builds", json!([{"build_id": "many", "run_id": "r", "max_tokens": 8}])).await;
    let limits = WriterLimits { row_group_rows: 24, ..WriterLimits::default() };
    let mut writer = scratch.lake.writer_with(table("samples").unwrap(), limits);
    for rows in rows.chunks(7) {
        writer.write(&batch("samples", &json!(rows))).await.unwrap();
    }
    scratch.publish("samples", writer.finish().await.unwrap()).await;
    for format in [Format::Arrow, Format::Parquet] {
        let mut written = Vec::new();
        for threads in [1, 3] {
            let dest = scratch.folder.path().join(format!("{format}{threads}"));
            let options = SessionOptions { threads, ..SessionOptions::default() };
            let session = Session::open(&scratch.lake, None, options).await.unwrap();
            let options = ExportOptions { part_bytes: 20_000, ..ExportOptions::new(format) };
            let manifest = export(&session, "many", dest.to_str().unwrap(), &options).await.unwrap();
            assert_eq!((manifest.rows, manifest.trained_tokens), (200, 0));
            let tokens = (0..200_u64).map(|row| 1 + row % 7).sum::<u64>();
            assert_eq!(manifest.tokens, tokens);
            let files = manifest.files.iter().map(|file| fs::read(dest.join(&file.path)).unwrap());
            written.push(files.collect::<Vec<_>>());
        }
        assert!(written[0] == written[1]);
        if matches!(format, Format::Parquet) {
            let parts = written[0].iter().map(|part| Bytes::from(part.clone()));
            let index = parts.flat_map(|part| {
                ParquetRecordBatchReaderBuilder::try_new(part).unwrap().build().unwrap().flat_map(|rows| {
                    let rows = rows.unwrap();
                    let index = rows.column_by_name("row_index").unwrap();
                    arrow::array::AsArray::as_primitive::<arrow::datatypes::Int32Type>(index).values().to_vec()
                })
            });
            assert_eq!(index.collect::<Vec<_>>(), (0..200).collect::<Vec<_>>());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_export_can_be_repeated_and_gives_the_same_bytes() {
    let scratch = scratch().await;
    let dest = destination(&scratch);
    let session = scratch.session().await;
    let first = export(&session, "one", &dest, &ExportOptions::new(Format::Arrow)).await.unwrap();
    let again = export(&session, "one", &dest, &ExportOptions::new(Format::Arrow)).await.unwrap();
    assert_eq!(first, again);
    let parquet = export(&session, "one", &dest, &ExportOptions::new(Format::Parquet)).await.unwrap();
    let mut found: Vec<_> =
        fs::read_dir(&dest).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    found.sort();
    assert_eq!(found, ["manifest.json".to_owned(), parquet.files[0].path.clone()]);
}

#[tokio::test(flavor = "multi_thread")]
async fn another_build_foreign_files_and_assumed_tokens_are_refused() {
    let scratch = scratch().await;
    let dest = destination(&scratch);
    let session = scratch.session().await;
    let plain = ExportOptions::new(Format::Parquet);
    let assumed = export(&session, "other", &dest, &plain).await.unwrap_err();
    assert!(assumed.to_string().contains("holds assumed tokens"), "{assumed}");
    export(&session, "one", &dest, &plain).await.unwrap();
    let accepted = ExportOptions { accept_assumed: true, ..plain.clone() };
    let taken = export(&session, "other", &dest, &accepted).await.unwrap_err();
    assert_eq!(taken.kind(), ErrorKind::Conflict);
    let foreign = scratch.folder.path().join("foreign");
    fs::create_dir(&foreign).unwrap();
    fs::write(foreign.join("notes.txt"), "mine").unwrap();
    let error = export(&session, "one", foreign.to_str().unwrap(), &plain).await.unwrap_err();
    assert!(error.to_string().contains("holds notes.txt"), "{error}");
    let missing = export(&session, "nope", &dest, &plain).await.unwrap_err();
    assert!(missing.to_string().contains("it has merged, other"), "{missing}");
}

#[tokio::test(flavor = "multi_thread")]
async fn verification_names_each_file_that_differs() {
    let scratch = scratch().await;
    let dest = destination(&scratch);
    let options = ExportOptions { part_bytes: 1, ..ExportOptions::new(Format::Parquet) };
    let session = scratch.session().await;
    let manifest = export(&session, "one", &dest, &options).await.unwrap();
    let path = format!("{dest}/{}", manifest.files[0].path);
    let mut bytes = fs::read(&path).unwrap();
    bytes[10] ^= 1;
    fs::write(&path, bytes).unwrap();
    let (_, faults) = verify(&dest, &BTreeMap::new()).await.unwrap();
    assert_eq!(faults.len(), 1);
    assert!(faults[0].to_string().contains("has sha256"), "{}", faults[0]);
    fs::remove_file(&path).unwrap();
    let (_, faults) = verify(&dest, &BTreeMap::new()).await.unwrap();
    assert_eq!(faults[0].message, "is missing");
    fs::remove_file(format!("{dest}/manifest.json")).unwrap();
    assert!(verify(&dest, &BTreeMap::new()).await.unwrap_err().to_string().contains("an unfinished one"));
}
