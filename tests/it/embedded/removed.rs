//! A data directory that is removed or replaced while its gateway runs.

use std::{fs, path::Path};

use latchgate::store::embedded::EmbeddedStore;
use tempfile::TempDir;

use super::place::{attempt, data_file, open, open_again, take};
use crate::support::prelude::*;

/// Waits until the store refuses an acquire. Answers the reason.
async fn refused(store: &EmbeddedStore) -> String {
    eventually("it is noticed", async || {
        match store.acquire(&attempt("other")).await {
            Err(StoreError::Unavailable(Unavailability::Disk(why))) => Some(why),
            _ => None,
        }
    })
    .await
}

/// Waits until the check reports the mistake without an acquire. Answers the reason.
async fn is_misconfigured(store: &EmbeddedStore) -> String {
    eventually("the check says so", async || {
        match store.check().await.remove(0).health {
            Health::Misconfigured(why) => Some(why),
            _ => None,
        }
    })
    .await
}

fn moved(from: &Path, to: &Path) {
    fs::rename(from, to).unwrap();
}

#[tokio::test]
async fn nothing_is_granted_until_it_is_back() {
    let parent = TempDir::new().unwrap();
    let (here, away) = (parent.path().join("data"), parent.path().join("away"));
    let store = open(&here).unwrap();
    take(&store, 1).await;
    moved(&here, &away);
    let why = is_misconfigured(&store).await;
    assert!(why.contains("was removed"), "{why}");
    // The text helps an operator who moved the directory, and one who deleted it.
    for what in ["move it back", "deleted, start the gateway again"] {
        assert!(why.contains(what), "{why}");
    }
    assert_eq!(refused(&store).await, why);
    // Earlier grants are still known.
    let shown = store.inspect(&"lock:0".parse().unwrap()).await.unwrap();
    assert!(shown.holder.is_some());

    moved(&away, &here);
    eventually("it is taken up again", async || {
        store.acquire(&attempt("back")).await.ok()
    })
    .await;
    let health = store.check().await.remove(0).health;
    assert_eq!(health, Health::Passing);
    store.close().await;
}

#[tokio::test]
async fn a_file_in_its_place_is_neither_read_nor_written() {
    let parent = TempDir::new().unwrap();
    let here = parent.path().join("data");
    let store = open(&here).unwrap();
    take(&store, 1).await;
    let file = data_file(&here);
    // A backup is restored under the running store.
    let backup = fs::read(&file).unwrap();
    fs::remove_file(&file).unwrap();
    fs::write(&file, &backup).unwrap();
    let why = refused(&store).await;
    assert!(why.contains("was replaced"), "{why}");
    store.close().await;
    assert_eq!(fs::read(&file).unwrap(), backup);
}

#[tokio::test]
async fn a_log_that_is_truncated_is_written_anew() {
    let directory = TempDir::new().unwrap();
    let store = open(directory.path()).unwrap();
    take(&store, 5).await;
    let before = data_file(directory.path());
    // As `copytruncate` does with a file that it takes for a text log.
    fs::File::options()
        .write(true)
        .open(&before)
        .unwrap()
        .set_len(0)
        .unwrap();
    until("another file is there", async || {
        data_file(directory.path()) != before
    })
    .await;
    store.acquire(&attempt("later")).await.unwrap();
    store.close().await;
    drop(store);
    let store = open_again(directory.path()).await.unwrap();
    for lock in ["lock:0", "lock:4", "later"] {
        let shown = store.inspect(&lock.parse().unwrap()).await.unwrap();
        assert!(shown.holder.is_some(), "{lock} was forgotten");
    }
    store.close().await;
}

#[tokio::test]
async fn a_directory_made_anew_belongs_to_whoever_takes_it() {
    let parent = TempDir::new().unwrap();
    let here = parent.path().join("data");
    let first = open(&here).unwrap();
    fs::remove_dir_all(&here).unwrap();
    let second = open(&here).unwrap();
    take(&second, 1).await;
    second.close().await;
    // The replacement is also noticed when no process has the file open any more.
    let why = refused(&first).await;
    assert!(why.contains("was replaced"), "{why}");
    first.close().await;
}
