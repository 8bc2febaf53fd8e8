//! A file whose last transaction is damaged: what it held before is found, and somebody is told.

use std::fs;

use latchgate::store::Store;
use tempfile::TempDir;

use super::place::{open, open_again, take};
use crate::{api::lines::Lines, support::program::latchgate};

const LOCKS: usize = 20;
const PAGE: usize = 4096;

/// Damages each page in turn, a few bytes behind its beginning.
fn damaged(sound: &[u8], at: usize) -> impl Iterator<Item = Vec<u8>> {
    let used = |page: &usize| sound[*page..][..PAGE].iter().any(|&byte| byte != 0);
    let pages = (0..sound.len()).step_by(PAGE).filter(used);
    pages.map(move |page| {
        let mut damaged = sound.to_vec();
        damaged[page + at] ^= 0xff;
        damaged
    })
}

#[tokio::test]
async fn nothing_is_forgotten_without_a_word() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("latchgate.redb");
    let store = open(directory.path()).unwrap();
    take(&store, LOCKS).await;
    // As `kill -9` would leave it.
    let killed = fs::read(&path).unwrap();
    store.close().await;
    let mut rolled_back = 0;
    for damaged in damaged(&killed, 100) {
        fs::write(&path, damaged).unwrap();
        let lines = Lines::default();
        let collecting = lines.collect();
        let opened = open_again(directory.path()).await;
        drop(collecting);
        let Ok(store) = opened else { continue };
        let said = lines.read().contains("is rolled back");
        rolled_back += usize::from(said);
        for lock in 0..LOCKS {
            let name = format!("lock:{lock}").parse().unwrap();
            let held = store.inspect(&name).await.unwrap().holder.is_some();
            assert!(held || said, "{name} was forgotten");
        }
        store.close().await;
    }
    assert!(rolled_back > 0, "no damage was ever noticed");

    fs::write(&path, killed).unwrap();
    let lines = Lines::default();
    let collecting = lines.collect();
    let store = open_again(directory.path()).await.unwrap();
    drop(collecting);
    assert!(!lines.read().contains("WARN"), "{}", lines.read());
    store.close().await;
}

#[tokio::test]
async fn a_database_that_panics_over_its_file_is_a_start_that_fails() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("latchgate.redb");
    let store = open(directory.path()).unwrap();
    take(&store, LOCKS).await;
    store.close().await;
    let closed = fs::read(&path).unwrap();
    let url = format!("embedded:{}", directory.path().display());
    let mut panicked = 0;
    for damaged in damaged(&closed, 5) {
        fs::write(&path, &damaged).unwrap();
        if open(directory.path()).is_ok() {
            continue;
        }
        fs::write(&path, &damaged).unwrap();
        let ran = latchgate(&["serve", "--listen", "127.0.0.1:0", "--store", &url])
            .env("LATCHGATE_LOG_LEVEL", "warn")
            .read();
        assert_eq!(ran.code, Some(111), "{ran:?}");
        assert!(!ran.err.contains("panic"), "{ran:?}");
        assert_eq!(ran.err.lines().count(), 1, "{ran:?}");
        panicked += usize::from(ran.err.contains("stumbled over"));
    }
    assert!(panicked > 0, "the database never panicked");
}
