//! A failover that loses no answered grant, because every replica had the grant before the answer.

use super::{named::Named, watched::OPTIONS};
use crate::redis::prelude::*;

/// Longer than a failover takes on a busy machine.
const LONG_MS: u64 = 300_000;
/// The longest time for which a lock with several callers is held.
const SHARED_MS: u64 = 10_000;
/// The number of locks that all callers contend for.
const SHARED: usize = 3;

/// Callers that ask without a pause, and the answers that they got.
#[derive(Default)]
struct Callers {
    over: AtomicBool,
    /// Leases of locks with a single caller, which are kept.
    kept: Mutex<Vec<Lease>>,
    /// Locks with several callers that one of them holds at the moment.
    inside: Mutex<HashSet<String>>,
    handed_on: AtomicUsize,
    refused: AtomicUsize,
}

// === impl Callers ===

impl Callers {
    /// Acquires one lock after the other, and keeps all leases.
    async fn keep(&self, gate: &TestGateway, caller: usize) {
        for turn in 0.. {
            if self.over.load(Ordering::SeqCst) {
                return;
            }
            let mut asked = request(&format!("kept-{caller}-{turn}"));
            asked.terms.set_ttl(ttl(LONG_MS));
            asked.wait = Duration::ZERO;
            if let Some(lease) = self.ask(gate, asked).await {
                self.kept.lock().unwrap().push(lease);
            }
        }
    }

    /// Acquires and releases the locks that all callers contend for.
    async fn share(&self, gate: &TestGateway) {
        for turn in 0.. {
            if self.over.load(Ordering::SeqCst) {
                return;
            }
            let lock = format!("shared-{}", turn % SHARED);
            let mut asked = request(&lock);
            asked.terms.set_ttl(ttl(SHARED_MS));
            asked.wait = Duration::from_secs(2);
            let Some(lease) = self.ask(gate, asked).await else {
                continue;
            };
            assert!(lease.held.expires_in > Duration::from_millis(SHARED_MS / 2));
            self.handed_on
                .fetch_add(usize::from(!lease.waited.is_zero()), Ordering::SeqCst);
            let alone = self.inside.lock().unwrap().insert(lock.clone());
            assert!(alone, "{lock} was granted to two");
            sleep(Duration::from_millis(1)).await;
            self.inside.lock().unwrap().remove(&lock);
            match gate.store.release(&lease.name, &lease.token.hash()).await {
                Ok(Release::Released(_) | Release::Lost(_))
                | Err(StoreError::Unavailable(_) | StoreError::Indeterminate(_)) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    async fn ask(&self, gate: &TestGateway, asked: AcquireRequest) -> Option<Lease> {
        if let Ok(granted) = gate.engine.acquire(asked).await {
            granted.delivery.delivered();
            return Some(granted.lease);
        }
        self.refused.fetch_add(1, Ordering::SeqCst);
        sleep(Duration::from_millis(2)).await;
        None
    }

    /// Waits until a count has risen by `more`.
    async fn more(&self, what: &str, more: usize, count: impl Fn(&Self) -> usize) {
        let before = count(self);
        eventually(what, async || (count(self) >= before + more).then_some(())).await;
    }
}

/// Both replicas must have each grant, so that either has it if it becomes the master.
fn waits_for_both() -> RedisConfig {
    waits_for(2, 1_000)
}

#[tokio::test]
async fn a_grant_that_waits_while_another_server_becomes_the_master_has_not_happened_there() {
    let config = with(waits_for(1, 5_000), |it| it.deadline_ms = Millis(10_000));
    let named = Named::start_with(1, &config).await;
    let store = &named.store;
    // The server has no replica. The test waits until the store knows this, so that no other command disturbs it.
    until_too_few(store).await;
    let asked = attempt("a");
    let (acquired, ()) = tokio::join!(store.acquire(&asked), async {
        let held = ["EXISTS", "lg:{a}:lock"];
        until_integer(&named.servers[0], &held, 1).await;
        named.hand_on();
    });
    let unknown = StoreError::Unavailable(Unavailability::TooFewReplicas {
        wanted: 1,
        confirmed: None,
    });
    assert_eq!(acquired.err(), Some(unknown));
    // The attempt is withdrawn, however late a copy of its acquire reaches the new master.
    store.must_withdraw(&asked).await;
}

#[tokio::test]
async fn readiness_warns_before_a_failover_that_would_leave_too_few_replicas() {
    let watched = Watched::start_small().await;
    let waits_for = |wait_replicas| with(waits_for_both(), |it| it.wait_replicas = wait_replicas);
    let store = open_with(&watched.url(), &waits_for(1));
    granted(store.acquire(&attempt("granted-still")).await);
    assert_health(&store, "replicas", Health::Warning, "after a failover").await;
    let master = watched.servers[0].port();
    let another = format!("{OPTIONS} --replicaof 127.0.0.1 {master}");
    let _another = RedisServer::start_as(&another).await;
    until_passing(&store, "replicas").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_answered_is_held_after_the_failover_and_granted_to_nobody_else() {
    let mut watched = Watched::start().await;
    let gates = [0, 1].map(|_| Arc::new(TestGateway::with(&watched.url(), &waits_for_both())));
    let callers = Arc::new(Callers::default());
    let mut asking = JoinSet::new();
    for (n, gate) in gates.iter().enumerate() {
        for _ in 0..2 {
            let (callers, gate) = (Arc::clone(&callers), Arc::clone(gate));
            asking.spawn(async move { callers.share(&gate).await });
        }
        let (callers, gate) = (Arc::clone(&callers), Arc::clone(gate));
        asking.spawn(async move { callers.keep(&gate, n).await });
    }
    let handed_on = |it: &Callers| it.handed_on.load(Ordering::SeqCst);
    callers.more("locks are handed on", 100, handed_on).await;
    let kept = |it: &Callers| it.kept.lock().unwrap().len();
    callers.more("locks are kept", 50, kept).await;

    // From here on no replica gets any data, and the master runs for a while.
    watched.cut_off_replicas(0).await;
    let refused = |it: &Callers| it.refused.load(Ordering::SeqCst);
    callers.more("they are refused", 4, refused).await;
    let master = watched.lose_master().await;
    until("the new master is followed", async || {
        let node = format!("127.0.0.1:{}", watched.servers[master].port());
        let follows = |gate: &Arc<TestGateway>| gate.figures().master.map(|(node, _)| node);
        gates
            .iter()
            .all(|gate| follows(gate).as_ref() == Some(&node))
    })
    .await;
    // There is a second replica again.
    watched.servers[0].start_again().await;
    let again = "locks are handed on again";
    callers.more(again, 20, handed_on).await;
    callers.over.store(true, Ordering::SeqCst);
    // No lock was granted to two callers.
    asking.join_all().await;

    let kept = std::mem::take(&mut *callers.kept.lock().unwrap());
    let (count, handed_on, refused) = (kept.len(), handed_on(&callers), refused(&callers));
    println!("{count} leases were kept, {handed_on} handed on, {refused} requests refused");
    for lease in &kept {
        gates[0].must_refuse(&attempt(lease.name.as_str())).await;
        let renewed = gates[1].renew(&lease.name, &lease.token.hash(), None).await;
        match renewed {
            Ok(Renewal::Renewed(held, _)) => assert_eq!(held.fence, lease.held.fence),
            other => panic!("{}: {other:?}", lease.name),
        }
    }
}
