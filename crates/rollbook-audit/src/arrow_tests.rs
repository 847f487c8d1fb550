//! The checks of the arrows on real tokenizers and templates, which lie outside the repository: each names the layer that broke.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::util::display::array_value_to_string;
use rollbook_lake::{Lake, LakeOptions};
use rollbook_query::ingest::{IngestOptions, import};
use rollbook_query::{Session, SessionOptions};
use rollbook_testing::calculator_run;
use rollbook_testing::shared::shared;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{AuditOptions, Outcome, Report, audit};

async fn lake(folder: &Path) -> Lake {
    let options =
        LakeOptions { env: BTreeMap::new(), clock: Arc::new(|| 1_795_910_400_000_000), author: "test".to_owned() };
    Lake::init(folder.join("lake").to_str().unwrap(), options).await.unwrap()
}

async fn add(lake: &Lake, folder: &Path) {
    let importer = rollbook_import::importer("tables").unwrap();
    let report = import(lake, importer, &[folder.to_owned()], &IngestOptions::default(), &|_| {}).await.unwrap();
    assert_eq!(report.rejected, 0, "{:?}", report.rejects);
}

/// A folder with `blobs/` alone, for an import after that of the tables.
fn blobs(folder: &Path, files: &[PathBuf]) -> PathBuf {
    let source = folder.join("with-blobs");
    fs::create_dir_all(source.join("blobs")).unwrap();
    for file in files {
        fs::copy(file, source.join("blobs").join(file.file_name().unwrap())).unwrap();
    }
    source
}

async fn session(lake: &Lake) -> Session {
    let options = SessionOptions { memory_limit: 256 << 20, threads: 2, spill_dir: None };
    Session::open(lake, None, options).await.unwrap()
}

async fn audited(session: &Session, check: &str) -> Report {
    audit(session, &AuditOptions { checks: vec![check.to_owned()], ..AuditOptions::default() }).await.unwrap()
}

/// Call and position of every violation.
fn places(report: &Report) -> Vec<(String, Option<i32>)> {
    let found = report.findings.iter().filter(|finding| finding.outcome == Outcome::Violation);
    found.map(|finding| (finding.call_id.clone().unwrap_or_default(), finding.position)).collect()
}

/// The rows of a query as texts.
async fn rows(session: &Session, sql: &str) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    for batch in session.collect(sql).await.unwrap() {
        for row in 0..batch.num_rows() {
            rows.push(batch.columns().iter().map(|column| array_value_to_string(column, row).unwrap()).collect());
        }
    }
    rows
}

fn calls(folder: &Path, rows: &[Value], encodings: &[Value]) {
    fs::create_dir_all(folder).unwrap();
    let text = |rows: &[Value]| rows.iter().map(|row| format!("{row}\n")).collect::<String>();
    fs::write(folder.join("calls.jsonl"), text(rows)).unwrap();
    fs::write(folder.join("encodings.jsonl"), text(encodings)).unwrap();
}

/// 1,322 of the 1,335 prompts are what transformers renders, 13 have its text and keep a cut that the model sampled; every text is
/// what its tokens spell. Counted with transformers 5.24.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_real_run_is_what_its_template_renders() {
    let Some(files) = shared("calculator-run") else { return };
    let scratch = TempDir::new().unwrap();
    let lake = lake(scratch.path()).await;
    let tables = scratch.path().join("tables");
    calculator_run::write_tables(&tables).unwrap();
    add(&lake, &tables).await;
    let parts = [files.join("tokenizer.json"), files.join("chat_template.jinja")];
    add(&lake, &blobs(scratch.path(), &parts)).await;
    let session = session(&lake).await;
    for (check, examined) in
        [("token/template", 1335), ("token/text", 1335), ("token/parse", 1335), ("token/update", 745)]
    {
        let report = audited(&session, check).await;
        assert_eq!(places(&report), [], "{check}");
        let count = &report.checks[0];
        assert_eq!((count.undeclared, count.examined), (0, examined), "{check}");
    }
    // The 14 breaks that nothing declares: their history was rendered as text and encoded again, and two of them had sampled a
    // special token that the text left out.
    let sql = "SELECT observed_break, count(*) FROM transitions \
        WHERE declared_break IS NULL AND token_relation = 'rewrites' GROUP BY 1 ORDER BY 1";
    assert_eq!(rows(&session, sql).await, [["retokenized", "12"], ["template", "2"]]);
}

