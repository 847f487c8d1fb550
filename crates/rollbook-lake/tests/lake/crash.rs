//! Lost and false answers, and a process that really dies between publishing and applying.

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use object_store::local::LocalFileSystem;
use rollbook_lake::{Lake, Outcome};

use crate::fixture::{Fixture, append, options, published};
use crate::meddler::{Fate, Meddler};

/// Names the lake to the process that is to die.
const LAKE_OF_THE_DYING: &str = "ROLLBOOK_TEST_DYING_LAKE";

async fn meddled(fixture: &Fixture, fate: Fate, times: u32) -> Lake {
    let inner = Arc::new(LocalFileSystem::new_with_prefix(&fixture.path).unwrap());
    let seen = AtomicU32::new(0);
    let store = Meddler::new(inner, move |path| {
        let is_entry = path.as_ref().starts_with("_rollbook/snapshots/0");
        if is_entry && seen.fetch_add(1, Ordering::Relaxed) < times {
            return fate;
        }
        Fate::Pass
    });
    Lake::open_with_store("meddled", Arc::new(store), options()).await.unwrap()
}

#[tokio::test]
async fn a_write_whose_answer_was_lost_knows_its_own_entry() {
    let fixture = Fixture::new().await;
    let lake = meddled(&fixture, Fate::LoseAnswer, 1).await;
    assert_eq!(append(&lake, "a", 1, None).await, published(1));
    assert_eq!(append(&lake, "b", 1, None).await, published(2));
    let snapshot = fixture.reopen().await.snapshot().await.unwrap();
    assert_eq!((snapshot.n, snapshot.table("calls").rows()), (2, 2));
}

#[tokio::test]
async fn a_number_falsely_called_taken_is_tried_again() {
    let fixture = Fixture::new().await;
    let lake = meddled(&fixture, Fate::SayTaken, 2).await;
    assert_eq!(append(&lake, "a", 1, None).await, published(1));
    assert_eq!(fixture.reopen().await.snapshot().await.unwrap().n, 1);
}

/// Does nothing unless it is started by the test below.
#[tokio::test]
async fn dying_writer() {
    let Some(path) = std::env::var_os(LAKE_OF_THE_DYING).map(PathBuf::from) else {
        return;
    };
    let inner = Arc::new(LocalFileSystem::new_with_prefix(path).unwrap());
    let store = Meddler::new(inner, |path| {
        if path.as_ref().contains("/_delta_log/") {
            return Fate::Die;
        }
        Fate::Pass
    });
    let lake = Lake::open_with_store("dying", Arc::new(store), options()).await.unwrap();
    append(&lake, "a", 5, Some("sha256:a")).await;
}

#[tokio::test]
async fn a_process_that_dies_between_publishing_and_applying_loses_and_doubles_nothing() {
    let fixture = Fixture::new().await;
    let died = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "crash::dying_writer"])
        .env(LAKE_OF_THE_DYING, &fixture.path)
        .output()
        .unwrap();
    assert!(!died.status.success());
    let commit = fixture.file("calls/_delta_log/00000000000000000001.json");
    assert!(fixture.file("_rollbook/snapshots/00000000000000000001.json").exists());
    assert!(!commit.exists());
    let reader = fixture.reopen().await;
    assert_eq!(reader.snapshot().await.unwrap().table("calls").rows(), 5);
    // The user runs the same import again.
    let again = append(&reader, "a", 5, Some("sha256:a")).await;
    assert_eq!(again, Outcome::AlreadyIn { n: 1 });
    assert!(commit.exists(), "the next writer applied it");
    let rows = fixture.reopen().await.snapshot().await.unwrap();
    assert_eq!(rows.table("calls").rows(), 5);
}
