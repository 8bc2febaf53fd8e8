//! A master that is cut off from its replica and the sentinels, while one of two gateways still reaches it.

use std::cell::Cell;

use super::watched::{OPTIONS, healthy, is_master, url};
use crate::redis::{prelude::*, replicas::replicated::left_queued};

/// A master, and a replica and sentinels that reach it through a cable. Beside the master there is a fake sentinel
/// without connection to the others.
struct Split {
    master: RedisServer,
    cable: Cable,
    replica: RedisServer,
    sentinels: Vec<SentinelProcess>,
    beside: FakeSentinel,
    lifecycle: Lifecycle,
}

// === impl Split ===

impl Split {
    /// Starts the servers with these options.
    async fn start(options: &str) -> Self {
        let lifecycle = Lifecycle::new();
        let options = format!("{OPTIONS} {options}");
        let master = RedisServer::start_as(&options).await;
        let cable = Cable::to(master.port(), &lifecycle).await;
        let replica = format!("{options} --replicaof 127.0.0.1 {}", cable.port());
        let replica = RedisServer::start_as(&replica).await;
        let sentinels = (0..3).map(|_| SentinelProcess::start(cable.port(), 2, &[]));
        let sentinels = join_all(sentinels).await;
        for sentinel in &sentinels {
            until("the sentinels know all", async || {
                let others = sentinel.master("num-other-sentinels").await;
                healthy(sentinel).await == 1 && others == "2"
            })
            .await;
        }
        let says = SentinelReply::Master(master.port(), 0);
        Self {
            beside: FakeSentinel::start(says, &lifecycle).await,
            master,
            cable,
            replica,
            sentinels,
            lifecycle,
        }
    }

    /// The gateway on the side of the master.
    fn beside(&self, config: &RedisConfig) -> RedisStore {
        let url = url([self.beside.node()].into_iter());
        open_in(&url, config, &self.lifecycle)
    }

    /// The gateway on the side of the sentinels, which reaches the master through the cable.
    fn among_the_others(&self, config: &RedisConfig) -> RedisStore {
        let url: ServersUrl = url(self.sentinels.iter().map(SentinelProcess::node));
        open_in(&url, config, &self.lifecycle)
    }

    /// Waits until the gateway on the other side follows the replica as its new master.
    async fn is_replaced(&self, others: &RedisStore) {
        eventually("the replica is made the master", async || {
            let node = format!("127.0.0.1:{}", self.replica.port());
            let followed = others.figures().master?.0 == node;
            (followed && is_master(&self.replica).await).then_some(())
        })
        .await;
    }

