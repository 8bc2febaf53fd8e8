//! Default, file, environment, flag: the later wins.

use std::fs;

use latchgate::config::{Millis, Source, Sources};

fn variables(list: &[(&str, &str)]) -> Vec<(std::ffi::OsString, std::ffi::OsString)> {
    list.iter()
        .map(|(name, value)| (name.into(), value.into()))
        .collect()
}

#[test]
fn a_flag_beats_the_environment_which_beats_the_file_which_beats_the_default() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("lg.toml");
    fs::write(
        &file,
        "listen = '127.0.0.1:1'\nstore = 'embedded:file'\n[limits]\nmin_ttl_ms = 200\nmax_ttl_ms = 60_000\n",
    )
    .unwrap();
    let sources = Sources {
        variables: variables(&[
            ("LATCHGATE_STORE", "embedded:environment"),
            ("LATCHGATE_LISTEN", "127.0.0.1:2"),
            ("LATCHGATE_LIMITS_MIN_TTL_MS", "300"),
        ]),
        file: Some(file.clone()),
        flags: vec![("listen", "--listen", "127.0.0.1:3".to_owned())],
    };
    let loaded = sources.load().unwrap();
    let config = loaded.config;
    assert_eq!(config.listen.port(), 3);
    assert_eq!(config.store.to_string(), "embedded:environment");
    assert_eq!(config.limits.min_ttl_ms, Millis(300));
    assert_eq!(config.limits.max_ttl_ms, Millis(60_000));
    assert_eq!(config.limits.default_ttl_ms, Millis(30_000));
    let line_5 = Source::File {
        path: file,
        line: 5,
    };
    assert!(
        loaded
            .set
            .contains(&("limits.max_ttl_ms".to_owned(), "60000".to_owned(), line_5))
    );
    assert_eq!(loaded.set[0].2, Source::Flag("--listen"));
}

#[test]
fn the_environment_may_name_the_file_and_the_flag_beats_it() {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, port: u16| {
        let path = directory.path().join(name);
        fs::write(&path, format!("listen = '127.0.0.1:{port}'")).unwrap();
        path
    };
    let (a, b) = (write("a", 1), write("b", 2));
    let named = variables(&[("LATCHGATE_CONFIG", a.to_str().unwrap())]);
    let mut sources = Sources {
        variables: named,
        ..Sources::default()
    };
    assert_eq!(sources.load().unwrap().config.listen.port(), 1);
    sources.file = Some(b);
    assert_eq!(sources.load().unwrap().config.listen.port(), 2);
}

#[test]
fn every_key_can_be_set_by_its_variable() {
    for key in latchgate::config::Key::all() {
        let value = key.default.trim_matches(['"', '[', ']']);
        let sources = Sources {
            variables: variables(&[(&key.variable(), value)]),
            ..Sources::default()
        };
        let loaded = sources.load().unwrap();
        assert_eq!(loaded.set.len(), 1, "{}", key.path);
        assert_eq!(loaded.set[0].2, Source::Variable(key.variable()));
    }
}
