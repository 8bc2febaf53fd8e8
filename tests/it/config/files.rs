//! The files under `config/`.

use std::path::{Path, PathBuf};

use latchgate::config::{Config, Loaded, Sources};

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
    assert_eq!(config.auth.keys_file, "/etc/latchgate/keys.toml");
    assert!(!config.insecure_no_auth);
}

#[test]
fn the_sentinel_file_works() {
    let config = load("sentinel.toml").config;
    assert_eq!(
        config.store.to_string(),
        "redis+sentinel://sentinel-1:26379,sentinel-2:26379,sentinel-3:26379/mymaster/0"
    );
    assert_eq!(config.redis.wait_replicas, 1);
    assert_eq!(config.auth.keys_file, "/etc/latchgate/keys.toml");
}

#[test]
fn the_cluster_file_works() {
    let config = load("cluster.toml").config;
    assert_eq!(
        config.store.to_string(),
        "redis+cluster://redis-1:6379,redis-2:6379,redis-3:6379"
    );
    assert_eq!(config.redis.wait_replicas, 1);
    assert_eq!(config.auth.keys_file, "/etc/latchgate/keys.toml");
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
    assert_eq!(config.auth.keys_file, "/etc/latchgate/keys.toml");
}

#[test]
fn every_file_has_a_test() {
    let entries = std::fs::read_dir(path("")).unwrap();
    let mut names: Vec<_> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(
        names,
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
