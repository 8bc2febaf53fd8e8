//! The files under `config/`.

use std::path::{Path, PathBuf};

use latchgate::config::{Config, Loaded, Sources};

use crate::support::program::latchgate;

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
    let entries = std::fs::read_dir(path("")).unwrap();
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
fn the_embedded_file_works() {
    let config = load("embedded.toml").config;
    assert_eq!(config.store.to_string(), "embedded:/var/lib/latchgate");
}

#[test]
fn the_redis_file_works() {
    let config = load("redis.toml").config;
    assert_eq!(config.store.to_string(), "redis://redis:6379/0");
}

#[test]
fn the_sentinel_file_works() {
    let config = load("sentinel.toml").config;
    assert_eq!(
        config.store.to_string(),
        "redis+sentinel://sentinel-1:26379,sentinel-2:26379,sentinel-3:26379/mymaster/0"
    );
    assert_eq!(config.redis.wait_replicas, 1);
}

#[test]
fn the_cluster_file_works() {
    let config = load("cluster.toml").config;
    assert_eq!(
        config.store.to_string(),
        "redis+cluster://redis-1:6379,redis-2:6379,redis-3:6379"
    );
    assert_eq!(config.redis.wait_replicas, 1);
}

#[test]
fn the_redlock_file_works() {
    let config = load("redlock.toml").config;
    assert_eq!(
        config.store.to_string(),
        "redlock://redis-1:6379,redis-2:6379,redis-3:6379/0"
    );
    assert_eq!(config.limits.max_ttl_ms, config.redlock.max_ttl_ms);
    assert!(!config.redlock.vote_at_once);
}

/// A file with its lines for other machines, and a keys file that is there.
#[test]
fn every_file_can_be_opened_to_other_machines() {
    let directory = tempfile::tempdir().unwrap();
    let keys = directory.path().join("keys.toml");
    let new = [
        "key",
        "new",
        "--name",
        "a",
        "--append",
        keys.to_str().unwrap(),
    ];
    assert_eq!(latchgate(&new).read().code, Some(0));
    for name in [
        "redis.toml",
        "sentinel.toml",
        "cluster.toml",
        "redlock.toml",
    ] {
        let text = std::fs::read_to_string(path(name)).unwrap();
        let opened = text
            .replace("#listen", "listen")
            .replace("#[auth]", "[auth]")
            .replace("#keys_file", "keys_file")
            .replace("/etc/latchgate/keys.toml", keys.to_str().unwrap());
        let file = directory.path().join(name);
        std::fs::write(&file, opened).unwrap();
        let ran = latchgate(&["config", "check", file.to_str().unwrap()]).read();
        assert_eq!(ran.code, Some(0), "{name}: {ran:?}");
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
            let ran = latchgate(arguments).read();
            assert_eq!(ran.code, Some(0), "{arguments:?}: {ran:?}");
            assert!(ran.out.starts_with("the configuration is valid; it sets"));
        }
    }
}

#[test]
fn every_file_has_a_test() {
    assert_eq!(
        names(),
        [
            "cluster.toml",
            "embedded.toml",
            "latchgate.toml",
            "redis.toml",
            "redlock.toml",
            "sentinel.toml"
        ]
    );
}
