//! Passwords, permissions and certificates for Redis, and separate ones for the sentinels.

use crate::redis::server::examination::COMMANDS;
use crate::{redis::prelude::*, support::Authority};

/// The permissions that a sentinel must give to the gateway, as the documentation lists them.
const WATCHER: &str = "user watcher on >watchword resetchannels &+switch-master \
    -@all +sentinel|get-master-addr-by-name +sentinel|master +subscribe +ping";

async fn server() -> RedisServer {
    let server = RedisServer::start().await;
    let rules = format!("gate on >s3cret ~lg:* &lg:* -@all {COMMANDS} +role +wait");
    server.set_user(&rules).await;
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
    let store = open_with(&url("gate:s3cret@", &sentinel), &config);
    granted(store.acquire(&attempt("a")).await);
    for check in ["connection", "permissions", "master"] {
        let found = health(&store, check).await;
        assert_eq!(found, Some(Health::Passing), "{check}");
    }
    until_passing(&store, "sentinels").await;
    let log = sentinel.log();
    assert!(!log.contains("NOPERM"), "{log}");
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
        let store = open(&url);
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
    server.set_user("gate -role").await;
    let sentinel = SentinelProcess::start(server.port(), 1, &[]).await;
    let store = open(&url("gate:s3cret@", &sentinel));
    assert_misconfigured(store.acquire(&attempt("a")).await, "role");
    assert_health(&store, "permissions", Health::Misconfigured, "ACL SETUSER").await;
}

fn store(port: u16, config: &RedisConfig) -> RedisStore {
    let text = format!("rediss+sentinel://localhost:{port}/{SERVICE}");
    let url: StoreUrl = text.parse().unwrap();
    open_with(url.servers().unwrap(), config)
}

#[tokio::test]
async fn both_are_encrypted_and_believed_by_their_certificates() {
    let authority = Authority::new();
    let files = authority.files("redis", &["localhost", "127.0.0.1"]);
    let (certificate, key, ca) = (files.certificate(), files.key(), authority.file());
    let options = ["--tls-auth-clients", "no"];
    let (_server, watches) = RedisServer::start_tls(&files, &ca, &options).await;
    let (watches, port) = (watches.parse().unwrap(), free_port());
    // The sentinel uses TLS for the servers that it watches.
    let lines = format!(
        "tls-port {port}
tls-cert-file {certificate}
tls-key-file {key}
\
         tls-ca-cert-file {ca}
tls-auth-clients no
tls-replication yes"
    );
    let _sentinel = SentinelProcess::start(watches, 1, &[&lines]).await;

    let mut config = quick();
    let refused = store(port, &config).acquire(&attempt("a")).await;
    assert_misconfigured(refused, "redis.tls.ca_file");
    config.tls.ca_file = ca;
    let store = store(port, &config);
    granted(store.acquire(&attempt("a")).await);
    until_passing(&store, "sentinels").await;
}
