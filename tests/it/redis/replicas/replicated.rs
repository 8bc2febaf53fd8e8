//! Grants that are answered only after replicas have them.

use crate::redis::prelude::*;

/// A master and its replica.
pub(crate) struct Pair {
    pub(crate) master: RedisServer,
    pub(crate) replica: RedisServer,
}

// === impl Pair ===

impl Pair {
    pub(crate) async fn start() -> Self {
        let master = RedisServer::start_with(&["--repl-diskless-sync-delay", "0"]).await;
        let port = master.port().to_string();
        let options = ["--replicaof", "127.0.0.1", &port];
        let pair = Self {
            replica: RedisServer::start_with(&options).await,
            master,
        };
        pair.together().await;
        pair
    }

    /// A master and its replica, and a store that has already granted a lock.
    pub(crate) async fn with_store() -> (Self, RedisStore) {
        let pair = Self::start().await;
        let store = open_with(&pair.master.url(), &waits());
        store.must_grant(&attempt("first")).await;
        (pair, store)
    }

    /// Lets a frozen replica run again, and waits until it has all data of the master.
    pub(crate) async fn thaw(&self) {
        self.replica.thaw();
        self.together().await;
    }

    /// Waits until the replica has all data of the master.
    pub(crate) async fn together(&self) {
        until_integer(&self.master, &["WAIT", "1", "500"], 1).await;
    }

    /// Closes only the connection on which the store writes its markers.
    pub(crate) async fn hang_up_on_markers(&self) {
        let clients = self.master.text(&["CLIENT", "LIST"]).await;
        let mut lines = clients.lines().filter(|line| line.contains(" cmd=wait "));
        let line = lines.find(|line| !line.contains(" flags=S "));
        let id = line.and_then(|line| line.strip_prefix("id=")?.split(' ').next());
        let id = id.expect("there is such a connection");
        let ended = self.master.integer(&["CLIENT", "KILL", "ID", id]).await;
        assert_eq!(ended, 1);
    }

    async fn holder(&self, lock: &str) -> String {
        let key = format!("lg:{{{lock}}}:lock");
        self.master.text(&["GETRANGE", &key, "1", "64"]).await
    }
}

/// One replica must have each grant, within a time that even a busy machine does not need.
pub(crate) fn waits() -> RedisConfig {
    RedisConfig {
        wait_replicas: 1,
        wait_timeout_ms: Millis(3_000),
        command_timeout_ms: Millis(2_000),
        deadline_ms: Millis(5_000),
        ..quick()
    }
}

/// Asserts that the outcome is unknown because the replica may not have the grant.
#[track_caller]
pub(super) fn assert_not_replicated(answer: Result<Acquisition, StoreError>) {
    match answer {
        Err(StoreError::Indeterminate(Uncertainty::NotReplicated(_))) => {}
        other => panic!("{other:?}"),
    }
}

/// The number of replicas, if fewer than the required one confirmed that a waiter has left the queue. The other
/// replicas still have the waiter in their queue, and may become the master.
pub(crate) async fn left_queued(waiter: PendingAcquire) -> Option<u32> {
    match waiter.refusal().await {
        AcquireError::Store(StoreError::Indeterminate(Uncertainty::LeftQueued(why))) => {
            too_few(Some(why.into()))
        }
        other => panic!("{other:?}"),
    }
}

