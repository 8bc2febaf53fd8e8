//! Users, permissions and certificates of the nodes.

use super::nodes::{open, open_with, parsed};
use crate::{redlock::prelude::*, support::Authority};

/// The commands of the documented ACL line of a node.
pub(super) const COMMANDS: &str = "+evalsha +eval +info +scan +type +time +get +set +del +pttl +pexpireat +hset +hmget +hlen \
    +hdel +zadd +zscore +zrange +zrem +publish +subscribe +ping";

/// A store that logs in as a user with these rules.
pub(super) async fn store_as(nodes: &Nodes, rules: &str, lifecycle: &Lifecycle) -> RedlockStore {
    for server in &nodes.servers {
        let mut command = vec!["ACL", "SETUSER", "gate", "reset", "on", ">s3cret"];
        command.extend(rules.split_whitespace());
        assert_eq!(server.text(&command).await, "OK");
    }
    let url = nodes.url().to_string();
    let url = parsed(&url.replace("redlock://", "redlock://gate:s3cret@"));
    open(&url, &quick(), lifecycle)
}

#[tokio::test]
async fn the_documented_permissions_are_enough() {
    let (nodes, lifecycle) = (Nodes::start(3).await, Lifecycle::new());
    let rules = format!("~lg:* resetchannels &lg:* -@all {COMMANDS}");
    let store = store_as(&nodes, &rules, &lifecycle).await;
    until_all_pass(&store).await;
    let asked = attempt("lock");
    granted(store.acquire(&asked).await);
    store.renew(&asked.name, &asked.token, None).await.unwrap();
    let query = ListQuery {
        filter: ListFilter::default(),
        limit: 10,
        cursor: None,
    };
    assert_eq!(store.list(&query).await.unwrap().locks.len(), 1);
    store.must_release(&asked).await;
    granted(store.acquire(&attempt("lock")).await);
    store.break_lock(&asked.name, None).await.unwrap();
}

#[tokio::test]
async fn a_missing_permission_at_every_node_is_said_and_nothing_granted() {
    let (nodes, lifecycle) = (Nodes::start(3).await, Lifecycle::new());
    let rules = format!("~lg:* resetchannels &lg:* -@all {COMMANDS} -hset");
    let store = store_as(&nodes, &rules, &lifecycle).await;
    assert_unavailable(store.acquire(&attempt("lock")).await);
    for text in ["ACL SETUSER", "+hset"] {
        assert_health(&store, "permissions", Health::Misconfigured, text).await;
    }
}

fn open_tls(ports: &[String], redis: &RedisConfig, lifecycle: &Lifecycle) -> RedlockStore {
    let nodes: Vec<_> = ports
        .iter()
        .map(|port| format!("localhost:{port}"))
        .collect();
    let url = parsed(&format!("redlocks://{}", nodes.join(",")));
    open_with(&url, redis, &quick(), lifecycle)
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
    // A node whose certificate is not accepted has no vote, and the error names the reason.
    let store = open_tls(&ports, &redis, &lifecycle);
    assert_unavailable(store.acquire(&attempt("lock")).await);

    redis.tls.ca_file = authority.file();
    let store = open_tls(&ports, &redis, &lifecycle);
    let asked = attempt("lock");
    granted(store.acquire(&asked).await);
    store.renew(&asked.name, &asked.token, None).await.unwrap();
    // Two of three nodes have granted the lock: the third may still be catching up.
    until_all_pass(&store).await;
    // Without a minority of the nodes, the quorum still works.
    drop(servers.pop());
    store.must_release(&asked).await;
    granted(store.acquire(&attempt("lock")).await);
}
