//! Callers that acquire and release locks without a pause. They check that no answer is wrong, and record how long no
//! answer comes.

use crate::redis::prelude::*;

/// The TTL of locks with several callers: it ends what an unanswered attempt has left behind.
const SHARED_MS: u64 = 10_000;

/// What the callers have seen.
#[derive(Default)]
pub(crate) struct Observer {
    over: AtomicBool,
    /// The largest fencing token of each lock that was answered.
    fences: Mutex<BTreeMap<String, u64>>,
    seen: Mutex<Seen>,
    /// The times of all grants.
    grants: Mutex<Vec<Instant>>,
}

/// The sums of what the callers have seen.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Seen {
    pub(crate) granted: usize,
    /// Answers that another caller held the lock.
    pub(crate) held: usize,
    /// Requests that had no effect.
    unavailable: usize,
    /// Requests with an unknown outcome.
    unknown: usize,
    /// Leases that were lost, as they may be in a failover.
    pub(crate) forgotten: usize,
}

/// Waits until all of these stores receive messages.
pub(crate) async fn until_heard(stores: &[Arc<RedisStore>]) {
    let hears = |store: &Arc<RedisStore>| store.figures().hears == Some(true);
    until("messages are heard", async || stores.iter().all(hears)).await;
}

// === impl Observer ===

impl Observer {
    /// Acquires and releases locks until the test is over. Each lock has two callers at two gateways: its fencing
    /// tokens rise, whichever server is the master.
    pub(crate) async fn call(&self, store: &impl Store, caller: usize) {
        for turn in 0.. {
            if self.over.load(Ordering::SeqCst) {
                return;
            }
            let lock = format!("pair-{}-{}", caller / 2, turn % 5);
            let asked = with(attempt(&lock), |it| it.terms.set_ttl(ttl(SHARED_MS)));
            self.visit(store, &asked).await;
            // A caller works for some time under the lock.
            sleep(Duration::from_millis(2)).await;
        }
    }

    /// Acquires and releases these locks, which have no other caller.
    pub(crate) async fn call_for(&self, store: &impl Store, names: &[String]) {
        while !self.over.load(Ordering::SeqCst) {
            for name in names {
                let asked = attempt(name);
                if self.visit(store, &asked).await {
                    // Whether the attempt before this one was released is unknown.
                    drop(store.break_lock(&asked.name, None).await);
                }
            }
            sleep(Duration::from_millis(2)).await;
        }
    }

    /// Acquires and releases a lock. Answers whether another caller held it.
    async fn visit(&self, store: &impl Store, asked: &Attempt) -> bool {
        let name = asked.name.as_str();
        let before = self.last_fence(name);
        match store.acquire(asked).await {
            Ok(Acquisition::Granted(lease)) => {
                self.seen.lock().unwrap().granted += 1;
                self.grants.lock().unwrap().push(Instant::now());
                let fence = lease.fence.get();
                assert!(fence > before, "{name}: {fence} after {before}");
                let mut fences = self.fences.lock().unwrap();
                let last = fences.entry(name.to_owned()).or_default();
                *last = fence.max(*last);
            }
            Ok(Acquisition::Held(_)) => {
                self.seen.lock().unwrap().held += 1;
                return true;
            }
            Ok(other) => panic!("{}: {other:?}", asked.name),
            Err(StoreError::Unavailable(_)) => {
                self.seen.lock().unwrap().unavailable += 1;
                return false;
            }
            Err(StoreError::Indeterminate(_)) => {
                self.seen.lock().unwrap().unknown += 1;
            }
            Err(other) => panic!("{}: {other:?}", asked.name),
        }
        match store.release(&asked.name, &asked.token).await {
            Ok(Release::Lost(Loss::Free | Loss::HeldByAnother)) => {
                self.seen.lock().unwrap().forgotten += 1;
            }
            Ok(Release::Released(_))
            | Err(StoreError::Unavailable(_) | StoreError::Indeterminate(_)) => {}
            other => panic!("{}: {other:?}", asked.name),
        }
        false
    }

    /// The largest fencing token of a lock that was answered to any caller.
    fn last_fence(&self, name: &str) -> u64 {
        let fences = self.fences.lock().unwrap();
        fences.get(name).copied().unwrap_or_default()
    }

    pub(crate) fn stop(&self) {
        self.over.store(true, Ordering::SeqCst);
    }

    /// Waits for the next grant after `since`. Answers how long it took.
    pub(crate) async fn served(&self, since: Instant, within: Duration) -> Duration {
        loop {
            let grants = self.grants.lock().unwrap().clone();
            if let Some(at) = grants.into_iter().find(|at| *at > since) {
                return at - since;
            }
            let expected = since.elapsed() < within;
            assert!(expected, "nobody was served within {within:?}");
            sleep(Duration::from_millis(5)).await;
        }
    }

    pub(crate) fn seen(&self) -> Seen {
        *self.seen.lock().unwrap()
    }
}
