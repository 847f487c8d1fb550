//! What init and open say about places that are no lakes.

use std::sync::Arc;

use object_store::ObjectStore;
use object_store::memory::InMemory;
use rollbook_lake::{ErrorKind, Lake};
use rollbook_schema::tables;
use tempfile::TempDir;

use crate::fixture::{Fixture, append, options, published};
use crate::meddler::{Fate, Meddler};

#[tokio::test]
async fn init_creates_every_table_and_open_finds_it() {
    let fixture = Fixture::new().await;
    let lake = fixture.reopen().await;
    assert_eq!(lake.id(), fixture.lake.id());
    let snapshot = lake.snapshot().await.unwrap();
    assert_eq!(snapshot.n, 0);
    assert_eq!(snapshot.tables().count(), tables().len());
    for table in tables() {
        assert!(fixture.file(&format!("{}/_delta_log/{:020}.json", table.name, 0)).exists(), "{}", table.name);
    }
}

#[tokio::test]
async fn init_on_a_lake_is_a_conflict_and_changes_nothing() {
    let fixture = Fixture::new().await;
    let error = Lake::init(fixture.url(), options()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert!(error.to_string().contains("already a lake"), "{error}");
    assert_eq!(fixture.reopen().await.id(), fixture.lake.id());
}

#[tokio::test]
async fn init_finishes_what_a_killed_one_left() {
    let fixture = Fixture::new().await;
    let id = fixture.lake.id().to_owned();
    // Killed while applying.
    std::fs::remove_file(fixture.file("calls/_delta_log/00000000000000000000.json")).unwrap();
    assert_eq!(Lake::init(fixture.url(), options()).await.unwrap().id(), id);
    assert!(fixture.file("calls/_delta_log/00000000000000000000.json").exists());
    // Killed between identity and snapshot 0.
    for folder in tables().iter().map(|table| table.name.as_str()).chain(["_rollbook/snapshots"]) {
        std::fs::remove_dir_all(fixture.file(folder)).unwrap();
    }
    assert_eq!(
        Lake::open(fixture.url(), options()).await.unwrap().snapshot().await.unwrap_err().kind(),
        ErrorKind::NotFound
    );
    let lake = Lake::init(fixture.url(), options()).await.unwrap();
    assert_eq!(lake.id(), id);
    assert_eq!(append(&lake, "a", 1, None).await, published(1));
}

#[tokio::test]
async fn places_that_are_no_lakes_are_named_with_a_remedy() {
    let folder = TempDir::new().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    std::fs::write(at("file"), "x").unwrap();
    std::fs::create_dir(at("empty")).unwrap();
    for (url, kind, says) in [
        (at("missing"), ErrorKind::NotFound, "rollbook init"),
        (at("empty"), ErrorKind::NotFound, "not a Rollbook lake"),
        (at("file"), ErrorKind::Invalid, "is a file"),
        (String::new(), ErrorKind::Invalid, "empty"),
        ("ftp://host/x".to_owned(), ErrorKind::Unsupported, "s3://"),
        ("s3://key:secret@bucket/x".to_owned(), ErrorKind::Invalid, "credentials"),
        ("s3:///x".to_owned(), ErrorKind::Invalid, "bucket"),
    ] {
        let error = Lake::open(&url, options()).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{url}: {error}");
        assert!(error.to_string().contains(says), "{url}: {error}");
        assert!(!format!("{error:?}").contains("secret"), "{error:?}");
    }
    assert!(!folder.path().join("missing").exists(), "only init makes folders");
}

#[tokio::test]
async fn a_newer_format_and_a_damaged_identity_are_told_apart() {
    let fixture = Fixture::new().await;
    let path = fixture.file("_rollbook/lake.json");
    std::fs::write(&path, r#"{"format":"rollbook","format_version":2,"lake_id":"x","created_at":0}"#).unwrap();
    let error = Lake::open(fixture.url(), options()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("upgrade rollbook"), "{error}");
    for text in ["{", "[]", r#"{"format":"other","format_version":1,"lake_id":"x"}"#] {
        std::fs::write(&path, text).unwrap();
        assert_eq!(Lake::open(fixture.url(), options()).await.unwrap_err().kind(), ErrorKind::Corrupt);
    }
}

#[tokio::test]
async fn a_newer_entry_is_refused() {
    let fixture = Fixture::new().await;
    let path = fixture.file("_rollbook/snapshots/00000000000000000001.json");
    std::fs::write(path, r#"{"format":2,"n":1}"#).unwrap();
    let error = fixture.lake.snapshot().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
}

#[tokio::test]
async fn an_s3_store_that_is_away_is_reported_in_time_and_keeps_secrets() {
    let mut options = options();
    for (name, value) in [
        ("AWS_ACCESS_KEY_ID", "AKIDTEST"),
        ("AWS_SECRET_ACCESS_KEY", "topsecretvalue"),
        // Reserved for documentation and never listening here.
        ("AWS_ENDPOINT_URL", "http://127.0.0.1:9"),
    ] {
        options.env.insert(name.to_owned(), value.to_owned());
    }
    let opening =
        tokio::time::timeout(std::time::Duration::from_secs(35), Lake::open("s3://bucket/lake", options.clone()));
    let error = opening.await.expect("errors within about half a minute").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    let shown = format!("{error} {error:?} {options:?}");
    assert!(!shown.contains("topsecretvalue"), "{shown}");
}

#[tokio::test]
async fn init_refuses_a_store_that_ignores_create_if_absent() {
    // As Garage and the `JuiceFS` gateway do; and one that keeps the first object, but tells nobody.
    for fate in [Fate::Overwrite, Fate::SayCreated] {
        let store: Arc<dyn ObjectStore> = Arc::new(Meddler::new(Arc::new(InMemory::new()), move |_| fate));
        let error = Lake::init_with_store("careless", Arc::clone(&store), options()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("create-if-absent"), "{error}");
        let left = store.list_with_delimiter(None).await.unwrap();
        assert!(left.objects.is_empty() && left.common_prefixes.is_empty(), "nothing stays behind");
    }
}
