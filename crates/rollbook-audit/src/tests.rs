//! Whole lakes: every known fault is found and nothing else, and a real run has just the faults it is known for.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rollbook_lake::{Lake, LakeOptions};
use rollbook_query::ingest::{IngestOptions, import};
use rollbook_query::recipe::{DeriveOptions, find_recipe, run_credit, run_reward};
use rollbook_query::{Session, SessionOptions};
use rollbook_testing::calculator_run;
use rollbook_testing::faults::{self, Case, Side};
use rstest::rstest;
use serde_json::Value;
use tempfile::TempDir;

use crate::{
    AuditOptions, Finding, Outcome, Report, RuleChanges, Since, audit, lift, quarantine, quarantined, record, register,
    rules, set_rules,
};

async fn lake(folder: &Path) -> Lake {
    let options =
        LakeOptions { env: BTreeMap::new(), clock: Arc::new(|| 1_795_910_400_000_000), author: "test".to_owned() };
    Lake::init(folder.join("lake").to_str().unwrap(), options).await.unwrap()
}

async fn add(lake: &Lake, folder: PathBuf) {
    let importer = rollbook_import::importer("tables").unwrap();
    let report = import(lake, importer, &[folder], &IngestOptions::default(), &|_| {}).await.unwrap();
    assert_eq!(report.rejected, 0, "{:?}", report.rejects);
}

async fn session(lake: &Lake) -> Session {
    let options = SessionOptions { memory_limit: 256 << 20, threads: 2, spill_dir: None };
    Session::open(lake, None, options).await.unwrap()
}

async fn audited(folder: PathBuf) -> Report {
    let scratch = tempfile::tempdir().unwrap();
    let lake = lake(scratch.path()).await;
    add(&lake, folder).await;
    audit(&session(&lake).await, &AuditOptions::default()).await.unwrap()
}

fn values(report: &Report) -> Vec<Value> {
    report.findings.iter().map(|finding| serde_json::to_value(finding).unwrap()).collect()
}

/// What checks share goes to files where memory is short.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_audit_in_little_memory_finds_the_same() {
    let scratch = tempfile::tempdir().unwrap();
    calculator_run::write_tables(&scratch.path().join("run")).unwrap();
    let lake = lake(scratch.path()).await;
    add(&lake, scratch.path().join("run")).await;
    let found = async |memory_limit: usize| {
        let options = SessionOptions { memory_limit, threads: 2, spill_dir: Some(scratch.path().to_owned()) };
        let session = Session::open(&lake, None, options).await.unwrap();
        let options = AuditOptions { checks: vec!["token/*".to_owned()], ..AuditOptions::default() };
        let mut found: Vec<String> =
            values(&audit(&session, &options).await.unwrap()).iter().map(Value::to_string).collect();
        found.sort();
        found
    };
    let plenty = found(512 << 20).await;
    assert!(plenty.len() > 20, "{plenty:#?}");
    assert_eq!(found(96 << 20).await, plenty);
}