    /// Mends the cable, and waits until the old master is a replica.
    async fn heals(&self) {
        self.cable.mend();
        let is_so = async || !is_master(&self.master).await;
        until("the old master is told", is_so).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_sides_grant_until_the_old_master_is_told_and_fences_rise_all_the_same() {
    let split = Split::start("").await;
    let config = quick();
    let [beside, others] = [split.beside(&config), split.among_the_others(&config)];
    beside.must_grant(&attempt("before")).await;
    others.must_refuse(&attempt("before")).await;

    split.cable.cut();
    split.is_replaced(&others).await;
    // The gateways take turns, and each is granted the lock while the other holds it.
    let mut fences = Vec::new();
    let mut last = None;
    for turn in 0..3 {
        let lock = format!("both-{turn}");
        for store in [&beside, &others] {
            let asked = attempt(&lock);
            fences.push(granted(store.acquire(&asked).await).fence.get());
            last = Some(asked);
        }
        // The clocks of both servers are the same here.
        assert!(fences.is_sorted_by(|one, next| one < next), "{fences:?}");
    }

    split.heals().await;
    // The gateway beside the old master is still told to use it, but is granted nothing there any more.
    eventually("it is told so", async || {
        match beside.acquire(&attempt("after")).await {
            Err(StoreError::Unavailable(_)) => Some(()),
            // The connection was cut when the server became a replica.
            Err(StoreError::Indeterminate(_)) => None,
            granted => panic!("{granted:?}"),
        }
    })
    .await;
    let healed = SentinelReply::Master(split.replica.port(), 1);
    split.beside.say(healed);
    let last = last.expect("there was a last one");
    until("there is one holder again", async || {
        let acquired = beside.acquire(&attempt(last.name.as_str())).await;
        matches!(acquired, Ok(Acquisition::Held(_)))
    })
    .await;
    beside.must_renew(&last, None).await;
}

/// How long a master accepts writes without its replica, in whole seconds, and one more second until it checks.
const LAG: Duration = Duration::from_secs(2);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_that_must_have_a_replica_stops_granting_when_it_is_cut_off() {
    let split = Split::start("--min-replicas-to-write 1 --min-replicas-max-lag 1").await;
    let config = quick();
    let [beside, others] = [split.beside(&config), split.among_the_others(&config)];
    until_answered(&beside, "before").await;
    split.cable.cut();
    let cut = Instant::now();
    let granted_until = Cell::new(Duration::ZERO);
    eventually("it refuses", async || {
        match beside.acquire(&attempt(&token().to_string())).await {
            Ok(_) => {
                granted_until.set(cut.elapsed());
                assert!(granted_until.get() < 10 * LAG, "it goes on");
                None
            }
            Err(StoreError::Unavailable(Unavailability::Refused(why))) => {
                assert!(why.starts_with("NOREPLICAS"), "{why}");
                Some(())
            }
            Err(other) => panic!("{other:?}"),
        }
    })
    .await;
    let until = granted_until.get();
    println!("a master that was cut off granted locks for {until:?}");
    // The new master has no replica either, and must be told that it needs none.
    let alone = ["CONFIG", "SET", "min-replicas-to-write", "0"];
    split.replica.run(&alone).await;
    split.is_replaced(&others).await;
    granted(others.acquire(&attempt("both")).await);
    let start = Instant::now();
    while start.elapsed() < LAG {
        assert_unavailable(beside.acquire(&attempt("both")).await);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_who_waited_beside_the_old_master_is_not_told_that_nothing_follows() {
    let split = Split::start("").await;
    let waits = waits_for(1, 500);
    let beside = TestGateway::with(&url([split.beside.node()].into_iter()), &waits);
    let others = split.among_the_others(&quick());
    let held = until_taken(&beside, "lock", 2_000).await;
    let asked = with(request("lock"), |it| it.wait = Duration::from_mins(5));
    let waiter = beside.queue(asked).await;
    until_integer(&split.master, &["WAIT", "1", "1000"], 1).await;
    split.cable.cut();
    beside.release(&held).await;
    left_queued(waiter).await;
    split.is_replaced(&others).await;
    // On this side the waiter's gateway counts as dead by now, or the waiter is granted the lock for three seconds.
    others.until_granted(&attempt("lock")).await;
    split.heals().await;
    let healed = SentinelReply::Master(split.replica.port(), 1);
    split.beside.say(healed);
    split.beside.hint();
    until_integer(&split.replica, &["LLEN", "lg:{lock}:wait"], 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_that_waits_for_a_replica_is_answered_on_one_side_only() {
    let split = Split::start("").await;
    let waits = waits_for(1, 1_000);
    let [beside, others] = [split.beside(&waits), split.among_the_others(&quick())];
    beside.must_grant(&attempt("held")).await;
    split.cable.cut();
    split.is_replaced(&others).await;
    // A grant that was answered counts on the other side, too.
    others.must_refuse(&attempt("held")).await;
    granted(others.acquire(&attempt("both")).await);
    for _ in 0..3 {
        match beside.acquire(&attempt("both")).await {
            Err(StoreError::Unavailable(Unavailability::TooFewReplicas { .. })) => {}
            other => panic!("{other:?}"),
        }
    }
    let key = split.master.text(&["GET", "lg:{both}:lock"]).await;
    assert_eq!(key, "", "it was taken back");
}
