//! Failovers of real servers by real sentinels, while gateways are asked for locks all the time.

use std::{sync::Arc, time::Duration};

use bb8_redis::redis::Value;
use futures_util::future::join_all;
use latchgate::{
    lifecycle::Lifecycle,
    store::{Store, redis::RedisStore},
};
use tokio::{task::JoinSet, time::Instant};

use super::{
    super::rig::{attempt, eventually, granted, open, quick},
    observer::Observer,
    watched::{BACK_WITHIN, Watched, is_master},
};
use crate::support::full;

/// Two gateways on a watched Redis, and callers that keep them busy.
struct BusyCallers {
    watched: Watched,
    stores: Vec<Arc<RedisStore>>,
    observer: Arc<Observer>,
    callers: JoinSet<()>,
}

const CALLERS: usize = 6;

// === impl BusyCallers ===

impl BusyCallers {
    async fn start() -> Self {
        let watched = Watched::start().await;
        let lifecycle = Lifecycle::new();
        let (url, config) = (watched.url(), quick());
        let stores: Vec<_> = (0..2)
            .map(|_| Arc::new(open(&url, &config, &lifecycle)))
            .collect();
        let observer = Arc::new(Observer::default());
        let mut callers = JoinSet::new();
        for caller in 0..CALLERS {
            let (store, observer) = (Arc::clone(&stores[caller % 2]), Arc::clone(&observer));
            callers.spawn(async move { observer.call(&*store, caller).await });
        }
        let busy = Self {
            watched,
            stores,
            observer,
            callers,
        };
        busy.observer.served(Instant::now(), BACK_WITHIN).await;
        busy
    }

    /// Waits until everybody is served again after another server has become the master. How long
    /// that took counts from when that one says that it is the master, which the sentinels learn later.
    async fn recovers(&self, before: usize) -> (usize, Duration) {
        let writable = self.watched.writable(before).await;
        let master = self.watched.replaced(before).await;
        let port = self.watched.servers[master].port();
        let followed = self.stores.iter().map(async |store| {
            eventually("the new master is followed", async || {
                let (node, _) = store.figures().master?;
                (node == format!("127.0.0.1:{port}")).then_some(())
            })
            .await;
        });
        join_all(followed).await;
        // Whoever asks now asks the new one.
        self.observer.served(Instant::now(), BACK_WITHIN).await;
        (master, writable.elapsed())
    }

    #[expect(clippy::print_stdout, reason = "the figures are what one wants to see")]
    async fn end(mut self, what: &str, back: &[Duration]) {
        eventually(
            "there is traffic, and those at the two gateways want the same",
            async || {
                let seen = self.observer.seen();
                (seen.granted > 100 && seen.held > 0).then_some(())
            },
        )
        .await;
        self.observer.stop();
        while let Some(ended) = self.callers.join_next().await {
            ended.expect("no caller was answered wrongly");
        }
        let worst = back.iter().max().copied().unwrap_or_default();
        let seen = self.observer.seen();
        println!("{what}: back after {worst:?} at most, {seen:?}");
        assert!(worst < BACK_WITHIN, "{back:?}");
        eventually("messages are heard", async || {
            let mut stores = self.stores.iter();
            stores
                .all(|store| store.figures().hears == Some(true))
                .then_some(())
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failovers_that_are_planned_one_after_the_other_are_followed() {
    let busy = BusyCallers::start().await;
    let (mut master, mut back) = (0, Vec::new());
    for _ in 0..if full() { 20 } else { 2 } {
        busy.watched.settled(master).await;
        busy.watched.fail_over().await;
        let (next, took) = busy.recovers(master).await;
        master = next;
        back.push(took);
    }
    let changes = busy.stores[0].figures().master_changes.unwrap();
    assert!(changes >= back.len() as u64, "{changes}");
    busy.end("planned failovers", &back).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_that_is_killed_is_replaced() {
    let mut busy = BusyCallers::start().await;
    busy.watched.servers[0].kill();
    let (_, back) = busy.recovers(0).await;
    busy.end("a master killed", &[back]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_that_froze_is_replaced_and_writes_nothing_when_it_is_back() {
    let busy = BusyCallers::start().await;
    let frozen = &busy.watched.servers[0];
    frozen.freeze();
    let (master, back) = busy.recovers(0).await;
    // It comes back, and until it is told otherwise it believes that it is the master. What was sent to
    // it before may be carried out there, what is asked from now on is not.
    frozen.thaw();
    let (start, mut looks) = (Instant::now(), 0);
    while is_master(frozen).await {
        let asked = attempt(&format!("back-{looks}"));
        granted(busy.stores[looks % 2].acquire(&asked).await);
        let key = format!("lg:{{{}}}:lock", asked.name);
        let value = frozen.try_run(&["GET", &key]).await;
        if is_master(frozen).await {
            let nothing = matches!(value, None | Some(Value::Nil));
            assert!(nothing, "the master that was deposed was asked: {value:?}");
            looks += 1;
        }
        assert!(start.elapsed() < BACK_WITHIN, "it is told so");
    }
    busy.watched.settled(master).await;
    assert!(looks > 0, "the fault happened: it was back as a master");
    busy.end("a master frozen", &[back]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_any_sentinel_the_master_serves_on() {
    let mut busy = BusyCallers::start().await;
    for sentinel in &mut busy.watched.sentinels {
        sentinel.kill();
    }
    let before = busy.observer.seen();
    // New connections, too.
    for kind in ["normal", "pubsub"] {
        let kill = ["CLIENT", "KILL", "TYPE", kind];
        busy.watched.servers[0].run(&kill).await;
    }
    let back = busy.observer.served(Instant::now(), BACK_WITHIN).await;
    eventually("messages are heard again", async || {
        let heard = busy
            .stores
            .iter()
            .all(|store| store.figures().hears == Some(true));
        heard.then_some(())
    })
    .await;
    for sentinel in &mut busy.watched.sentinels {
        sentinel.start_again().await;
    }
    eventually("all sentinels answer", async || {
        let sentinels = busy.stores[0].figures().sentinels;
        sentinels.iter().all(|(_, answers)| *answers).then_some(())
    })
    .await;
    assert_eq!(busy.stores[0].figures().master_changes, Some(0));
    let after = busy.observer.seen();
    assert!(after.granted > before.granted);
    busy.end("no sentinel", &[back]).await;
}