/// The cases lie in one lake as runs of their own, and the repaired ones in another: no check may confuse them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_known_fault_is_found_and_its_repair_is_clean() {
    let cases = faults::cases().unwrap();
    let mut differences = Vec::new();
    for side in [Side::Bad, Side::Good] {
        let scratch = tempfile::tempdir().unwrap();
        faults::gather(&cases, &[side], scratch.path()).unwrap();
        let findings = values(&audited(scratch.path().to_owned()).await);
        for case in &cases {
            let own = case.own(side, &findings);
            differences.extend(match side {
                Side::Bad => case.differences_on_bad(&own),
                Side::Good => case.differences_on_good(&own),
            });
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

async fn calculator() -> (TempDir, Lake) {
    let scratch = tempfile::tempdir().unwrap();
    let lake = lake(scratch.path()).await;
    let tables = scratch.path().join("tables");
    calculator_run::write_tables(&tables).unwrap();
    add(&lake, tables).await;
    (scratch, lake)
}

/// What the run's README counts: 14 undeclared breaks, 6 calls with 8 missing logprobs, and nothing else. What it does not
/// declare is no fault.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_real_run_has_the_faults_it_is_known_for() {
    let (_scratch, lake) = calculator().await;
    let report = audit(&session(&lake).await, &AuditOptions::default()).await.unwrap();
    let found: BTreeMap<&str, (u64, u64)> = report
        .checks
        .iter()
        .filter(|count| count.violation + count.rule > 0)
        .map(|count| (count.check, (count.violation, count.rule)))
        .collect();
    let logprobs: Vec<_> = report.of("token/logprob_value").collect();
    let mut calls: Vec<_> = logprobs.iter().map(|finding| &finding.call_id).collect();
    calls.dedup();
    assert_eq!(calls.len(), 6);
    assert_eq!(logprobs.iter().filter_map(|finding| finding.length).sum::<i32>(), 8);
    let runs = logprobs.len() as u64;
    assert_eq!(
        found,
        BTreeMap::from([("token/prefix", (14, 0)), ("token/logprob_value", (runs, 0))]),
        "{:#?}",
        report.findings
    );
    assert_eq!(report.worst(), Some(Outcome::Violation));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_report_is_recorded_in_one_commit_and_read_by_sql() {
    let (_scratch, lake) = calculator().await;
    let before = session(&lake).await;
    let options = AuditOptions {
        checks: vec!["token/logprob_value".to_owned(), "pack/once".to_owned()],
        ..AuditOptions::default()
    };
    let mut report = audit(&before, &options).await.unwrap();
    let recorded = record(&lake, &mut report).await.unwrap();
    assert_eq!(recorded.n, before.snapshot().n + 1);
    let after = session(&lake).await;
    let rows = after.collect("SELECT \"check\", call_id, position FROM findings ORDER BY run_id, step").await.unwrap();
    assert_eq!(rows.iter().map(arrow::array::RecordBatch::num_rows).sum::<usize>(), report.findings.len());
    assert!(report.findings.iter().all(|finding| finding.audit_id.as_deref() == Some(recorded.audit_id.as_str())));
    let audits = after.collect("SELECT snapshot, checks FROM audits").await.unwrap();
    let text = arrow::util::pretty::pretty_format_batches(&audits).unwrap().to_string();
    assert!(text.contains(r#"{"pack/once":2,"token/logprob_value":3}"#), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_check_is_a_table_and_a_report_the_designed_object() {
    let (_scratch, lake) = calculator().await;
    let session = session(&lake).await;
    register(&session).unwrap();
    register(&session).unwrap();
    let rows = session.collect("SELECT call_id FROM audit('token/prefix') WHERE outcome = 'violation'").await.unwrap();
    assert_eq!(rows.iter().map(arrow::array::RecordBatch::num_rows).sum::<usize>(), 14);
    let options = AuditOptions {
        checks: vec!["rollout/*".to_owned()],
        run: Some("no such run".to_owned()),
        ..AuditOptions::default()
    };
    assert!(audit(&session, &options).await.unwrap_err().to_string().contains("no such run"));
    let options = AuditOptions { checks: vec!["nothing/*".to_owned()], ..AuditOptions::default() };
    assert!(audit(&session, &options).await.unwrap_err().to_string().contains("token/prefix"));
    let options = AuditOptions { checks: vec!["pack/*".to_owned()], ..AuditOptions::default() };
    let report = serde_json::to_value(audit(&session, &options).await.unwrap()).unwrap();
    let keys: Vec<&String> = report.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["snapshot", "checks", "findings"]);
    let check: Vec<&String> = report["checks"][0].as_object().unwrap().keys().collect();
    assert_eq!(check, ["check", "version", "violation", "rule", "undeclared", "examined"]);
}

/// Our own rewards and credits are what their recipes give again, until a row of theirs is changed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_changed_row_of_a_derivation_is_found_by_running_its_recipe_again() {
    let (scratch, lake) = calculator().await;
    let recipe = |name| find_recipe(name).unwrap();
    let options = DeriveOptions::default();
    let reward = run_reward(&session(&lake).await, &recipe("verifier_value"), &options).await.unwrap();
    let credit = run_credit(&session(&lake).await, &recipe("grpo"), reward.name.as_str(), &options).await.unwrap();
    let derive = AuditOptions { checks: vec!["score/derive".to_owned()], ..AuditOptions::default() };
    let clean = audit(&session(&lake).await, &derive).await.unwrap();
    assert_eq!((clean.findings.len(), clean.checks[0].examined), (0, 768), "{:#?}", clean.findings);

    let rows = session(&lake).await.collect("SELECT run_id, rollout_id FROM credits ORDER BY rollout_id LIMIT 1").await;
    let text = arrow::util::pretty::pretty_format_batches(&rows.unwrap()).unwrap().to_string();
    let cells: Vec<&str> = text.lines().nth(3).unwrap().split('|').map(str::trim).collect();
    let (run, rollout) = (cells[1], cells[2]);
    let changed = scratch.path().join("changed");
    fs::create_dir(&changed).unwrap();
    let row = serde_json::json!({"run_id": run, "name": credit.name, "derivation_id": credit.derivation_id,
        "rollout_id": rollout, "quantity": "advantage", "level": "rollout", "value": 9.0});
    fs::write(changed.join("credits.jsonl"), format!("{row}\n")).unwrap();
    add(&lake, changed).await;
    let report = audit(&session(&lake).await, &derive).await.unwrap();
    let found: Vec<_> = report.findings.iter().map(|one| (one.outcome, one.rollout_id.as_deref())).collect();
    assert_eq!(found, [(Outcome::Violation, Some(rollout))], "{:#?}", report.findings);
    assert_eq!(report.findings[0].derivation_id.as_deref(), Some(credit.derivation_id.as_str()));
}

/// A sequence of numbers that looks random and is always the same.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % limit
    }
}

