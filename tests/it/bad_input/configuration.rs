//! Configuration files in which a value is of the wrong kind: each is refused, and says which key it is.

use std::{collections::BTreeSet, fs};

use tempfile::TempDir;

use crate::support::program::latchgate;

use super::{bench::PLANTED, sample::sample};

/// Values of kinds that no key takes: each key takes a text, a number, a yes or no, or a list of texts.
const WRONG: [&str; 6] = [
    "{ a = 1 }",
    "[[1]]",
    "1.5",
    "-1",
    "1979-05-27",
    "[{ a = 'b' }]",
];
/// Files that are none.
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

/// Every key with the table that it stands in, as the file of all defaults lists them.
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

/// That a file is refused with a text for people, which names all these.
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
        // Each key two of them, and all of them by turns.
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
