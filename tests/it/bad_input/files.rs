//! Damaged files of the embedded store, and configuration files with values of the wrong type.

use std::{collections::BTreeSet, fs};

use latchgate::store::{
    Store,
    embedded::{EmbeddedStore, OpenError},
};
use tempfile::TempDir;

use super::bench::{PLANTED, sample};
use crate::{
    embedded::place::{data_file, open, take, with_log},
    support::{Random, full, program::latchgate},
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

    /// Opens a store whose log has these bytes. Answers whether it was refused.
    async fn is_refused(bytes: &[u8], what: &str) -> bool {
        let directory = with_log(bytes);
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
    // The used part of the log, and the bytes that show its end.
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

/// Values of kinds that no key takes: each key takes a text, a number, a yes or no, or a list of texts.
const WRONG: [&str; 6] = [
    "{ a = 1 }",
    "[[1]]",
    "1.5",
    "-1",
    "1979-05-27",
    "[{ a = 'b' }]",
];
/// Contents that are not configuration files.
const NO_FILES: [&[u8]; 12] = [
    b"\xff\xfe",
    b"\0",
    b"listen",
    b"listen = ",
    b"listen = 'a",
    b"listen = '127.0.0.1:0'\nlisten = '127.0.0.1:0'",
    b"[http\n",
    b"[[http]]\n",
    b"[no_such_table]\nx = 1",
    b"no_such_key = 1",
    b"http = 1",
    b"[http.tls.cert_file]\nx = 1",
];

/// Every key with its table, as the file of all defaults lists them.
fn keys() -> Vec<(String, String)> {
    let defaults = include_str!("../../../config/latchgate.toml");
    let (mut table, mut keys) = (String::new(), Vec::new());
    for line in defaults.lines() {
        if let Some(name) = line
            .strip_prefix('[')
            .and_then(|line| line.strip_suffix(']'))
        {
            name.clone_into(&mut table);
        } else if let Some((key, _)) = line.split_once(" = ").filter(|_| !line.starts_with('#')) {
            keys.push((table.clone(), key.to_owned()));
        }
    }
    keys
}

/// Asserts that a file is refused with a readable text that contains all of these names.
fn is_refused(directory: &TempDir, text: &[u8], names: &[&str]) -> String {
    let path = directory.path().join("latchgate.toml");
    fs::write(&path, text).unwrap();
    let checked = latchgate(&["config", "check", "--config", path.to_str().unwrap()]).read();
    let shown = text.escape_ascii();
    assert!(
        matches!(checked.code, Some(1..=100)),
        "{shown}: {checked:?}"
    );
    assert!(!checked.err.contains("panicked"), "{shown}: {checked:?}");
    for name in names {
        assert!(checked.err.contains(name), "{shown}: {checked:?}");
    }
    checked.out + &checked.err
}

#[test]
fn no_key_takes_a_value_of_another_kind() {
    let directory = tempfile::tempdir().unwrap();
    let keys = keys();
    let tables: BTreeSet<_> = keys.iter().map(|(table, _)| table).collect();
    assert!(keys.len() > 60 && tables.len() > 10, "{keys:?}");
    let numbered = keys.into_iter().enumerate().collect();
    for (number, (table, key)) in &sample(numbered, 3) {
        // Two wrong values for each key, so that all values have their turn.
        for value in [
            WRONG[number % WRONG.len()],
            WRONG[(number + 1) % WRONG.len()],
        ] {
            let header = if table.is_empty() {
                String::new()
            } else {
                format!("[{table}]\n")
            };
            let text = format!("{header}{key} = {value}\n");
            is_refused(&directory, text.as_bytes(), &[key]);
        }
    }
}

#[test]
fn a_password_in_the_wrong_place_is_not_repeated() {
    let directory = tempfile::tempdir().unwrap();
    let url = format!("redis://user:{PLANTED}@localhost");
    for text in [
        format!("store = ['{url}']"),
        format!("store = {{ url = '{url}' }}"),
        format!("store = '{url}:x'"),
        format!("store = '{url}/x/y'"),
        format!("stores = '{url}'"),
        format!("[redis]\nurl = '{url}'"),
        format!("[trace]\nendpoint = 'http://user:{PLANTED}@localhost'"),
        format!("[trace]\nendpoint = ['http://user:{PLANTED}@localhost']"),
        format!("store = '{url}"),
    ] {
        let told = is_refused(&directory, text.as_bytes(), &[]);
        assert!(!told.contains(PLANTED), "{told}");
    }
}

#[test]
fn no_file_is_read_that_is_none() {
    let directory = tempfile::tempdir().unwrap();
    for text in NO_FILES {
        is_refused(&directory, text, &[]);
    }
}