/// Deals the rows of a folder to so many folders, as they would arrive over time.
fn deal(folder: &Path, parts: usize, numbers: &mut Numbers) -> Vec<PathBuf> {
    let folders: Vec<PathBuf> = (0..parts).map(|part| folder.join(part.to_string())).collect();
    folders.iter().for_each(|folder| fs::create_dir(folder).unwrap());
    let mut files: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    for file in files.iter().filter(|file| file.is_file()) {
        let mut texts = vec![String::new(); parts];
        for row in fs::read_to_string(file).unwrap().lines() {
            texts[numbers.below(parts)] += &format!("{row}\n");
        }
        for (folder, text) in folders.iter().zip(texts).filter(|(_, text)| !text.is_empty()) {
            fs::write(folder.join(file.file_name().unwrap()), text).unwrap();
        }
    }
    folders
}

/// What makes two findings one, whatever else arrived between them.
fn place_of(finding: &Finding) -> String {
    format!(
        "{} {:?} {:?} {:?} {:?} {:?} {:?} {:?} {:?}",
        finding.check,
        finding.outcome,
        finding.run_id,
        finding.group_id,
        finding.rollout_id,
        finding.call_id,
        finding.build_id,
        finding.row_index,
        finding.position
    )
}

/// The oracle is the audit of everything: whatever it finds, some audit of what was new had found, and the last of those
/// finds nothing else.
#[rstest]
#[case(1)]
#[case(2)]
#[case(3)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn audits_of_what_is_new_add_up_to_the_audit_of_everything(#[case] seed: u64) {
    let mut numbers = Numbers(seed);
    let cases = faults::cases().unwrap();
    let picked: Vec<_> = (0..10).map(|_| cases[numbers.below(cases.len())].clone()).collect();
    let scratch = tempfile::tempdir().unwrap();
    let rows = scratch.path().join("rows");
    fs::create_dir(&rows).unwrap();
    faults::gather(&picked, &[Side::Bad, Side::Good], &rows).unwrap();
    let lake = lake(scratch.path()).await;
    let options = AuditOptions { since: Since::Last, ..AuditOptions::default() };
    let mut found = BTreeSet::new();
    let mut last = Report::default();
    for folder in deal(&rows, 3, &mut numbers) {
        add(&lake, folder).await;
        last = audit(&session(&lake).await, &options).await.unwrap();
        found.extend(last.findings.iter().map(place_of));
        record(&lake, &mut last).await.unwrap();
    }
    let everything = audit(&session(&lake).await, &AuditOptions::default()).await.unwrap();
    let judged = |report: &Report| -> BTreeSet<String> {
        report.findings.iter().filter(|finding| finding.outcome > Outcome::Undeclared).map(place_of).collect()
    };
    let everything = judged(&everything);
    let missed: Vec<&String> = everything.difference(&found).collect();
    assert!(missed.is_empty(), "seed {seed}, cases {:?}: {missed:#?}", names(&picked));
    let wrong: Vec<String> = judged(&last).difference(&everything).cloned().collect();
    assert!(wrong.is_empty(), "seed {seed}, cases {:?}: {wrong:#?}", names(&picked));
    let again = audit(&session(&lake).await, &options).await.unwrap();
    assert!(again.checks.iter().all(|count| count.found() == 0 && count.examined == 0), "{:#?}", again.findings);
}

