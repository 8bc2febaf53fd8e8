//! Passwords, permissions and certificates: of Redis, and of the sentinels, who are told nothing of the others.

use crate::redis::server::examination::COMMANDS;
use crate::{redis::prelude::*, support::Authority};

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

fn url(login: &str, sentinel: &SentinelProcess) -> ServersUrl {
    let text = format!("redis+sentinel://{login}{}/{SERVICE}", sentinel.node());
    match text.parse() {
        Ok(StoreUrl::Servers(url)) => url,
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
    until_passing(&store, "sentinels").await;
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
    assert_misconfigured(store.acquire(&attempt("a")).await, "role");
    assert_health(&store, "permissions", Health::Misconfigured, "ACL SETUSER").await;
}

fn store(port: u16, config: &RedisConfig) -> RedisStore {
    let text = format!("rediss+sentinel://localhost:{port}/{SERVICE}");
    let url: StoreUrl = text.parse().unwrap();
    open(url.servers().unwrap(), config, &Lifecycle::new())
}

#[tokio::test]
async fn both_are_encrypted_and_believed_by_their_certificates() {
    let authority = Authority::new();
    let files = authority.files("redis", &["localhost", "127.0.0.1"]);
    let (certificate, key, ca) = (files.certificate(), files.key(), authority.file());
    let server = RedisServer::start_with(&[
        "--tls-port",
        RedisServer::FREE_PORT,
        "--tls-cert-file",
        &certificate,
        "--tls-key-file",
        &key,
        "--tls-ca-cert-file",
        &ca,
        "--tls-auth-clients",
        "no",
    ])
    .await;
    let (watches, port) = (server.option("--tls-port").parse().unwrap(), free_port());
    let lines = [
        format!("tls-port {port}"),
        format!("tls-cert-file {certificate}"),
        format!("tls-key-file {key}"),
        format!("tls-ca-cert-file {ca}"),
        "tls-auth-clients no".to_owned(),
        // It speaks TLS to those it watches.
        "tls-replication yes".to_owned(),
    ];
    let lines: Vec<_> = lines.iter().map(String::as_str).collect();
    let _sentinel = SentinelProcess::start(watches, 1, &lines).await;

    let mut config = quick();
    assert_misconfigured(
        store(port, &config).acquire(&attempt("a")).await,
        "redis.tls.ca_file",
    );
    config.tls.ca_file = ca;
    let store = store(port, &config);
    granted(store.acquire(&attempt("a")).await);
    until_passing(&store, "sentinels").await;
}
