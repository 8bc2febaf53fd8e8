//! Failovers of real servers by real sentinels: while gateways get requests without a pause, to a replica with a wrong
//! clock, and with a long queue whose last changes the replica has missed.

use tokio::sync::Mutex;

use super::{
    observer::{Observer, until_heard},
    watched::{BACK_WITHIN, is_master},
};
use crate::redis::prelude::*;

/// Two gateways on a master with sentinels, and callers that keep them busy.
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
        let (url, config) = (watched.url(), quick());
        let stores: Vec<_> = (0..2).map(|_| Arc::new(open_with(&url, &config))).collect();
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

    /// Waits until all callers are served again after another server has become the master. The time counts from when
    /// this server says that it is the master, which the sentinels learn later.
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
        // Requests go to the new master from now on.
        self.observer.served(Instant::now(), BACK_WITHIN).await;
        (master, writable.elapsed())
    }

    #[expect(clippy::print_stdout, reason = "the figures are what one wants to see")]
    async fn end(self, what: &str, back: &[Duration]) {
        eventually(
            "there is traffic, and those at the two gateways want the same",
            async || {
                let seen = self.observer.seen();
                (seen.granted > 100 && seen.held > 0).then_some(())
            },
        )
        .await;
        self.observer.stop();
        // No caller got a wrong answer.
        self.callers.join_all().await;
        let worst = back.iter().max().copied().unwrap_or_default();
        let seen = self.observer.seen();
        println!("{what}: back after {worst:?} at most, {seen:?}");
        assert!(worst < BACK_WITHIN, "{back:?}");
        until_heard(&self.stores).await;
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
    // The old master comes back, and believes that it is the master until the sentinels tell it. It may carry out
    // commands that were sent before, but no command that is sent from now on.
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
    // The new connections are closed too.
    for kind in ["normal", "pubsub"] {
        let kill = ["CLIENT", "KILL", "TYPE", kind];
        busy.watched.servers[0].run(&kill).await;
    }
    let back = busy.observer.served(Instant::now(), BACK_WITHIN).await;
    until_heard(&busy.stores).await;
    for sentinel in &mut busy.watched.sentinels {
        sentinel.start_again().await;
    }
    until("all sentinels answer", async || {
        let sentinels = busy.stores[0].figures().sentinels;
        sentinels.iter().all(|(_, answers)| *answers)
    })
    .await;
    assert_eq!(busy.stores[0].figures().master_changes, Some(0));
    let after = busy.observer.seen();
    assert!(after.granted > before.granted);
    busy.end("no sentinel", &[back]).await;
}

/// How many seconds the clock is wrong.
const WRONG: i64 = 60;

