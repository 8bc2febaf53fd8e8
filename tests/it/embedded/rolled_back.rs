//! A file whose last transaction is damaged: what it held before is found, and somebody is told.

use std::fs;

use tempfile::TempDir;

use super::place::{data_file, open, open_again, take, with_log};
use crate::{api::fixture::Lines, support::prelude::*};

const LOCKS: usize = 20;

/// Damages what is used of the file, a byte at a time.
fn damaged(sound: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    let used = sound.iter().rposition(|&byte| byte != 0).unwrap();
    (0..=used).rev().step_by(97).map(|at| {
        let mut damaged = sound.to_vec();
        damaged[at] ^= 0xff;
        damaged
    })
}

#[tokio::test]
async fn nothing_is_forgotten_without_a_word() {
    let directory = TempDir::new().unwrap();
    let store = open(directory.path()).unwrap();
    take(&store, LOCKS).await;
    // As `kill -9` would leave it.
    let killed = fs::read(data_file(directory.path())).unwrap();
    store.close().await;
    let (mut rolled_back, mut refused) = (0, 0);
    for damaged in damaged(&killed) {
        let (directory, _path) = with_log(&damaged);
        let lines = Lines::default();
        let collecting = lines.collect();
        let opened = open_again(directory.path()).await;
        drop(collecting);
        let Ok(store) = opened else {
            refused += 1;
            continue;
        };
        let said = lines.read().contains("is rolled back");
        rolled_back += usize::from(said);
        for lock in 0..LOCKS {
            let name = format!("lock:{lock}").parse().unwrap();
            let held = store.inspect(&name).await.unwrap().holder.is_some();
            // Only the last transaction is given up.
            assert!(held || said && lock == LOCKS - 1, "{name} was forgotten");
        }
        store.close().await;
    }
    assert!(
        rolled_back > 0 && refused > rolled_back,
        "{rolled_back}, {refused}"
    );

    let (directory, _path) = with_log(&killed);
    let lines = Lines::default();
    let collecting = lines.collect();
    let store = open_again(directory.path()).await.unwrap();
    drop(collecting);
    assert!(!lines.read().contains("WARN"), "{}", lines.read());
    store.close().await;
}