/// Qwen3's template strips thinking from history. Ids by transformers 5.24, two calls a rollout.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_qwen3_each_broken_layer_has_its_check() {
    let Some(files) = shared("tokenizers/qwen3") else { return };
    let scratch = TempDir::new().unwrap();
    let lake = lake(scratch.path()).await;
    add(&lake, &Path::new(env!("CARGO_MANIFEST_DIR")).join("../rollbook-testing/fixtures/qwen3-thinking")).await;
    let parts = [files.join("tokenizer.json"), files.join("chat_template.jinja")];
    add(&lake, &blobs(scratch.path(), &parts)).await;
    let session = session(&lake).await;
    // Tokens that are appended keep the thinking from prompt token 16 on; a cut that was sampled and kept is right.
    assert_eq!(places(&audited(&session, "token/template").await), [("appended-2".to_owned(), Some(16))]);
    assert_eq!(places(&audited(&session, "token/update").await), [("edited-2".to_owned(), None)]);
    assert_eq!(places(&audited(&session, "token/text").await), []);
    let broken: Vec<String> =
        places(&audited(&session, "token/prefix").await).into_iter().map(|(call, _)| call).collect();
    assert_eq!(broken, ["edited-2", "encoded-again-2", "rendered-2"]);
    let sql = "SELECT call_id, observed_break FROM transitions WHERE observed_break IS NOT NULL ORDER BY call_id";
    assert_eq!(
        rows(&session, sql).await,
        [["edited-2", "harness"], ["encoded-again-2", "retokenized"], ["rendered-2", "template"]]
    );
}

/// NeMo-RL's case of merged tokens: the template's rendering spells what was seen, in other tokens from 4,647 on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nemo_rls_merged_tokens_are_another_cut() {
    let (Some(case), Some(files)) =
        (shared("nemo-rl/maybe_correct_merged_tokens_test_data.json"), shared("tokenizers/qwen3"))
    else {
        return;
    };
    let case: Value = serde_json::from_str(&fs::read_to_string(case).unwrap()).unwrap();
    let seen = case["seen_token_ids"].as_array().unwrap();
    let (prompt, output) = seen.split_at(3053);
    let tokenizer = files.join("tokenizer.json");
    let digest = rollbook_schema::digest::bytes_digest(&fs::read(&tokenizer).unwrap());
    let scratch = TempDir::new().unwrap();
    let tables = scratch.path().join("tables");
    let call = |id: &str, prompt: &[Value], output: &[Value], parent: Option<&str>| {
        json!({"run_id": "nemo", "rollout_id": "r", "call_id": id, "prompt_token_ids": prompt, "output_token_ids": output,
            "parent_call_id": parent, "encoding_id": "qwen3"})
    };
    let first = call("seen", prompt, output, None);
    let second = call("rendered", case["output_prompt_token_ids"].as_array().unwrap(), &[], Some("seen"));
    calls(&tables, &[first, second], &[json!({"encoding_id": "qwen3", "tokenizer_digest": digest})]);
    let lake = lake(scratch.path()).await;
    add(&lake, &tables).await;
    add(&lake, &blobs(scratch.path(), &[tokenizer])).await;
    let session = session(&lake).await;
    let sql = "SELECT text_relation, first_difference, observed_break FROM transitions WHERE call_id = 'rendered'";
    assert_eq!(rows(&session, sql).await, [["extends", "4647", "retokenized"]]);
    assert_eq!(places(&audited(&session, "token/prefix").await), [("rendered".to_owned(), Some(4647))]);
}
