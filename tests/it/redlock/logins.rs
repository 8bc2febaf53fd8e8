//! The users of the nodes, and what they must be allowed.

use latchgate::{
    config::StoreUrl,
    lifecycle::Lifecycle,
    store::{
        Store,
        contract::{Health, ListQuery, Release},
        list_filter::ListFilter,
        redis::RedlockStore,
    },
};

use super::{
    nodes::{Nodes, open, quick},
    rig::{attempt, eventually, granted},
};

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
    let text = nodes.url().to_string();
    let url = text.replace("redlock://", "redlock://gate:s3cret@").parse();
    let Ok(StoreUrl::Redlock(url)) = url else {
        panic!("no URL of a quorum: {url:?}");
    };
    open(&url, &quick(), lifecycle)
}

#[tokio::test]
async fn the_documented_permissions_are_enough() {
    let (nodes, lifecycle) = (Nodes::start(3).await, Lifecycle::new());
    let rules = format!("~lg:* resetchannels &lg:* -@all {COMMANDS}");
    let store = store_as(&nodes, &rules, &lifecycle).await;
    eventually("all is well", async || {
        let checks = store.check().await;
        let well = checks.iter().all(|check| check.health == Health::Passing);
        well.then_some(())
    })
    .await;
    let asked = attempt("lock");
    granted(store.acquire(&asked).await);
    store.renew(&asked.name, &asked.token, None).await.unwrap();
    let query = ListQuery {
        filter: ListFilter::default(),
        limit: 10,
        cursor: None,
    };
    assert_eq!(store.list(&query).await.unwrap().locks.len(), 1);
    let release = store.release(&asked.name, &asked.token).await;
    assert_eq!(release, Ok(Release::Released));
    granted(store.acquire(&attempt("lock")).await);
    store.break_lock(&asked.name, None).await.unwrap();
}

#[tokio::test]
async fn a_missing_permission_at_every_node_is_said_and_nothing_granted() {
    let (nodes, lifecycle) = (Nodes::start(3).await, Lifecycle::new());
    let rules = format!("~lg:* resetchannels &lg:* -@all {COMMANDS} -hset");
    let store = store_as(&nodes, &rules, &lifecycle).await;
    let error = store.acquire(&attempt("lock")).await.unwrap_err();
    assert_eq!(error.label(), "unavailable");
    let checks = store.check().await;
    let found = checks.iter().find(|check| check.name == "permissions");
    let health = &found.expect("there is such a check").health;
    assert!(
        matches!(health, Health::Misconfigured(why) if why.contains("ACL SETUSER") && why.contains("+hset")),
        "{health:?}"
    );
}