fn names(cases: &[Case]) -> Vec<&str> {
    cases.iter().map(|case| case.name.as_str()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn expectations_are_set_unset_and_explained() {
    let (_scratch, lake) = calculator().await;
    let before = session(&lake).await;
    let runs = before.collect("SELECT run_id FROM runs").await.unwrap();
    let run_id = arrow::array::AsArray::as_string::<i32>(runs[0].column(0)).value(0).to_owned();
    assert!(rules(&before, "no such run").await.unwrap_err().to_string().contains(&run_id));
    let wrong = |name: &str, value: &str| RuleChanges { set: vec![(name.to_owned(), value.to_owned())], unset: vec![] };
    let bounds = |least: &str, most: &str| RuleChanges {
        set: vec![("score_min".to_owned(), least.to_owned()), ("score_max".to_owned(), most.to_owned())],
        unset: vec![],
    };
    for (changes, said) in [
        (wrong("max_stale", "3"), "max_staleness"),
        (wrong("max_staleness", "three"), "a whole number"),
        (wrong("objective_unit", "tokens"), "rollout"),
        (wrong("credit_rule.singleton", "some"), "number"),
        (wrong("allow_policy_mix", "yes"), "true or false"),
        // Numbers that no run can keep.
        (wrong("expected_group_size", "-1"), "at least 1"),
        (wrong("expected_group_size", "0"), "at least 1"),
        (wrong("vocab_size", "-5"), "at least 1"),
        (wrong("max_staleness", "-1"), "at least 0"),
        (wrong("eos_token_ids", "2,-1"), "each at least 0"),
        (wrong("credit_rule.eps", "-1e-6"), "at least 0"),
        (bounds("1", "0"), "above score_max"),
    ] {
        let error = set_rules(&before, &run_id, &changes).await.unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
    }
    assert_eq!(lake.snapshot().await.unwrap().n, before.snapshot().n);
    let set =
        [("max_staleness", "3"), ("eos_token_ids", "[1, 2]"), ("credit_rule.eps", "1e-6"), ("objective_unit", "token")];
    let set = set.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    let changes = RuleChanges { set, unset: vec!["expected_group_size".to_owned()] };
    let n = set_rules(&before, &run_id, &changes).await.unwrap();
    assert_eq!(n, Some(before.snapshot().n + 1));
    let after = session(&lake).await;
    let declared = rules(&after, &run_id).await.unwrap();
    let value = |name: &str| declared.iter().find(|rule| rule.name == name).unwrap().value.clone();
    assert_eq!(value("max_staleness"), serde_json::json!(3));
    assert_eq!(value("eos_token_ids"), serde_json::json!([1, 2]));
    assert_eq!(value("credit_rule.eps"), serde_json::json!(1e-6));
    assert_eq!(value("expected_group_size"), Value::Null);
    let unit = declared.iter().find(|rule| rule.name == "objective_unit").unwrap();
    assert!(unit.checks.contains(&"pack/weight"), "{unit:?}");
    // The same once more is no change.
    assert_eq!(set_rules(&after, &run_id, &changes).await.unwrap(), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_findings_name_is_quarantined_once_and_lifted() {
    let (_scratch, lake) = calculator().await;
    let before = session(&lake).await;
    let options = AuditOptions { checks: vec!["token/prefix".to_owned()], ..AuditOptions::default() };
    let mut report = audit(&before, &options).await.unwrap();
    record(&lake, &mut report).await.unwrap();
    let things = quarantine(&before, &report, Outcome::Violation).await.unwrap();
    let calls: BTreeSet<_> = report.findings.iter().map(|finding| finding.call_id.clone()).collect();
    assert_eq!(things.iter().map(|thing| thing.call_id.clone()).collect::<BTreeSet<_>>(), calls);
    assert!(things.iter().all(|thing| thing.level == "call" && thing.audit_id == report.findings[0].audit_id));
    // A second audit finds the same, and they stand already.
    assert!(quarantine(&before, &report, Outcome::Violation).await.unwrap().is_empty());
    let standing = quarantined(&session(&lake).await, None).await.unwrap();
    assert_eq!(standing.len(), things.len());
    assert!(lift(&before, &["nothing".to_owned()]).await.is_err());
    let one = standing[0].quarantine_id.clone();
    assert_eq!(lift(&before, std::slice::from_ref(&one)).await.unwrap().len(), 1);
    let left = quarantined(&session(&lake).await, None).await.unwrap();
    assert_eq!(left.len(), things.len() - 1);
    assert!(left.iter().all(|thing| thing.quarantine_id != one));
}
