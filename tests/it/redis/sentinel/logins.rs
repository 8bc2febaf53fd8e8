//! Passwords and permissions: of Redis, and of the sentinels, who are told nothing of the others.

use latchgate::{
    config::{RedisConfig, SentinelUrl, StoreUrl},
    lifecycle::Lifecycle,
    store::{Store, StoreError, Unavailability, contract::Health},
};

use super::{
    super::{
        examination::COMMANDS,
        rig::{attempt, eventually, granted, health, open, quick},
    },
    process::{SERVICE, SentinelProcess},
};
use crate::support::RedisServer;

/// What a sentinel must let the gateway do, as the documentation has it.
const WATCHER: &str = "user watcher on >watchword resetchannels &+switch-master \
    -@all +sentinel|get-master-addr-by-name +sentinel|master +subscribe +ping";

async fn server() -> RedisServer {
    let server = RedisServer::start().await;
    let rules = format!("ACL SETUSER gate on >s3cret ~lg:* &lg:* -@all {COMMANDS} +role +wait");
    let words: Vec<_> = rules.split_whitespace().collect();
    assert_eq!(server.text(&words).await, "OK");
    server
}

fn url(login: &str, sentinel: &SentinelProcess) -> SentinelUrl {
    let text = format!("redis+sentinel://{login}{}/{SERVICE}", sentinel.node());
    match text.parse() {
        Ok(StoreUrl::Sentinel(url)) => url,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn redis_and_the_sentinels_each_have_their_own() {
    let server = server().await;
    let lines = [WATCHER, "user default off"];
    let sentinel = SentinelProcess::start(server.port(), 1, &lines).await;
    let directory = tempfile::tempdir().unwrap();
    let password = directory.path().join("password");
    std::fs::write(&password, "watchword\n").unwrap();
    let mut config = RedisConfig::default();
    config.sentinel.username = "watcher".to_owned();
    config.sentinel.password_file = password.display().to_string();
    let lifecycle = Lifecycle::new();
    let store = open(&url("gate:s3cret@", &sentinel), &config, &lifecycle);
    granted(store.acquire(&attempt("a")).await);
    for check in ["connection", "permissions", "master"] {
        assert_eq!(
            health(&store, check).await,
            Some(Health::Passing),
            "{check}"
        );
    }
    eventually("the sentinel is heard", async || {
        (health(&store, "sentinels").await == Some(Health::Passing)).then_some(())
    })
    .await;
    let listening = sentinel_log_of_refusals(&sentinel);
    assert_eq!(listening, 0, "{}", sentinel.log());
}

fn sentinel_log_of_refusals(sentinel: &SentinelProcess) -> usize {
    sentinel.log().matches("NOPERM").count()
}

#[tokio::test]
async fn a_password_that_is_refused_is_a_mistake_in_the_configuration_whoever_refuses_it() {
    let server = server().await;
    let sentinel = SentinelProcess::start(server.port(), 1, &["requirepass watchword"]).await;
    let open_sentinel = SentinelProcess::start(server.port(), 1, &[]).await;
    for (url, named) in [
        (url("gate:s3cret@", &sentinel), "sentinel 127.0.0.1:"),
        (url("gate:wr0ng@", &open_sentinel), "the server refuses"),
    ] {
        let store = open(&url, &quick(), &Lifecycle::new());
        match store.acquire(&attempt("a")).await {
            Err(StoreError::Unavailable(Unavailability::Misconfigured(why))) => {
                assert!(why.contains(named), "{why}");
                assert!(!why.contains("wr0ng") && !why.contains("s3cret"), "{why}");
            }
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn a_user_who_may_not_ask_for_the_role_is_told_what_is_missing() {
    let server = server().await;
    server.run(&["ACL", "SETUSER", "gate", "-role"]).await;
    let sentinel = SentinelProcess::start(server.port(), 1, &[]).await;
    let store = open(&url("gate:s3cret@", &sentinel), &quick(), &Lifecycle::new());
    match store.acquire(&attempt("a")).await {
        Err(StoreError::Unavailable(Unavailability::Misconfigured(why))) => {
            assert!(why.contains("role"), "{why}");
        }
        other => panic!("{other:?}"),
    }
    match health(&store, "permissions").await {
        Some(Health::Misconfigured(why)) => assert!(why.contains("ACL SETUSER"), "{why}"),
        other => panic!("{other:?}"),
    }
}
