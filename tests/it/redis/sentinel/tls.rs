//! Sentinels, and the master that they name, over TLS.

use latchgate::{
    config::{RedisConfig, StoreUrl},
    lifecycle::Lifecycle,
    store::{
        Store, StoreError, Unavailability,
        contract::Health,
        redis::{RedisServers, RedisStore},
    },
};

use super::{
    super::rig::{attempt, eventually, granted, health, open, quick},
    process::{SERVICE, SentinelProcess},
};
use crate::support::{Authority, RedisServer, free_port};

fn store(port: u16, config: &RedisConfig) -> RedisStore {
    let text = format!("rediss+sentinel://localhost:{port}/{SERVICE}");
    let servers: RedisServers = match text.parse() {
        Ok(StoreUrl::Sentinel(url)) => (&url).into(),
        other => panic!("{other:?}"),
    };
    open(servers, config, &Lifecycle::new())
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
    match store(port, &config).acquire(&attempt("a")).await {
        Err(StoreError::Unavailable(Unavailability::Misconfigured(why))) => {
            assert!(why.contains("redis.tls.ca_file"), "{why}");
        }
        other => panic!("the system vouches for no test: {other:?}"),
    }
    config.tls.ca_file = ca;
    let store = store(port, &config);
    granted(store.acquire(&attempt("a")).await);
    eventually("the sentinel is heard", async || {
        (health(&store, "sentinels").await == Some(Health::Passing)).then_some(())
    })
    .await;
}
