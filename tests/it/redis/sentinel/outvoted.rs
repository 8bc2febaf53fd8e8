//! A sentinel that watches another master under the same name, with a later epoch, beside sentinels that are right.

use super::watched::url;
use crate::redis::prelude::*;

/// A master that three sentinels watch, and a stranger that a fourth sentinel takes for the master.
struct Outvoted {
    watched: Watched,
    stranger: RedisServer,
    wrong: SentinelProcess,
}

// === impl Outvoted ===

impl Outvoted {
    async fn start() -> Self {
        let watched = Watched::start().await;
        let stranger = RedisServer::start().await;
        let epoch = format!("sentinel config-epoch {SERVICE} 99");
        let wrong = SentinelProcess::start(stranger.port(), 1, &[&epoch]).await;
        assert_eq!(wrong.master("config-epoch").await, "99");
        Self {
            watched,
            stranger,
            wrong,
        }
    }

    fn open(&self) -> RedisStore {
        let sentinels = self.watched.sentinels.iter().chain([&self.wrong]);
        open_with(&url(sentinels.map(SentinelProcess::node)), &quick())
    }

    async fn until_followed(&self, store: &RedisStore, master: usize) {
        let node = format!("127.0.0.1:{}", self.watched.servers[master].port());
        until("the master is followed", async || {
            store.figures().master.is_some_and(|(at, _)| at == node)
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sentinel_that_watches_another_master_leads_no_gateway_there() {
    let mut rig = Outvoted::start().await;
    let store = rig.open();
    let held = with(attempt("held"), |it| it.terms.set_ttl(ttl(600_000)));
    store.must_grant(&held).await;
    let differ = "4 of 4 answer; they name different masters";
    until_health(&store, "sentinels", Health::Warning, differ).await;
    store.must_refuse(&attempt("held")).await;
    rig.until_followed(&store, 0).await;
    assert_eq!(store.figures().master_changes, Some(0));

    // The master is away for longer than few sentinels are believed after, before the others replace it.
    for replica in &rig.watched.servers[1..] {
        until_integer(replica, &["EXISTS", "lg:{held}:lock"], 1).await;
    }
    rig.watched.notices_after("4000").await;
    rig.watched.servers[0].kill();
    // A gateway that starts meanwhile goes to the stranger as little.
    let started = rig.open();
    let master = rig.watched.replaced(0).await;
    for store in [&store, &started] {
        rig.until_followed(store, master).await;
        until("the lock is still held", async || {
            match store.acquire(&attempt("held")).await {
                Ok(acquired) => matches!(acquired, Acquisition::Held(_)),
                Err(_) => false,
            }
        })
        .await;
    }
    assert_eq!(store.figures().master_changes, Some(1));
    assert_eq!(rig.stranger.keys().await, Vec::<String>::new());
}
