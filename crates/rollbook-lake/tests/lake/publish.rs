//! Publication: order, races, idempotence, cost.

use std::collections::BTreeSet;
use std::sync::Arc;

use async_trait::async_trait;
use rollbook_lake::{Change, Entry, ErrorKind, Intent, Lake, Outcome, Prepare, RequestCounts, Result, Snapshot};

use crate::fixture::{Fixed, Fixture, append, files, published};

#[tokio::test]
async fn entries_are_numbered_and_every_snapshot_stays_readable() {
    let fixture = Fixture::new().await;
    for n in 1..=70 {
        assert_eq!(append(&fixture.lake, &format!("r{n}"), 2, None).await, published(n));
    }
    let lake = fixture.reopen().await;
    assert_eq!(lake.snapshot().await.unwrap().table("calls").rows(), 140);
    for n in [0, 1, 31, 32, 33, 64, 69] {
        let snapshot = lake.snapshot_at(n).await.unwrap();
        assert_eq!((snapshot.n, snapshot.table("calls").rows()), (n, 2 * n), "snapshot {n}");
    }
    assert_eq!(lake.snapshot_at(71).await.unwrap_err().kind(), ErrorKind::Invalid);
    let history = lake.history(None, 3).await.unwrap();
    assert_eq!(history.iter().map(|entry| entry.n).collect::<Vec<_>>(), [70, 69, 68]);
    assert_eq!(lake.history(Some(1), 10).await.unwrap().len(), 2);
}