#[track_caller]
pub(crate) fn too_few(error: Option<StoreError>) -> Option<u32> {
    match error {
        Some(StoreError::Unavailable(Unavailability::TooFewReplicas {
            wanted: 1,
            confirmed,
        })) => confirmed,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn what_is_answered_is_on_the_replica() {
    let (pair, store) = Pair::with_store().await;
    for lock in ["a", "b", "c"] {
        let asked = store.must_hold(attempt(lock)).await;
        assert_holds(&pair.replica, lock, &asked.token, "").await;
    }
    assert_eq!(health(&store, "replicas").await, Some(Health::Passing));
    assert_eq!(store.figures().replicas, Some(1));
}

#[tokio::test]
async fn a_grant_that_the_replica_does_not_get_is_taken_back_and_its_key_may_be_used_again() {
    let (pair, store) = Pair::with_store().await;
    // The replica is connected, but does not answer.
    pair.replica.freeze();
    let asked = keyed("a", "k");
    assert_eq!(too_few(store.acquire(&asked).await.err()), Some(0));
    assert_eq!(pair.holder("a").await, "", "nothing happened");
    store.must_withdraw(&asked).await;
    until_health(&store, "replicas", Health::Outage, "0 of 1 replicas").await;
    pair.thaw().await;
    granted(store.acquire(&keyed("a", "k")).await);
}

#[tokio::test]
async fn a_lock_that_is_handed_on_is_answered_when_the_replica_has_it() {
    let pair = Pair::start().await;
    let gates = [0, 1].map(|_| TestGateway::with(&pair.master.url(), &waits()));
    let mut lease = gates[0].take("a").await;
    // The grant is learned from the reply to the release, and from a message.
    for gate in [&gates[0], &gates[1]] {
        let next = gate.queue(request("a")).await;
        gates[0].release(&lease).await;
        lease = next.lease().await;
        assert_holds(&pair.replica, "a", &lease.token.hash(), "").await;
    }
}

#[tokio::test]
async fn a_lock_that_is_handed_on_and_not_on_the_replica_is_nobodys() {
    let pair = Pair::start().await;
    let gates = [0, 1].map(|_| TestGateway::with(&pair.master.url(), &waits()));
    for gate in [&gates[0], &gates[1]] {
        let lease = gates[0].take("a").await;
        let next = gate.queue(request("a")).await;
        pair.replica.freeze();
        gates[0].release(&lease).await;
        assert_eq!(left_queued(next).await, Some(0));
        pair.thaw().await;
        assert_eq!(gates[0].look("a").await, free());
    }
}

#[tokio::test]
async fn one_who_leaves_the_queue_with_a_grant_that_is_not_on_the_replica_has_none() {
    let (pair, store) = Pair::with_store().await;
    let asked = store.must_hold(attempt("a")).await;
    pair.replica.freeze();
    // A waiter that was granted the lock is told the same error.
    let left = store.leave(&asked.name, &asked.token, None).await.err();
    assert_eq!(too_few(left), Some(0));
    store.must_not_confirm(&asked, Confirmation::Lost).await;
    assert_eq!(pair.holder("a").await, "");
    pair.replica.thaw();
}

#[tokio::test]
async fn a_lease_that_somebody_may_have_heard_of_is_not_taken_back() {
    let (pair, store) = Pair::with_store().await;
    let asked = store.must_hold(keyed("a", "k")).await;
    pair.replica.freeze();
    assert_not_replicated(store.acquire(&keyed("a", "k")).await);
    assert_eq!(pair.holder("a").await, asked.token.to_string());
    pair.thaw().await;
    store.must_replay(&keyed("a", "k")).await;
}

#[tokio::test]
async fn many_who_are_granted_together_share_a_marker() {
    let (pair, store) = Pair::with_store().await;
    pair.master.run(&["CONFIG", "RESETSTAT"]).await;
    let asked: Vec<_> = (0..200).map(|n| attempt(&format!("lock-{n}"))).collect();
    let all = join_all(asked.iter().map(|asked| store.acquire(asked))).await;
    for acquired in all {
        granted(acquired);
    }
    let calls = pair.master.calls("wait").await;
    assert!(calls > 0, "replicas were waited for");
    assert!(calls < 100, "{calls} markers for 200 grants");
}

#[tokio::test]
async fn a_grant_that_was_lost_before_it_was_marked_is_not_answered() {
    let mut pair = Pair::start().await;
    let (proxy, store) = behind_proxy(&pair.master, &waits()).await;
    granted(store.acquire(&attempt("first")).await);
    proxy.strike("marker", Fault::HoldRequest);
    let asked = attempt("a");
    let (acquired, ()) = tokio::join!(store.acquire(&asked), async {
        proxy.struck(1).await;
        // A server without persistence loses the grant, and its replica loses it too.
        pair.master.kill();
        pair.master.start_again().await;
        pair.together().await;
        proxy.let_go();
    });
    assert_eq!(too_few(acquired.err()), None, "nobody knows who had it");
    assert_eq!(pair.holder("a").await, "");
    granted(store.acquire(&attempt("a")).await);
}

#[tokio::test]
async fn a_grant_that_cannot_be_taken_back_either_may_have_happened() {
    let pair = Pair::start().await;
    let (proxy, store) = behind_proxy(&pair.master, &waits()).await;
    let first = store.must_hold(attempt("first")).await;
    // The server knows the script by now, so that it carries out a late copy.
    store
        .give_back(&first.name, &first.token, None)
        .await
        .unwrap();
    pair.replica.freeze();
    proxy.strike("marker", Fault::HoldReply);
    let asked = attempt("a");
    let (acquired, ()) = tokio::join!(store.acquire(&asked), async {
        proxy.struck(1).await;
        pair.master.freeze();
        proxy.let_go();
    });
    assert_not_replicated(acquired);
    pair.master.thaw();
    pair.replica.thaw();
    // The late release of the undelivered lease is carried out.
    eventually("nobody holds it", async || {
        let inspection = store.inspect(&name("a")).await.ok()?;
        (inspection == free()).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_connection_for_markers_that_was_lost_costs_one_caller_at_most() {
    let (pair, store) = Pair::with_store().await;
    for round in 0..10 {
        pair.hang_up_on_markers().await;
        let asked: Vec<_> = (0..5)
            .map(|n| attempt(&format!("lock-{round}-{n}")))
            .collect();
        let mut these = 0;
        for asked in &asked {
            match store.acquire(asked).await {
                Ok(acquisition) => drop(granted(Ok(acquisition))),
                Err(error) => {
                    assert_eq!(too_few(Some(error)), None, "nobody knows who has it");
                    assert_eq!(pair.holder(asked.name.as_str()).await, "");
                    these += 1;
                }
            }
        }
        assert!(these <= 1, "{these} of five were refused");
    }
}

#[tokio::test]
async fn a_user_who_may_not_wait_is_told_so() {
    let pair = Pair::start().await;
    pair.master.set_user("gate on >pw ~* &* +@all -wait").await;
    let url = pair.master.url_as("gate", "pw");
    let store = open_with(&url, &waits());
    assert_misconfigured(store.acquire(&attempt("a")).await, "wait");
    assert_health(&store, "replicas", Health::Misconfigured, "ACL SETUSER").await;
    assert_eq!(pair.holder("a").await, "", "nothing was granted");
}

#[tokio::test]
async fn without_a_replica_nobody_is_kept_waiting_who_does_not_ask_for_one() {
    let server = RedisServer::start().await;
    let store = open(&server.url());
    granted(store.acquire(&attempt("a")).await);
    assert_eq!(health(&store, "replicas").await, None);
    assert_eq!(store.figures().replicas, None);
    let stats = server.text(&["INFO", "commandstats"]).await;
    assert!(!stats.contains("cmdstat_wait"), "{stats}");
    let closed = timeout(TIMEOUT, store.close()).await;
    closed.unwrap();
}
