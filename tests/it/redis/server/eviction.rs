//! A server that evicts keys would free locks that are held, so the store refuses it.

use super::examination::store_as_documented;
use crate::redis::prelude::*;

/// Whether an acquire is refused because the server evicts keys by this policy. Before, the acquire may succeed, or the
/// server may be away.
async fn refused_for(store: &RedisStore, policy: &str) -> Option<()> {
    match store.acquire(&attempt("evicted")).await {
        Err(StoreError::Unavailable(Unavailability::Misconfigured(what))) => {
            assert!(what.contains(&format!("({policy})")), "{what}");
            Some(())
        }
        Err(StoreError::Unavailable(Unavailability::Connect(_))) | Ok(_) => None,
        Err(other) => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_server_that_evicts_grants_nothing_and_keeps_what_is_held() {
    let rig = Rig::start().await;
    let [renewed, released] = ["renewed", "released"].map(attempt);
    rig.must_grant_each([&renewed, &released]).await;
    rig.server.set("maxmemory", "100mb").await;
    assert_eq!(rig.health("eviction").await, Some(Health::Passing));
    rig.server.set("maxmemory-policy", "volatile-ttl").await;
    // A new connection starts an examination, and so does a question for the checks.
    eventually("the policy is found", async || {
        rig.check().await;
        refused_for(&rig.store, "volatile-ttl").await
    })
    .await;
    assert_health(&rig.store, "eviction", Health::Misconfigured, "").await;
    rig.must_renew(&renewed, None).await;
    rig.must_release(&released).await;
    rig.must_be_held(&renewed.name).await;

    let config = with(quick(), |it| it.accept_eviction = true);
    let accepting = open_with(&rig.server.url(), &config);
    granted(accepting.acquire(&attempt("accepted")).await);
    assert_health(&accepting, "eviction", Health::Warning, "").await;
    rig.server.set("maxmemory-policy", "noeviction").await;
    until_answered(&rig.store, "new").await;
}

#[tokio::test]
async fn a_server_that_comes_back_with_another_policy_is_looked_at_again() {
    let server = RedisServer::start().await;
    let mut rig = Rig::on(server);
    rig.grant(&attempt("before")).await;
    rig.server.kill();
    let evicts = ["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"];
    rig.server.start_again_with(&evicts).await;
    eventually("the policy is found", async || {
        refused_for(&rig.store, "allkeys-lru").await
    })
    .await;
}

#[tokio::test]
async fn a_policy_that_cannot_be_read_any_more_is_the_one_that_was_read_last() {
    for policy in ["noeviction", "allkeys-lru"] {
        let options = ["--maxmemory", "100mb", "--maxmemory-policy", policy];
        let server = RedisServer::start_with(&options).await;
        let store = store_as_documented(&server).await;
        let before = health(&store, "eviction").await.unwrap();
        server.set_user("gate -info").await;
        let now = eventually("the policy is not told any more", async || {
            let health = health(&store, "eviction").await?;
            (health != before).then_some(health)
        })
        .await;
        if policy == "noeviction" {
            assert!(matches!(now, Health::Warning(_)), "{now:?}");
            granted(store.acquire(&attempt("unread")).await);
        } else {
            assert!(matches!(now, Health::Misconfigured(_)), "{now:?}");
            let refused = refused_for(&store, "allkeys-lru").await;
            assert!(refused.is_some(), "it evicts as before");
        }
    }
}

#[tokio::test]
async fn an_examination_that_is_cut_off_leaves_the_verdict_as_it_was() {
    for policy in ["noeviction", "allkeys-lru"] {
        let (rig, proxy) = Rig::with_proxy().await;
        for setting in [["maxmemory", "100mb"], ["maxmemory-policy", policy]] {
            let set = ["CONFIG", "SET", setting[0], setting[1]];
            rig.run(&set).await;
        }
        let safe = policy == "noeviction";
        until("the policy is found", async || {
            let found = matches!(rig.health("eviction").await, Some(Health::Passing));
            found == safe
        })
        .await;
        for _ in 0..1_000 {
            proxy.strike("memory", Fault::CutReply);
        }
        until_health(&rig.store, "connection", Health::Outage, "").await;
        assert!(proxy.strikes() > 0);
        if safe {
            rig.grant(&attempt("cut-off")).await;
        } else {
            let refused = refused_for(&rig.store, "allkeys-lru").await;
            assert!(refused.is_some(), "it evicts as before");
        }
    }
}
