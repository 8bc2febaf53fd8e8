//! Callers that take and leave locks all the time, and what they see: that nothing is answered wrongly,
//! and for how long nothing is answered at all.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use latchgate::store::{
    Store, StoreError,
    contract::{Acquisition, Attempt, Loss, Release},
};
use tokio::time::{Instant, sleep};

use super::super::rig::attempt;

/// What the callers have seen.
#[derive(Default)]
pub(crate) struct Observer {
    over: AtomicBool,
    /// The last fence of each lock.
    fences: Mutex<BTreeMap<String, u64>>,
    granted: AtomicUsize,
    /// Nothing happened.
    unavailable: AtomicUsize,
    /// It may have happened.
    unknown: AtomicUsize,
    /// Leases that were forgotten, as they may be in a failover.
    forgotten: AtomicUsize,
    /// Each grant, since the beginning.
    grants: Mutex<Vec<Instant>>,
}

/// What was seen in all.
#[derive(Debug, Clone, Copy)]
#[expect(dead_code, reason = "they are read where a test prints them")]
pub(crate) struct Seen {
    pub(crate) granted: usize,
    pub(crate) unavailable: usize,
    pub(crate) unknown: usize,
    pub(crate) forgotten: usize,
}

// === impl Observer ===

impl Observer {
    /// Takes and leaves locks of its own until it is over: its fences rise, whoever is the master.
    pub(crate) async fn call(&self, store: &dyn Store, caller: usize) {
        for turn in 0.. {
            if self.over.load(Ordering::SeqCst) {
                return;
            }
            let asked = attempt(&format!("caller-{caller}-{}", turn % 5));
            self.visit(store, &asked).await;
            // A caller needs some time for what it does with the lock.
            sleep(Duration::from_millis(2)).await;
        }
    }

    async fn visit(&self, store: &dyn Store, asked: &Attempt) {
        match store.acquire(asked).await {
            Ok(Acquisition::Granted(lease)) => {
                self.granted.fetch_add(1, Ordering::SeqCst);
                self.grants.lock().unwrap().push(Instant::now());
                let mut fences = self.fences.lock().unwrap();
                let last = fences.entry(asked.name.as_str().to_owned()).or_default();
                let fence = lease.fence.get();
                assert!(fence > *last, "{}: {fence} after {last}", asked.name);
                *last = fence;
            }
            // Of an attempt before this one nobody knows whether it was released.
            Ok(Acquisition::Held(_)) => {
                drop(store.break_lock(&asked.name, None).await);
                return;
            }
            Ok(other) => panic!("{}: {other:?}", asked.name),
            Err(StoreError::Unavailable(_)) => {
                self.unavailable.fetch_add(1, Ordering::SeqCst);
                return;
            }
            Err(StoreError::Indeterminate(_)) => {
                self.unknown.fetch_add(1, Ordering::SeqCst);
            }
            Err(other) => panic!("{}: {other:?}", asked.name),
        }
        match store.release(&asked.name, &asked.token).await {
            Ok(Release::Lost(Loss::Free)) => {
                self.forgotten.fetch_add(1, Ordering::SeqCst);
            }
            Ok(Release::Released)
            | Err(StoreError::Unavailable(_) | StoreError::Indeterminate(_)) => {}
            other => panic!("{}: {other:?}", asked.name),
        }
    }

    pub(crate) fn stop(&self) {
        self.over.store(true, Ordering::SeqCst);
    }

    /// Waits until somebody is granted a lock from now on, and says how long that took.
    pub(crate) async fn served(&self, since: Instant, within: Duration) -> Duration {
        loop {
            let next = self
                .grants
                .lock()
                .unwrap()
                .iter()
                .copied()
                .find(|at| *at > since);
            if let Some(at) = next {
                return at - since;
            }
            assert!(
                since.elapsed() < within,
                "nobody was served within {within:?}"
            );
            sleep(Duration::from_millis(5)).await;
        }
    }

    pub(crate) fn seen(&self) -> Seen {
        let of = |count: &AtomicUsize| count.load(Ordering::SeqCst);
        Seen {
            granted: of(&self.granted),
            unavailable: of(&self.unavailable),
            unknown: of(&self.unknown),
            forgotten: of(&self.forgotten),
        }
    }
}
