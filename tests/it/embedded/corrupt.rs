//! Files that are not as they should be: a clear error at start-up, never a panic, never a store
//! that has silently forgotten what was held.

use std::fs;

use latchgate::store::embedded::OpenError;
use tempfile::TempDir;

use super::place::{data_file, open, take, with_log};
use crate::support::prelude::*;

const LOCKS: usize = 50;

#[tokio::test]
async fn a_file_that_is_cut_is_refused() {
    let sound = sound_log().await;
    let used = sound.iter().rposition(|&byte| byte != 0).unwrap();
    for len in [0, 1, 23, 24, 25, 64, 319, 4095, used / 2, used, used + 7] {
        let (directory, _path) = with_log(&sound[..len]);
        let refused = open(directory.path()).map(|_| ());
        let is_corrupt = matches!(refused, Err(OpenError::Corrupt { .. }));
        assert!(is_corrupt, "{len} bytes: {refused:?}");
    }
    let (directory, _path) = with_log(&sound);
    assert!(open(directory.path()).is_ok());
}

#[tokio::test]
async fn a_file_of_somebody_else_is_refused_and_not_touched() {
    let foreign = b"SQLite format 3\0".repeat(1000);
    let (directory, path) = with_log(&foreign);
    let refused = open(directory.path()).unwrap_err();
    assert!(matches!(refused, OpenError::Corrupt { .. }), "{refused:?}");
    let text = refused.to_string();
    assert!(text.contains("latchgate.00000001.log"), "{text}");
    assert!(text.contains("restore a backup"), "{text}");
    assert_eq!(fs::read(&path).unwrap(), foreign);
}

#[tokio::test]
async fn a_damaged_file_is_refused_or_still_holds_every_lock() {
    let sound = sound_log().await;
    let mut random = Random::seeded();
    let used = 1 + sound.iter().rposition(|&byte| byte != 0).unwrap();
    let mut refused = 0;
    for _ in 0..60 {
        let mut damaged = sound.clone();
        for _ in 0..=random.below(8) {
            let at = random.below(used);
            damaged[at] ^= 1 << random.below(8);
        }
        let (directory, _path) = with_log(&damaged);
        match open(directory.path()) {
            Ok(store) => {
                // Only what no row uses was damaged.
                let repeat = random.how_to_repeat();
                for lock in 0..LOCKS {
                    let name = format!("lock:{lock}").parse().unwrap();
                    let shown = store.inspect(&name).await.unwrap();
                    let held = shown.holder.is_some();
                    assert!(held, "{name} was forgotten, {repeat}");
                }
                store.close().await;
            }
            Err(error) => {
                refused += 1;
                let is_corrupt = matches!(
                    error,
                    OpenError::Corrupt { .. } | OpenError::NewerLayout { .. }
                );
                assert!(is_corrupt, "{error:?}, {}", random.how_to_repeat());
            }
        }
    }
    assert!(refused > 0, "no damage was ever noticed");
}

#[tokio::test]
async fn a_draft_that_a_crash_left_behind_is_no_obstacle() {
    let directory = TempDir::new().unwrap();
    fs::write(directory.path().join("latchgate.log.new"), b"half of a ").unwrap();
    let store = open(directory.path()).unwrap();
    take(&store, 1).await;
    store.close().await;
    assert!(!directory.path().join("latchgate.log.new").exists());
}

/// The log of a store that was closed in good order.
async fn sound_log() -> Vec<u8> {
    let directory = TempDir::new().unwrap();
    let store = open(directory.path()).unwrap();
    take(&store, LOCKS).await;
    store.close().await;
    fs::read(data_file(directory.path())).unwrap()
}
