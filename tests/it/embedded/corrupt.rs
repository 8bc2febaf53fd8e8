//! Files that are not as they should be: a clear error at start-up, never a panic, never a store
//! that has silently forgotten what was held.

use std::{fs, path::PathBuf};

use latchgate::store::{Store, embedded::OpenError};
use tempfile::TempDir;

use super::place::{data_file, open, open_again, take};
use crate::support::Random;

const LOCKS: usize = 50;

#[tokio::test]
async fn a_file_that_is_cut_is_refused() {
    let (directory, path, sound) = sound_file().await;
    let used = sound.iter().rposition(|&byte| byte != 0).unwrap();
    for len in [0, 1, 23, 24, 25, 64, 319, 4095, used / 2, used, used + 7] {
        fs::write(&path, &sound[..len]).unwrap();
        let refused = open_again(directory.path()).await.map(|_| ());
        let is_corrupt = matches!(refused, Err(OpenError::Corrupt { .. }));
        assert!(is_corrupt, "{len} bytes: {refused:?}");
    }
    fs::write(&path, &sound).unwrap();
    assert!(open_again(directory.path()).await.is_ok());
}

#[tokio::test]
async fn a_file_of_somebody_else_is_refused_and_not_touched() {
    let (directory, path, _sound) = sound_file().await;
    let foreign = b"SQLite format 3\0".repeat(1000);
    fs::write(&path, &foreign).unwrap();
    let refused = open_again(directory.path()).await.unwrap_err();
    assert!(matches!(refused, OpenError::Corrupt { .. }), "{refused:?}");
    let text = refused.to_string();
    assert!(text.contains("latchgate.00000001.log"), "{text}");
    assert!(text.contains("restore it from a backup"), "{text}");
    assert_eq!(fs::read(&path).unwrap(), foreign);
}

#[tokio::test]
async fn a_damaged_file_is_refused_or_still_holds_every_lock() {
    let (directory, path, sound) = sound_file().await;
    let mut random = Random::seeded();
    let used = 1 + sound.iter().rposition(|&byte| byte != 0).unwrap();
    let mut refused = 0;
    for _ in 0..60 {
        let mut damaged = sound.clone();
        for _ in 0..=random.below(8) {
            let at = random.below(used);
            damaged[at] ^= 1 << random.below(8);
        }
        fs::write(&path, &damaged).unwrap();
        match open_again(directory.path()).await {
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

async fn sound_file() -> (TempDir, PathBuf, Vec<u8>) {
    let directory = TempDir::new().unwrap();
    let store = open(directory.path()).unwrap();
    take(&store, LOCKS).await;
    store.close().await;
    let path = data_file(directory.path());
    let sound = fs::read(&path).unwrap();
    (directory, path, sound)
}
