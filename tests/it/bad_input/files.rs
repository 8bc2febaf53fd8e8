//! Embedded files that were damaged: refused with a clear error, or every lock is held as before.

use std::fs;

use latchgate::store::{Store, embedded::EmbeddedStore, embedded::OpenError};
use tempfile::TempDir;

use crate::{
    embedded::place::{data_file, open, take, with_log},
    support::{Random, full},
};

const LOCKS: usize = 3;

struct Sound {
    bytes: Vec<u8>,
}

// === impl Sound ===

impl Sound {
    async fn file() -> Self {
        let directory = TempDir::new().unwrap();
        let store = open(directory.path()).unwrap();
        take(&store, LOCKS).await;
        store.close().await;
        let bytes = fs::read(data_file(directory.path())).unwrap();
        Self { bytes }
    }

    /// Opens a log with these bytes; whether it was refused.
    async fn is_refused(bytes: &[u8], what: &str) -> bool {
        let (directory, _path) = with_log(bytes);
        match open(directory.path()) {
            Ok(store) => {
                holds_everything(&store, what).await;
                store.close().await;
                false
            }
            Err(OpenError::Corrupt { .. } | OpenError::NewerLayout { .. }) => true,
            Err(other) => panic!("{what}: {other:?}"),
        }
    }
}

async fn holds_everything(store: &EmbeddedStore, what: &str) {
    for lock in 0..LOCKS {
        let name = format!("lock:{lock}").parse().unwrap();
        let shown = store.inspect(&name).await.unwrap();
        assert!(shown.holder.is_some(), "{what}: {name} was forgotten");
    }
}

#[tokio::test]
async fn a_file_with_a_flipped_byte_is_refused_or_holds_what_it_held() {
    let sound = Sound::file().await;
    let random = &mut Random::seeded();
    let used: Vec<_> = (0..sound.bytes.len())
        .filter(|&at| sound.bytes[at] != 0)
        .collect();
    let step = 1 + used.len() / if full() { 3_000 } else { 100 };
    let (mut refused, mut cases) = (0, 0);
    for &at in used.iter().skip(random.below(step)).step_by(step) {
        let mut damaged = sound.bytes.clone();
        damaged[at] ^= 1 << random.below(8);
        let what = format!("byte {at}, {}", random.how_to_repeat());
        refused += usize::from(Sound::is_refused(&damaged, &what).await);
        cases += 1;
    }
    println!("{refused} of {cases} were refused");
    assert!(refused > 0, "no damage was noticed");
    assert!(!Sound::is_refused(&sound.bytes, "as it was").await);
}

#[tokio::test]
async fn a_file_of_which_a_piece_is_missing_is_refused_or_holds_what_it_held() {
    let sound = Sound::file().await;
    // What is used of it, and what says that nothing follows.
    let length = 9 + sound.bytes.iter().rposition(|&byte| byte != 0).unwrap();
    let random = &mut Random::seeded();
    let step = if full() { 1 } else { 1 + length / 30 };
    let mut cases = 0;
    for len in (random.below(step)..length).step_by(step) {
        let what = format!("{len} of {length} bytes, {}", random.how_to_repeat());
        Sound::is_refused(&sound.bytes[..len], &what).await;
        // A sector that was never written.
        let mut hole = sound.bytes.clone();
        hole[len..length.min(len + 512)].fill(0);
        Sound::is_refused(&hole, &format!("a hole, {what}")).await;
        cases += 2;
    }
    println!("{cases} cases");
}
