//! Nodes that are there and cannot be relied on: one that evicts keys, and those that were emptied.

use latchgate::store::{
    Store, StoreError,
    contract::{Acquisition, Loss, Release, Renewal},
};

use super::rig::{Rig, attempt, eventually};

#[tokio::test]
async fn those_that_evict_do_not_vote_and_what_is_held_is_renewed_and_released() {
    let rig = Rig::start(3).await;
    let (held, _) = rig.grant_everywhere("held").await;
    let policy = async |node: usize, policy: &str| {
        for setting in [["maxmemory", "100mb"], ["maxmemory-policy", policy]] {
            let set = ["CONFIG", "SET", setting[0], setting[1]];
            rig.server(node).run(&set).await;
        }
    };
    policy(0, "allkeys-lru").await;
    rig.store.check().await;
    rig.turn("lock").await;
    policy(2, "volatile-ttl").await;
    eventually("there is no majority that may be relied on", async || {
        rig.store.check().await;
        let asked = attempt("lock");
        match rig.store.acquire(&asked).await {
            Err(StoreError::Unavailable(_)) => Some(()),
            Ok(Acquisition::Granted(_)) => {
                rig.release(&asked).await;
                None
            }
            other => panic!("{other:?}"),
        }
    })
    .await;
    let renewal = rig.store.renew(&held.name, &held.token, None).await;
    assert!(matches!(renewal, Ok(Renewal::Renewed(..))), "{renewal:?}");
    let release = rig.store.release(&held.name, &held.token).await;
    assert_eq!(release, Ok(Release::Released));
    policy(2, "noeviction").await;
    let next = attempt("lock");
    eventually("there is one again", async || {
        rig.store.check().await;
        rig.store.acquire(&next).await.ok()
    })
    .await;
    rig.release(&next).await;
}

#[tokio::test]
async fn a_majority_that_was_emptied_has_forgotten_leases_and_grants_no_old_fence() {
    let rig = Rig::start(3).await;
    let (forgotten, lease) = rig.grant_everywhere("lock").await;
    for node in [0, 2] {
        rig.server(node).run(&["FLUSHALL"]).await;
    }
    // The third alone keeps nobody out.
    let next = attempt("lock");
    let granted = rig.grant(&next).await;
    assert!(granted.fence > lease.fence);
    let renewal = rig.store.renew(&forgotten.name, &forgotten.token, None);
    assert_eq!(renewal.await, Ok(Renewal::Lost(Loss::HeldByAnother)));
    rig.release(&next).await;
    assert!(rig.turn("lock").await > granted.fence.get());
}
