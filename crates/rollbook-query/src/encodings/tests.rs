//! Encodings of a lake: what is there, what is not, and what is broken.

use std::collections::BTreeMap;

use rollbook_functions::Encodings;
use rollbook_lake::LakeOptions;

use super::*;
use crate::session::{Session, SessionOptions};

const SMALL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../rollbook-encoding/tests/small");

/// A lake with the small encoding, one whose files are missing, and one whose tokenizer is no tokenizer.
async fn session(folder: &std::path::Path) -> Session {
    let options =
        LakeOptions { env: BTreeMap::new(), clock: Arc::new(|| 1_795_910_400_000_000), author: "test".to_owned() };
    let lake = Lake::init(folder.join("lake").to_str().unwrap(), options).await.unwrap();
    let source = folder.join("source");
    std::fs::create_dir_all(source.join("blobs")).unwrap();
    let mut digests = Vec::new();
    for name in ["tokenizer.json", "chat_template.jinja"] {
        let bytes = std::fs::read(format!("{SMALL}/{name}")).unwrap();
        digests.push(rollbook_schema::digest::bytes_digest(&bytes));
        std::fs::write(source.join("blobs").join(name), bytes).unwrap();
    }
    std::fs::write(source.join("blobs/broken"), "{}").unwrap();
    let broken = rollbook_schema::digest::bytes_digest(b"{}");
    let rows = [
        serde_json::json!({"encoding_id": "small", "tokenizer_digest": digests[0], "chat_template_digest": digests[1]}),
        serde_json::json!({"encoding_id": "absent", "tokenizer_digest": format!("sha256:{:064}", 0), "chat_template_digest": "qwen"}),
        serde_json::json!({"encoding_id": "broken", "tokenizer_digest": broken, "chat_template_digest": digests[1]}),
        serde_json::json!({"encoding_id": "bare", "tokenizer_digest": digests[0].trim_start_matches("sha256:")}),
    ];
    let text: String = rows.iter().map(|row| format!("{row}\n")).collect();
    std::fs::write(source.join("encodings.jsonl"), text).unwrap();
    let importer = rollbook_import::importer("tables").unwrap();
    let report = crate::ingest::import(&lake, importer, &[source], &crate::ingest::IngestOptions::default(), &|_| {})
        .await
        .unwrap();
    assert_eq!(report.rejected, 0, "{:?}", report.rejects);
    let options = SessionOptions { memory_limit: 64 << 20, threads: 2, spill_dir: None };
    Session::open(&lake, None, options).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_there_is_used_and_what_is_not_is_null() {
    let folder = tempfile::tempdir().unwrap();
    let session = session(folder.path()).await;
    let encodings = session.encodings();
    // Made by tests/small.py of rollbook-encoding.
    assert_eq!(encodings.encode("small", "<|im_start|>hello<|im_end|>").unwrap(), Some(vec![1, 259, 78, 266, 2]));
    assert_eq!(encodings.encode("bare", "hello").unwrap(), Some(vec![259, 78, 266]));
    assert_eq!(encodings.decode("small", &[1, 259, 78, 266, 2], true).unwrap().as_deref(), Some("hello"));
    let request = r#"{"messages": [{"role": "user", "content": "hello"}]}"#;
    let text = "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n";
    assert_eq!(encodings.render("small", request).unwrap().as_deref(), Some(text));
    for id in ["absent", "nowhere"] {
        assert_eq!(encodings.encode(id, "hello").unwrap(), None, "{id}");
        assert_eq!(encodings.decode(id, &[1], false).unwrap(), None, "{id}");
        assert_eq!(encodings.render(id, request).unwrap(), None, "{id}");
    }
    assert_eq!(encodings.render("bare", request).unwrap(), None);
    assert_eq!(encodings.render("small", r#"{"prompt": "x"}"#).unwrap(), None);
    let error = encodings.encode("broken", "hello").unwrap_err().to_string();
    assert!(error.contains(&rollbook_schema::digest::bytes_digest(b"{}")), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn functions_run_in_queries_whatever_the_threads() {
    let folder = tempfile::tempdir().unwrap();
    let session = session(folder.path()).await;
    let sql = "SELECT n FROM (SELECT value AS n FROM range(0, 4000)) \
        WHERE decode(encode(concat('hello ', n), 'small'), 'small') = concat('hello ', n) \
        AND encode(concat(n), 'absent') IS NULL";
    let rows: usize = session.collect(sql).await.unwrap().iter().map(arrow::array::RecordBatch::num_rows).sum();
    assert_eq!(rows, 4000);
}
