//! Callers that take and leave locks all the time, and what they see: that nothing is answered wrongly,
//! and for how long nothing is answered at all.

use crate::redis::prelude::*;

/// For how long a lock is held that several want, if it is not released: what an attempt has left behind
/// that was not answered.
const SHARED_MS: u64 = 10_000;

/// What the callers have seen.
#[derive(Default)]
pub(crate) struct Observer {
    over: AtomicBool,
    /// The largest fence of each lock that was answered.
    fences: Mutex<BTreeMap<String, u64>>,
    seen: Mutex<Seen>,
    /// Each grant, since the beginning.
    grants: Mutex<Vec<Instant>>,
}

/// What was seen in all.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Seen {
    pub(crate) granted: usize,
    /// Somebody else had it.
    pub(crate) held: usize,
    /// Nothing happened.
    unavailable: usize,
    /// It may have happened.
    unknown: usize,
    /// Leases that were forgotten, as they may be in a failover.
    pub(crate) forgotten: usize,
}

/// Waits until all of these stores hear messages.
pub(crate) async fn until_heard(stores: &[Arc<RedisStore>]) {
    let hears = |store: &Arc<RedisStore>| store.figures().hears == Some(true);
    until("messages are heard", async || stores.iter().all(hears)).await;
}

// === impl Observer ===

impl Observer {
    /// Takes and leaves locks until it is over. Each is wanted by two callers, who are at two gateways:
    /// fences rise, whoever is the master and whoever is granted them.
    pub(crate) async fn call(&self, store: &impl Store, caller: usize) {
        for turn in 0.. {
            if self.over.load(Ordering::SeqCst) {
                return;
            }
            let lock = format!("pair-{}-{}", caller / 2, turn % 5);
            let asked = with(attempt(&lock), |it| it.ttl = ttl(SHARED_MS));
            self.visit(store, &asked).await;
            // A caller needs some time for what it does with the lock.
            sleep(Duration::from_millis(2)).await;
        }
    }

    /// The same with these locks, which nobody else wants.
    pub(crate) async fn call_for(&self, store: &impl Store, names: &[String]) {
        while !self.over.load(Ordering::SeqCst) {
            for name in names {
                let asked = attempt(name);
                if self.visit(store, &asked).await {
                    // Of an attempt before this one nobody knows whether it was released.
                    drop(store.break_lock(&asked.name, None).await);
                }
            }
            sleep(Duration::from_millis(2)).await;
        }
    }

    /// Whether somebody else holds it.
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
            Ok(Release::Released)
            | Err(StoreError::Unavailable(_) | StoreError::Indeterminate(_)) => {}
            other => panic!("{}: {other:?}", asked.name),
        }
        false
    }

    /// The largest fence of a lock that was answered to anybody.
    fn last_fence(&self, name: &str) -> u64 {
        let fences = self.fences.lock().unwrap();
        fences.get(name).copied().unwrap_or_default()
    }

    pub(crate) fn stop(&self) {
        self.over.store(true, Ordering::SeqCst);
    }

    /// Waits until somebody is granted a lock from now on, and says how long that took.
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
