//! The nodes of a quorum over TLS.

use std::sync::Arc;

use latchgate::{
    clock::SystemClock,
    config::{RedisConfig, StoreUrl},
    lifecycle::Lifecycle,
    store::{
        Store,
        contract::{Health, Release},
        redis::RedlockStore,
    },
};

use super::{
    nodes::quick,
    rig::{attempt, granted},
};
use crate::support::{Authority, RedisServer, eventually};

fn open(ports: &[String], redis: &RedisConfig, lifecycle: &Lifecycle) -> RedlockStore {
    let nodes: Vec<_> = ports
        .iter()
        .map(|port| format!("localhost:{port}"))
        .collect();
    let url = format!("redlocks://{}", nodes.join(",")).parse();
    let Ok(StoreUrl::Redlock(url)) = url else {
        panic!("no URL of a quorum: {url:?}");
    };
    RedlockStore::open(&url, redis, &quick(), Arc::new(SystemClock), lifecycle)
}

#[tokio::test]
async fn every_node_is_encrypted_and_believed_by_its_certificate() {
    let authority = Authority::new();
    let (mut servers, mut ports) = (Vec::new(), Vec::new());
    for node in 0..3 {
        let files = authority.files(&format!("node-{node}"), &["localhost"]);
        let everybody = ["--tls-auth-clients", "no"];
        let (server, port) = RedisServer::start_tls(&files, &authority.file(), &everybody).await;
        ports.push(port);
        servers.push(server);
    }
    let lifecycle = Lifecycle::new();
    let mut redis = RedisConfig::default();
    // Whoever is not believed has no vote, and it is said why.
    let store = open(&ports, &redis, &lifecycle);
    let error = store.acquire(&attempt("lock")).await.unwrap_err();
    assert_eq!(error.label(), "unavailable", "{error}");

    redis.tls.ca_file = authority.file();
    let store = open(&ports, &redis, &lifecycle);
    let asked = attempt("lock");
    granted(store.acquire(&asked).await);
    store.renew(&asked.name, &asked.token, None).await.unwrap();
    // Two of three have granted it: the third may still be learning.
    eventually("every node votes", async || {
        let checks = store.check().await;
        checks
            .iter()
            .all(|check| check.health == Health::Passing)
            .then_some(())
    })
    .await;
    // A minority that is gone costs nothing but its votes.
    drop(servers.pop());
    let release = store.release(&asked.name, &asked.token).await;
    assert_eq!(release, Ok(Release::Released));
    granted(store.acquire(&attempt("lock")).await);
}