/// Acquires and releases a lock at the current master. Answers the fencing token.
async fn turn(store: &RedisStore) -> u64 {
    eventually("it is granted", async || {
        let asked = attempt("turn");
        let granted = store.acquire(&asked).await.ok()?;
        let Acquisition::Granted(lease) = granted else {
            // Whether the attempt before this one was released is unknown.
            drop(store.break_lock(&asked.name, None).await);
            return None;
        };
        store.release(&asked.name, &asked.token).await.ok()?;
        Some(lease.fence.get())
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fences_rise_for_gateways_that_go_on_and_long_leases_are_kept() {
    for ahead in [-WRONG, WRONG] {
        let mut watched = Watched::start_with_replicas_on(&Clock::ahead(ahead)).await;
        let store = open_with(&watched.url(), &patient());
        store
            .must_grant(&with(attempt("held"), |it| it.terms.set_ttl(ttl(600_000))))
            .await;
        turn(&store).await;
        // `WAIT` counts only the writes of its own connection.
        for replica in &watched.servers[1..] {
            until_integer(replica, &["EXISTS", "lg:{held}:lock"], 1).await;
        }
        watched.cut_off_replicas(0).await;
        // No replica gets this grant.
        let forgotten = attempt("forgotten");
        let missed = granted(store.acquire(&forgotten).await).fence.get();
        let last = turn(&store).await;
        let master = watched.lose_master().await;
        let server = &watched.servers[master];
        let key = server.text(&["GET", "lg:{forgotten}:lock"]).await;
        assert_eq!(key, "", "the fault happened: a grant was forgotten");

        let next = turn(&store).await;
        assert!(next > last, "{ahead}: {next} after {last}");
        let again = granted(store.acquire(&attempt("forgotten")).await);
        assert!(
            again.fence.get() > missed,
            "{ahead}: {} after {missed}",
            again.fence
        );
        store.must_refuse(&attempt("held")).await;
    }
}

const WAITERS: usize = 8;
/// The TTL of a lease whose release is lost in the failover: the next waiter waits for its end.
const FORGOTTEN_MS: u64 = 3_000;

/// Uses a lock and releases it, whatever happens to the master meanwhile.
async fn use_and_leave(gate: &TestGateway, lease: &Lease, fences: &Mutex<Vec<u64>>) {
    fences.lock().await.push(lease.held.fence.get());
    eventually("it is left", async || {
        match gate.store.release(&lease.name, &lease.token.hash()).await {
            Ok(Release::Released(_) | Release::Lost(_)) => Some(()),
            Err(StoreError::Unavailable(_) | StoreError::Indeterminate(_)) => None,
            other => panic!("{other:?}"),
        }
    })
    .await;
}

async fn wait_and_use(gate: &TestGateway, asked: PendingAcquire, fences: &Mutex<Vec<u64>>) {
    let lease = asked.lease().await;
    use_and_leave(gate, &lease, fences).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_who_wait_are_served_and_fences_rise_although_the_last_grants_are_forgotten() {
    let mut watched = Watched::start().await;
    // With this deadline, requests of the time of the failure last until there is a new master.
    let config = with(quick(), |it| it.deadline_ms = Millis(60_000));
    let gates = [0, 1].map(|_| TestGateway::with(&watched.url(), &config));
    let first = gates[0].take_for("queue", FORGOTTEN_MS).await;
    let mut queue = Vec::new();
    for turn in 0..WAITERS {
        let asked = with(request("queue"), |it| it.terms.set_ttl(ttl(FORGOTTEN_MS)));
        queue.push(gates[turn % 2].queue(asked).await);
    }
    until_integer(&watched.servers[0], &["WAIT", "2", "1000"], 2).await;
    watched.cut_off_replicas(0).await;

    // Some waiters are served, and no replica gets this.
    let fences = Mutex::new(Vec::new());
    let mut queue = queue.into_iter().enumerate();
    use_and_leave(&gates[0], &first, &fences).await;
    for (turn, asked) in queue.by_ref().take(3) {
        wait_and_use(&gates[turn % 2], asked, &fences).await;
    }
    gates[0].must_grant(&attempt("lost")).await;
    let master = watched.lose_master().await;

    let server = &watched.servers[master];
    let key = server.text(&["GET", "lg:{lost}:lock"]).await;
    assert_eq!(key, "", "the fault happened: a grant was forgotten");
    let rest = queue.map(|(turn, asked)| wait_and_use(&gates[turn % 2], asked, &fences));
    join_all(rest).await;
    let fences = fences.into_inner();
    assert_eq!(fences.len(), 1 + WAITERS);
    assert!(fences.is_sorted_by(|one, next| one < next), "{fences:?}");
    for gate in &gates {
        gate.until_queued("queue", 0).await;
    }
    eventually("the lock is free for the next", async || {
        let next = attempt("queue");
        let next = gates[1].acquire(&next).await.ok()?;
        matches!(next, Acquisition::Granted(_)).then_some(())
    })
    .await;
    let closed = timeout(TIMEOUT, gates[0].close()).await;
    closed.unwrap();
}
