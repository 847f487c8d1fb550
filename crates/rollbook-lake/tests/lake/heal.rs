//! Crashes, lost caches, lost and foreign Delta commits: no count changes, and the next write puts things right.

use rollbook_lake::{ErrorKind, ForeignReason, Outcome};

use crate::fixture::{Fixed, Fixture, append, files, published};

async fn calls(fixture: &Fixture) -> u64 {
    fixture.reopen().await.snapshot().await.unwrap().table("calls").rows()
}

#[tokio::test]
async fn a_writer_killed_between_publishing_and_applying_is_finished_by_the_next() {
    let fixture = Fixture::new().await;
    append(&fixture.lake, "a", 1, Some("sha256:a")).await;
    append(&fixture.lake, "b", 2, Some("sha256:b")).await;
    // Everything that follows entry 2 never happened.
    let commits = ["calls", "rollouts"].map(|table| fixture.file(&format!("{table}/_delta_log/{:020}.json", 2)));
    let texts = commits.clone().map(|path| std::fs::read(path).unwrap());
    let mark = fixture.file("_rollbook/sources/sha256:b");
    for path in commits.iter().chain([&mark]) {
        std::fs::remove_file(path).unwrap();
    }
    std::fs::write(fixture.file("_rollbook/snapshots/latest"), r#"{"n":1,"state":null}"#).unwrap();
    // A reader sees it whole and writes nothing.
    let reader = fixture.reopen().await;
    assert_eq!(reader.snapshot().await.unwrap().table("calls").rows(), 3);
    assert_eq!(reader.requests().put, 0);
    assert!(!commits[0].exists());
    // The next writer finishes it first.
    let writer = fixture.reopen().await;
    assert_eq!(append(&writer, "c", 1, None).await, published(3));
    assert_eq!(commits.clone().map(|path| std::fs::read(path).unwrap()), texts);
    assert!(mark.exists());
    assert_eq!(calls(&fixture).await, 4);
    // The same source again is known, though its own writer never marked it.
    assert_eq!(append(&writer, "b", 2, Some("sha256:b")).await, Outcome::AlreadyIn { n: 2 });
}

#[tokio::test]
async fn the_newest_delta_commit_of_any_table_is_restored_byte_for_byte() {
    let fixture = Fixture::new().await;
    append(&fixture.lake, "a", 3, None).await;
    // A table of this entry, one untouched since init.
    let paths = ["calls/_delta_log/00000000000000000001.json", "scores/_delta_log/00000000000000000000.json"]
        .map(|below| fixture.file(below));
    let before = paths.clone().map(|path| std::fs::read(path).unwrap());
    for path in &paths {
        std::fs::remove_file(path).unwrap();
    }
    assert_eq!(calls(&fixture).await, 3);
    append(&fixture.reopen().await, "b", 1, None).await;
    assert_eq!(paths.map(|path| std::fs::read(path).unwrap()), before);
    assert_eq!(calls(&fixture).await, 4);
}

#[tokio::test]
async fn states_and_the_hint_are_only_hints() {
    let fixture = Fixture::new().await;
    for n in 1..=35 {
        append(&fixture.lake, &format!("r{n}"), 1, None).await;
    }
    let latest = fixture.file("_rollbook/snapshots/latest");
    let state = fixture.file("_rollbook/states/00000000000000000032.arrow.zst");
    assert!(state.exists());
    for garbage in [&b"{\"n\":9999,\"state\":9984}"[..], b"\xff\x00 not json", b"", b"{\"n\":1,\"state\":null}"] {
        std::fs::write(&latest, garbage).unwrap();
        assert_eq!(calls(&fixture).await, 35);
    }
    std::fs::remove_file(&latest).unwrap();
    assert_eq!(calls(&fixture).await, 35);
    let good = std::fs::read(&state).unwrap();
    for bad in [&good[..good.len() / 2], b"", b"garbage"] {
        std::fs::write(&state, bad).unwrap();
        assert_eq!(calls(&fixture).await, 35);
    }
    std::fs::remove_dir_all(fixture.file("_rollbook/states")).unwrap();
    assert_eq!(calls(&fixture).await, 35);
    assert_eq!(fixture.reopen().await.snapshot_at(33).await.unwrap().table("calls").rows(), 33);
    assert_eq!(append(&fixture.reopen().await, "x", 1, None).await, published(36));
}

#[tokio::test]
async fn a_state_is_written_again_when_its_writer_was_killed() {
    let fixture = Fixture::new().await;
    for n in 1..=70 {
        append(&fixture.lake, &format!("r{n}"), 1, None).await;
    }
    std::fs::remove_dir_all(fixture.file("_rollbook/states")).unwrap();
    append(&fixture.reopen().await, "x", 1, None).await;
    assert!(fixture.file("_rollbook/states/00000000000000000071.arrow.zst").exists());
    assert_eq!(calls(&fixture).await, 71);
}

#[tokio::test]
async fn a_foreign_commit_changes_no_count_and_stops_only_writes_to_its_table() {
    let fixture = Fixture::new().await;
    append(&fixture.lake, "a", 1, None).await;
    let foreign = fixture.file("calls/_delta_log/00000000000000000002.json");
    std::fs::write(&foreign, "{\"commitInfo\":{}}").unwrap();
    assert_eq!(calls(&fixture).await, 1);
    let lake = fixture.reopen().await;
    let snapshot = lake.snapshot().await.unwrap();
    let found = lake.foreign_commits(&snapshot).await.unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].table.as_str(), found[0].version, found[0].reason), ("calls", 2, ForeignReason::Beyond));
    // A write to calls is refused before anything is published; one to rollouts alone goes on.
    let changes = files(&lake, "b", 1).await;
    let error = lake
        .commit(snapshot.clone(), rollbook_lake::Intent::append("x"), &mut Fixed(changes.clone()))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert!(error.to_string().contains("calls") && error.to_string().contains("version: 2"), "{error}");
    assert!(!fixture.file("_rollbook/snapshots/00000000000000000002.json").exists());
    let outcome = lake.commit(snapshot, rollbook_lake::Intent::append("x"), &mut Fixed(changes[1..].to_vec())).await;
    assert_eq!(outcome.unwrap(), published(2));
    std::fs::remove_file(foreign).unwrap();
    assert_eq!(append(&lake, "c", 1, None).await, published(3));
}

#[tokio::test]
async fn a_newest_commit_with_other_bytes_is_foreign() {
    let fixture = Fixture::new().await;
    append(&fixture.lake, "a", 1, None).await;
    let path = fixture.file("calls/_delta_log/00000000000000000001.json");
    std::fs::write(&path, "{\"commitInfo\":{\"other\":true}}").unwrap();
    let lake = fixture.reopen().await;
    let snapshot = lake.snapshot().await.unwrap();
    assert_eq!(snapshot.table("calls").rows(), 1);
    let found = lake.foreign_commits(&snapshot).await.unwrap();
    assert_eq!((found.len(), found[0].reason), (1, ForeignReason::OtherBytes));
    let changes = files(&lake, "b", 1).await;
    let error = lake.commit(snapshot, rollbook_lake::Intent::append("x"), &mut Fixed(changes)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
}

#[tokio::test]
async fn a_gap_in_the_log_is_named() {
    let fixture = Fixture::new().await;
    for rollout in ["a", "b", "c"] {
        append(&fixture.lake, rollout, 1, None).await;
    }
    std::fs::remove_file(fixture.file("_rollbook/snapshots/00000000000000000002.json")).unwrap();
    let error = fixture.reopen().await.snapshot().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.to_string().contains("missing: 2"), "{error}");
}
