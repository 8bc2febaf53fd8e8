//! The password of the gateway is taken back while locks are held.

use latchgate::{
    lifecycle::Lifecycle,
    store::{
        Store, StoreError, Unavailability,
        contract::{Acquisition, Health, Renewal},
    },
};

use super::{
    examination::{COMMANDS, store_as},
    rig::{attempt, eventually, granted, health, open, quick},
};
use crate::support::RedisServer;

#[tokio::test]
async fn nothing_is_granted_and_nothing_lost_and_with_a_new_one_all_goes_on() {
    let (server, lifecycle) = (RedisServer::start().await, Lifecycle::new());
    let rules = format!("~lg:* &lg:* -@all {COMMANDS}");
    let store = store_as(&server, &lifecycle, &rules).await;
    let held = attempt("held");
    let lease = granted(store.acquire(&held).await);
    let revoke = ["ACL", "SETUSER", "gate", "resetpass", ">an0ther"];
    server.run(&revoke).await;
    server.run(&["CLIENT", "KILL", "USER", "gate"]).await;
    eventually("it is told as what it is", async || {
        match store.acquire(&attempt("new")).await {
            Err(StoreError::Unavailable(Unavailability::Misconfigured(_))) => Some(()),
            // What was under way on the connection that was killed.
            Err(StoreError::Unavailable(_) | StoreError::Indeterminate(_)) => None,
            other => panic!("{other:?}"),
        }
    })
    .await;
    assert_eq!(server.text(&["GET", "lg:{new}:lock"]).await, "");
    eventually("readiness says so", async || {
        let found = health(&store, "permissions").await;
        matches!(found, Some(Health::Misconfigured(_))).then_some(())
    })
    .await;
    // Whoever has the new one finds what was held.
    let other = open(&server.url_as("gate", "an0ther"), &quick(), &lifecycle);
    let refused = other.acquire(&attempt("held")).await;
    assert!(matches!(refused, Ok(Acquisition::Held(_))), "{refused:?}");
    server
        .run(&["ACL", "SETUSER", "gate", "resetpass", ">s3cret"])
        .await;
    let renewed = eventually("the first goes on", async || {
        store.renew(&held.name, &held.token, None).await.ok()
    })
    .await;
    assert!(matches!(&renewed, Renewal::Renewed(now, _) if now.fence == lease.fence));
}
