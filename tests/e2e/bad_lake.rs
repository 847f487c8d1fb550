//! Lakes that are none, are newer, or lie on a store that cannot hold one.

use rollbook_testing::http_stub::{Behavior, HttpStub};
use rollbook_tests::{S3, Scratch};

#[test]
fn what_is_no_lake_is_told_apart() {
    let scratch = Scratch::new();
    std::fs::create_dir(scratch.path("empty")).unwrap();
    let query = |lake: &'static str| ["sql", "--lake", lake, "-c", "SELECT 1"];
    scratch.run(&query("empty")).ended(3).saying(&["not a Rollbook lake", "rollbook init"]);
    scratch.run(&query("nowhere")).ended(3).saying(&["no such folder", "rollbook init"]);
    scratch.run(&query("ftp://host/lake")).ended(2).saying(&["ftp"]);
    scratch.run(&["import", "tables", "empty", "--lake", "empty"]).ended(3).saying(&["not a Rollbook lake"]);
    scratch.run(&["sql", "-c", "SELECT 1"]).ended(2).saying(&["--lake"]);
    assert_eq!(std::fs::read_dir(scratch.path("empty")).unwrap().count(), 0);
    assert!(!scratch.path("nowhere").exists());
    // Twice is once.
    scratch.ok(&["init", "lake"]);
    let again = scratch.run(&["init", "lake"]).ended(2);
    assert!(again.stderr.contains("already"), "{}", again.stderr);
}

#[test]
fn a_newer_format_and_a_broken_mark_are_refused_with_the_remedy() {
    let scratch = Scratch::new();
    scratch.ok(&["init", "lake"]);
    let mark = scratch.read("lake/_rollbook/lake.json");
    assert!(mark.contains("\"format_version\":1"), "{mark}");
    scratch.write(
        "run/calls.jsonl",
        r#"{"run_id":"r","rollout_id":"a","call_id":"c","prompt_token_ids":[1],"output_token_ids":[2]}"#,
    );
    scratch.write("lake/_rollbook/lake.json", mark.replace("\"format_version\":1", "\"format_version\":2"));
    scratch.run(&["status", "--lake", "lake"]).ended(2).saying(&["newer", "upgrade"]);
    scratch.run(&["import", "tables", "run", "--lake", "lake"]).ended(2).saying(&["newer", "upgrade"]);
    scratch.write("lake/_rollbook/lake.json", "{\"format\":\"roll");
    let broken = scratch.run(&["status", "--lake", "lake"]);
    assert!(matches!(broken.status, Some(2 | 3)) && broken.stderr.contains("lake.json"), "{broken:?}");
    scratch.write("lake/_rollbook/lake.json", mark);
    assert_eq!(scratch.snapshot("lake"), 0);
}

#[test]
fn a_bucket_that_is_missing_or_denies_is_named() {
    let missing = HttpStub::start(Behavior::NoBucket).unwrap();
    let scratch = Scratch::with(missing.env());
    scratch.run(&["init", "s3://nowhere/lake"]).ended(3).saying(&["bucket", "nowhere"]);
    scratch.run(&["status", "--lake", "s3://nowhere/lake"]).ended(3).saying(&["bucket", "nowhere"]);
    let denies = HttpStub::start(Behavior::Denies).unwrap();
    let scratch = Scratch::with(denies.env());
    for arguments in [&["init", "s3://closed/lake"][..], &["status", "--lake", "s3://closed/lake"]] {
        let ran = scratch.run(arguments).ended(3);
        let said = ran.stderr.to_lowercase();
        assert!(said.contains("denied") || said.contains("denies"), "{}", ran.stderr);
    }
}

#[test]
fn a_real_server_says_the_same_and_no_secret_is_shown() {
    let s3 = S3::start();
    let scratch = Scratch::with(s3.server.env());
    scratch.run(&["init", "s3://no-such-bucket/lake"]).ended(3).saying(&["bucket", "no-such-bucket"]);
    scratch.ok(&["init", "s3://lakes/a"]);
    let denied = Scratch::with(s3.server.env_denied());
    let ran = denied.run(&["status", "--lake", "s3://lakes/a"]).ended(3);
    let said = ran.stderr.to_lowercase();
    assert!(said.contains("denied") || said.contains("denies"), "{}", ran.stderr);
    assert!(!ran.stderr.contains("not-the-secret-of-this-key") && !ran.stderr.contains(s3.server.access_key()));
}

#[test]
fn a_store_that_ignores_create_if_absent_is_refused() {
    let stub = HttpStub::start(Behavior::IgnoresConditions).unwrap();
    let scratch = Scratch::with(stub.env());
    let ran = scratch.run(&["init", "s3://careless/lake"]).ended(2);
    assert!(ran.stderr.contains("create-if-absent") || ran.stderr.contains("If-None-Match"), "{}", ran.stderr);
    assert!(!stub.keys().iter().any(|key| key.ends_with("lake.json")), "{:?}", stub.keys());
}