#[tokio::test]
async fn a_snapshot_replayed_from_a_state_equals_one_replayed_from_the_start() {
    let fixture = Fixture::new().await;
    for n in 1..=40 {
        append(&fixture.lake, &format!("r{n}"), 1, Some(&format!("sha256:{n}"))).await;
    }
    let with_state = fixture.reopen().await.snapshot().await.unwrap();
    std::fs::remove_dir_all(fixture.file("_rollbook/states")).unwrap();
    let without = fixture.reopen().await.snapshot().await.unwrap();
    assert_eq!(with_state.tables().collect::<Vec<_>>(), without.tables().collect::<Vec<_>>());
    // What the writer returned is what the log says.
    let added = with_state.table("calls").files.last().unwrap();
    let entry = fixture.lake.history(None, 1).await.unwrap().remove(0);
    assert_eq!(fixture.lake.added_files(&entry).await.unwrap()["calls"], [added.as_ref().clone()]);
    assert_eq!((added.rows, added.snapshot, added.sorted), (1, 40, true));
    assert_eq!(added.run_id, Some(("run".to_owned(), "run".to_owned())));
    assert_eq!((added.step, added.step_nulls, added.max_prompt_len), (Some((1, 1)), 0, Some(0)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn sixteen_writers_at_once_all_get_in_without_a_gap() {
    let fixture = Fixture::new().await;
    let url = fixture.url().to_owned();
    let tasks: Vec<_> = (0..16)
        .map(|task| {
            let url = url.clone();
            tokio::spawn(async move {
                let lake = Lake::open(&url, crate::fixture::options()).await.unwrap();
                for round in 0..3 {
                    let outcome = append(&lake, &format!("r{task}-{round}"), 1, None).await;
                    assert!(
                        matches!(&outcome, Outcome::Published { warnings, .. } if warnings.is_empty()),
                        "{outcome:?}"
                    );
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let lake = fixture.reopen().await;
    let snapshot = lake.snapshot().await.unwrap();
    assert_eq!((snapshot.n, snapshot.table("calls").version), (48, 48));
    assert_eq!(snapshot.table("calls").rows(), 48);
    let paths: BTreeSet<_> = snapshot.table("calls").files.iter().map(|file| &file.path).collect();
    assert_eq!(paths.len(), 48, "each file once");
    for version in 0..=48 {
        assert!(fixture.file(&format!("calls/_delta_log/{version:020}.json")).exists(), "{version}");
    }
    assert!(lake.foreign_commits(&snapshot).await.unwrap().is_empty());
}

/// Remembers what it was told.
struct Told(Vec<Change>, Vec<(u64, Vec<u64>)>);

#[async_trait]
impl Prepare for Told {
    async fn changes(&mut self, head: &Snapshot, won: &[Entry]) -> Result<Vec<Change>> {
        self.1.push((head.n, won.iter().map(|entry| entry.n).collect()));
        Ok(self.0.clone())
    }
}

#[tokio::test]
async fn a_writer_with_an_old_base_is_told_who_won() {
    let fixture = Fixture::new().await;
    let base = fixture.lake.snapshot().await.unwrap();
    append(&fixture.lake, "a", 1, None).await;
    append(&fixture.lake, "b", 1, None).await;
    let mut told = Told(files(&fixture.lake, "c", 1).await, Vec::new());
    let outcome = fixture.lake.commit(base, Intent::append("late"), &mut told).await.unwrap();
    assert_eq!(outcome, published(3));
    assert_eq!(told.1, [(0, vec![]), (2, vec![1, 2])]);
}

#[tokio::test]
async fn the_same_source_is_published_once() {
    let fixture = Fixture::new().await;
    let base = fixture.lake.snapshot().await.unwrap();
    assert_eq!(append(&fixture.lake, "a", 1, Some("sha256:same")).await, published(1));
    assert_eq!(fixture.lake.source_entry("sha256:same").await.unwrap(), Some(1));
    assert_eq!(append(&fixture.lake, "a", 1, Some("sha256:same")).await, Outcome::AlreadyIn { n: 1 });
    // The mark is gone and the base is older: the entry that won tells.
    std::fs::remove_file(fixture.file("_rollbook/sources/sha256:same")).unwrap();
    let intent = Intent { source_digest: Some("sha256:same".to_owned()), ..Intent::append("again") };
    let mut prepare = Fixed(files(&fixture.lake, "a", 1).await);
    assert_eq!(fixture.lake.commit(base, intent, &mut prepare).await.unwrap(), Outcome::AlreadyIn { n: 1 });
}

#[tokio::test]
async fn nothing_to_add_publishes_nothing() {
    let fixture = Fixture::new().await;
    let base = fixture.lake.snapshot().await.unwrap();
    let mut prepare = Fixed(vec![Change { table: "calls".to_owned(), ..Change::default() }]);
    assert_eq!(fixture.lake.commit(base, Intent::append("x"), &mut prepare).await.unwrap(), Outcome::Nothing);
    assert_eq!(fixture.lake.snapshot().await.unwrap().n, 0);
}

#[tokio::test]
async fn a_rewrite_whose_input_is_gone_is_a_conflict() {
    let fixture = Fixture::new().await;
    append(&fixture.lake, "a", 2, None).await;
    let base = fixture.lake.snapshot().await.unwrap();
    let mut rewrite = files(&fixture.lake, "a", 2).await;
    rewrite.truncate(1);
    rewrite[0].remove = vec![Arc::clone(&base.table("calls").files[0])];
    let first = fixture.lake.commit(base.clone(), Intent::rewrite("compact"), &mut Fixed(rewrite.clone())).await;
    assert_eq!(first.unwrap(), published(2));
    let snapshot = fixture.reopen().await.snapshot().await.unwrap();
    assert_eq!((snapshot.table("calls").rows(), snapshot.table("calls").files.len()), (2, 1));
    let second = fixture.lake.commit(base, Intent::rewrite("compact"), &mut Fixed(rewrite.clone())).await;
    assert_eq!(second.unwrap_err().kind(), ErrorKind::Conflict);
    let append = fixture.lake.commit(snapshot, Intent::append("x"), &mut Fixed(rewrite)).await;
    assert_eq!(append.unwrap_err().kind(), ErrorKind::Invalid);
}

#[tokio::test]
async fn large_commit_texts_go_to_blobs() {
    let fixture = Fixture::new().await;
    let mut change = files(&fixture.lake, "a", 1).await.remove(0);
    let file = change.add[0].clone();
    for copy in 0..600 {
        let mut file = file.clone();
        file.path = format!("calls/part-{copy}.parquet");
        change.add.push(file);
    }
    let base = fixture.lake.snapshot().await.unwrap();
    assert_eq!(fixture.lake.commit(base, Intent::append("x"), &mut Fixed(vec![change])).await.unwrap(), published(1));
    let lake = fixture.reopen().await;
    let entry = lake.history(None, 1).await.unwrap().remove(0);
    assert!(entry.changes["calls"].commit_text.is_none() && entry.changes["calls"].sidecar.is_some());
    assert_eq!(lake.snapshot().await.unwrap().table("calls").rows(), 601);
}

async fn cost(fixture: &Fixture, rollout: &str) -> RequestCounts {
    let lake = fixture.reopen().await;
    append(&lake, rollout, 1, None).await;
    lake.requests()
}

#[tokio::test]
async fn an_append_costs_the_same_requests_at_any_age() {
    let fixture = Fixture::new().await;
    let mut at = Vec::new();
    for n in 1..=202_u64 {
        let rollout = format!("r{n}");
        match n {
            // The same distance to the cached state before each, and no checkpoint on the way.
            10 | 106 | 202 => at.push(cost(&fixture, &rollout).await),
            _ => assert_eq!(append(&fixture.lake, &rollout, 1, None).await, published(n)),
        }
    }
    // At 10 there is no state to read yet, only entry 0 instead.
    assert_eq!(at[0].total(), at[1].total(), "{at:?}");
    assert_eq!(at[1], at[2], "{at:?}");
    assert!(fixture.file("calls/_delta_log/00000000000000000200.checkpoint.parquet").exists());
    assert!(fixture.file("calls/_delta_log/_last_checkpoint").exists());
}
