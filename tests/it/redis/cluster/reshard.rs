//! Slots that move while gateways get requests without a pause.

use std::process::Stdio;

use tokio::process::Command;

use super::{super::sentinel::observer::Observer, servers::BACK_WITHIN};
use crate::redis::prelude::*;
use crate::support::spawn;

/// Two gateways, callers that keep them busy, and leases that are held all the time.
struct BusyCallers {
    stores: Vec<Arc<RedisStore>>,
    observer: Arc<Observer>,
    callers: JoinSet<()>,
    held: Vec<Attempt>,
}

const CALLERS: usize = 6;
const HELD: usize = 12;

// === impl BusyCallers ===

impl BusyCallers {
    async fn start(cluster: &Cluster) -> Self {
        let (url, config) = (cluster.url(), quick());
        let stores: Vec<_> = (0..2).map(|_| Arc::new(open_with(&url, &config))).collect();
        let mut held = Vec::new();
        for n in 0..HELD {
            let asked = attempt(&format!("held-{n}"));
            granted(stores[n % 2].acquire(&asked).await);
            held.push(asked);
        }
        let observer = Arc::new(Observer::default());
        let mut callers = JoinSet::new();
        for caller in 0..CALLERS {
            let (store, observer) = (Arc::clone(&stores[caller % 2]), Arc::clone(&observer));
            callers.spawn(async move { observer.call(&*store, caller).await });
        }
        let busy = Self {
            stores,
            observer,
            callers,
            held,
        };
        busy.observer.served(Instant::now(), BACK_WITHIN).await;
        busy
    }

    /// Renews every lease. All must live, whatever moves.
    async fn renew_all(&self) {
        for (n, asked) in self.held.iter().enumerate() {
            self.stores[n % 2].must_renew(asked, None).await;
        }
    }

    #[expect(clippy::print_stdout, reason = "the figures are what one wants to see")]
    async fn end(mut self, what: &str) {
        self.observer.served(Instant::now(), BACK_WITHIN).await;
        self.observer.stop();
        // No caller got a wrong answer.
        std::mem::take(&mut self.callers).join_all().await;
        let seen = self.observer.seen();
        println!("{what}: {seen:?}");
        assert!(seen.granted > 50, "{seen:?}");
        assert_eq!(seen.forgotten, 0, "nothing is lost where nobody dies");
        self.renew_all().await;
        for asked in &self.held {
            self.stores[0].must_release(asked).await;
            self.stores[1]
                .must_grant(&attempt(asked.name.as_str()))
                .await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slots_that_move_under_load_lose_no_lease_and_no_fence() {
    let cluster = Pooled::take().await;
    let busy = BusyCallers::start(&cluster).await;
    let (of_each, held) = if full() { (5, HELD) } else { (1, 3) };
    let asked_for =
        (0..CALLERS).flat_map(|caller| (0..of_each).map(move |n| format!("caller-{caller}-{n}")));
    let names: Vec<String> = asked_for
        .chain((0..held).map(|n| format!("held-{n}")))
        .collect();
    for name in &names {
        let from = cluster.owner(name);
        let to = (from + 1) % 3;
        cluster.begin_move(slot_of(name), from, to).await;
        // Some keys move ahead, and the callers go on meanwhile.
        let fence = format!("lg:{{{name}}}:lock");
        cluster.move_keys(&[&fence], from, to).await;
        cluster.end_move(slot_of(name), from, to).await;
        busy.renew_all().await;
    }
    for name in &names {
        let home = cluster.owner(name);
        cluster.move_slot(slot_of(name), (home + 1) % 3, home).await;
    }
    busy.end("slots moved").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_usual_tool_moves_slots_under_load() {
    let cluster = Pooled::take().await;
    let busy = BusyCallers::start(&cluster).await;
    let slots = if full() { 2_000 } else { 150 };
    let turns = [(0, 1), (1, 2), (2, 0)];
    for (from, to) in turns {
        // The slots that the first server lost come back to it in the end.
        reshard(&cluster, slots, from, to).await;
        busy.renew_all().await;
    }
    busy.end("slots moved by redis-cli").await;
    // Slots are now at other servers than other tests expect.
    cluster.spend();
}

async fn reshard(cluster: &Cluster, slots: usize, from: usize, to: usize) {
    let address = format!("127.0.0.1:{}", cluster.servers[0].port());
    let (from, to) = (cluster.id(from).await, cluster.id(to).await);
    let tool = Command::from(spawn::command("redis-cli"))
        .args(["--cluster", "reshard", &address])
        .args(["--cluster-from", &from, "--cluster-to", &to])
        .args(["--cluster-slots", &slots.to_string(), "--cluster-yes"])
        .stdin(Stdio::null())
        .output();
    let done = timeout(Duration::from_mins(2), tool).await;
    let done = done
        .expect("it comes to an end")
        .expect("redis-cli can be started");
    assert!(
        done.status.success(),
        "{}{}",
        String::from_utf8_lossy(&done.stdout),
        String::from_utf8_lossy(&done.stderr)
    );
}
