//! Files that are no files: devices, pipes, directories, and what is too long.

use std::{fs, path::Path};

use rustix::fs::{CWD, FileType, Mode, mknodat};

use super::key_fixture::{File, Made, inspect, soon};
use crate::support::program::{Run, latchgate};

/// Makes a pipe to which nobody writes.
fn pipe(path: &Path) {
    mknodat(CWD, path, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
}

/// What is said of a file that is none, by the kind of it.
fn refusals(directory: &Path) -> [(String, &'static str); 4] {
    let path = |name: &str| directory.join(name).display().to_string();
    if !directory.join("pipe").exists() {
        pipe(&directory.join("pipe"));
        fs::write(directory.join("long"), vec![b'#'; 5 * 1024 * 1024]).unwrap();
    }
    [
        ("/dev/zero".to_owned(), "a device, not a regular file"),
        (path("pipe"), "a pipe (as /dev/stdin and <(..) may be), not"),
        (path(""), "a directory, not a regular file"),
        (path("long"), "is longer than "),
    ]
}

#[test]
fn whatever_has_no_end_is_named_and_stops_the_start() {
    let directory = tempfile::tempdir().unwrap();
    let certificate = [
        "LATCHGATE_HTTP_TLS_CERT_FILE",
        "LATCHGATE_HTTP_TLS_KEY_FILE",
    ];
    for (path, reason) in refusals(directory.path()) {
        for (variables, store) in [
            (&["LATCHGATE_CONFIG"][..], "embedded:data"),
            (&["LATCHGATE_AUTH_KEYS_FILE"], "embedded:data"),
            (&certificate, "embedded:data"),
            (&["LATCHGATE_REDIS_PASSWORD_FILE"], "redis://127.0.0.1:1"),
            (&["LATCHGATE_REDIS_TLS_CA_FILE"], "rediss://127.0.0.1:1"),
            (&["LATCHGATE_TRACE_HEADERS_FILE"], "embedded:data"),
        ] {
            let set = |run: Run, variable: &&str| run.env(variable, &path);
            let check = latchgate(&["config", "check"])
                .env("LATCHGATE_STORE", store)
                .env("LATCHGATE_TRACE_ENDPOINT", "http://127.0.0.1:1");
            let ran = variables.iter().fold(check, set).read();
            assert_eq!(ran.code, Some(2), "{variables:?} {path}: {ran:?}");
            assert!(
                ran.err.contains(&path) && ran.err.contains(reason),
                "{variables:?} {path}: {ran:?}"
            );
        }
    }
}

#[test]
fn what_starts_and_what_calls_reads_no_such_file_either() {
    let directory = tempfile::tempdir().unwrap();
    for (path, reason) in refusals(directory.path()) {
        for arguments in [
            &["serve", "--listen", "127.0.0.1:0", "--config", &path][..],
            &["key", "list", "--keys", &path],
            &[
                "inspect",
                "a",
                "--url",
                "https://127.0.0.1:1",
                "--ca-file",
                &path,
            ],
        ] {
            let ran = latchgate(arguments).read();
            assert_eq!(ran.code, Some(2), "{arguments:?}: {ran:?}");
            assert!(
                ran.err.contains(&path) && ran.err.contains(reason),
                "{arguments:?}: {ran:?}"
            );
        }
    }
}

#[test]
fn a_pipe_at_standard_input_is_not_read() {
    let check = latchgate(&["config", "check", "--config", "/dev/stdin"]);
    let piped = check.input("log.level = \"warn\"\n").read();
    assert_eq!(piped.code, Some(2), "{piped:?}");
    assert!(piped.err.contains("/dev/stdin"), "{piped:?}");
    assert!(piped.err.contains("a pipe (as /dev/stdin"), "{piped:?}");
}

#[test]
fn keys_go_on_when_a_pipe_or_a_device_takes_the_place_of_their_file() {
    let key = Made::new("ci", &["--view", "*"]);
    let file = File::new(&key.toml);
    let gateway = file.gateway();
    let new = file.path.with_extension("new");
    for count in 1..=2 {
        if count == 1 {
            pipe(&new);
        } else {
            std::os::unix::fs::symlink("/dev/zero", &new).unwrap();
        }
        fs::rename(&new, &file.path).unwrap();
        soon("the file is refused", || {
            gateway
                .log()
                .matches("the keys file cannot be used")
                .count()
                == count
        });
        assert_eq!(inspect(&gateway, "a", &key.key).code, Some(0));
    }
    let another = Made::new("ci", &["--view", "*"]);
    file.write(&another.toml);
    soon("the file is read again", || {
        inspect(&gateway, "a", &another.key).code == Some(0)
    });
}
