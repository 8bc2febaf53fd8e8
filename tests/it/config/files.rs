//! The files under `config/`, and the order of default, file, environment and flag: later ones win.

use std::{
    fs,
    path::{Path, PathBuf},
};

use latchgate::config::{Config, Loaded, Millis, Source, Sources};

use crate::support::{
    program::{latchgate, typed},
    words,
};

fn load(name: &str) -> Loaded {
    let sources = Sources {
        file: Some(path(name)),
        ..Sources::default()
    };
    sources.load().unwrap()
}

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("config")
        .join(name)
}

fn names() -> Vec<String> {
    let entries = fs::read_dir(path("")).unwrap();
    let mut names: Vec<_> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

fn shown(config: &Config) -> serde_json::Value {
    serde_json::to_value(config).unwrap()
}

#[test]
fn the_file_with_every_key_is_the_same_as_no_file() {
    let loaded = load("latchgate.toml");
    assert_eq!(shown(&loaded.config), shown(&Config::default()));
    assert_eq!(loaded.set.len(), latchgate::config::Key::all().len());
}

#[test]
fn every_other_file_leads_to_its_store() {
    let all = [
        (
            "cluster.toml",
            "redis+cluster://redis-1:6379,redis-2:6379,redis-3:6379",
            1,
        ),
        ("embedded.toml", "embedded:/var/lib/latchgate", 0),
        ("redis.toml", "redis://redis:6379/0", 0),
        (
            "redlock.toml",
            "redlock://redis-1:6379,redis-2:6379,redis-3:6379/0",
            0,
        ),
        (
            "sentinel.toml",
            "redis+sentinel://sentinel-1:26379,sentinel-2:26379,sentinel-3:26379/mymaster/0",
            1,
        ),
    ];
    for (name, store, wait_replicas) in all {
        let config = load(name).config;
        assert_eq!(config.store.to_string(), store, "{name}");
        assert_eq!(config.redis.wait_replicas, wait_replicas, "{name}");
    }
    let others = names().into_iter().filter(|name| name != "latchgate.toml");
    assert!(others.eq(all.map(|(name, ..)| name)));
    let config = load("redlock.toml").config;
    assert_eq!(config.limits.max_ttl_ms, config.redlock.max_ttl_ms);
    assert!(!config.redlock.vote_at_once);
}

/// A file with its lines for other machines, and with a keys file that exists.
#[test]
fn every_file_can_be_opened_to_other_machines() {
    let directory = tempfile::tempdir().unwrap();
    let keys = directory.path().join("keys.toml");
    typed(&format!("key new --name a --append {}", keys.display())).ends(0);
    for name in words("redis.toml sentinel.toml cluster.toml redlock.toml") {
        let text = fs::read_to_string(path(name)).unwrap();
        let opened = text
            .replace("#listen", "listen")
            .replace("#[auth]", "[auth]")
            .replace("#keys_file", "keys_file")
            .replace("/etc/latchgate/keys.toml", keys.to_str().unwrap());
        let file = directory.path().join(name);
        fs::write(&file, opened).unwrap();
        let ran = typed(&format!("config check {}", file.to_str().unwrap())).ends(0);
        assert!(ran.out.contains("  listen = \"0.0.0.0:7420\""), "{ran:?}");
        assert!(ran.out.contains("  auth.keys_file = "), "{ran:?}");
    }
}

#[test]
fn every_file_passes_the_check_as_it_is() {
    for name in names() {
        for arguments in [
            &["config", "check", "--config", path(&name).to_str().unwrap()][..],
            &["config", "check", path(&name).to_str().unwrap()],
        ] {
            let ran = latchgate(arguments).ends(0);
            assert!(ran.out.starts_with("the configuration is valid; it sets"));
        }
    }
}

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
