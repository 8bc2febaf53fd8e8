//! A store whose disk and clock are in hand.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use tempfile::TempDir;
use tokio::time::{Instant, sleep};

use crate::{
    clock::ManualClock,
    lock::{
        Fingerprint, HeldLease, HoldLimit, IdempotencyHash, Limit, LockName, Metadata, Salt,
        Sharing, Token, Ttl,
    },
    store::{
        Store, StoreError,
        contract::{Acquisition, Attempt, Holder, Idempotency, Inspection},
        embedded::{
            EmbeddedStore, OpenError,
            log::{Directory, Volume},
            records::Rows,
            state::{CopyCursor, State},
        },
    },
};

use super::disk::{Disk, Fault};

/// A store whose disk and clock are in hand.
pub(super) struct Rig {
    pub(super) clock: Arc<ManualClock>,
    pub(super) disk: Disk,
    store: Option<EmbeddedStore>,
    directory: TempDir,
}

// === impl Rig ===

impl Rig {
    pub(super) fn start() -> Self {
        let wall = SystemTime::UNIX_EPOCH + Duration::from_hours(500_000);
        let mut rig = Self {
            clock: Arc::new(ManualClock::at(wall)),
            disk: Disk::default(),
            store: None,
            directory: TempDir::new().unwrap(),
        };
        rig.open().unwrap();
        rig
    }

    /// A store in an empty directory, into which this log file was put, with the same clock.
    pub(super) fn restored(&self, log: &[u8]) -> Result<Self, OpenError> {
        let mut rig = Self {
            clock: Arc::clone(&self.clock),
            disk: Disk::default(),
            store: None,
            directory: TempDir::new().unwrap(),
        };
        rig.disk.draft(log).unwrap();
        rig.disk.put_in_place(1).unwrap();
        rig.open()?;
        Ok(rig)
    }

    pub(super) fn open(&mut self) -> Result<(), OpenError> {
        let directory = Directory::take(self.directory.path())?;
        let disk = Box::new(self.disk.clone());
        let clock = Arc::clone(&self.clock);
        self.store = Some(EmbeddedStore::start(directory, disk, clock)?);
        Ok(())
    }

    pub(super) async fn close(&mut self) {
        if let Some(store) = self.store.take() {
            store.close().await;
        }
    }

    pub(super) async fn restart(&mut self) {
        self.close().await;
        self.open().unwrap();
    }

    /// The process is killed, and started again in the same boot: what it wrote can be read, synced or not.
    pub(super) async fn kill(&mut self) {
        self.kill_on(Fault::None).await;
    }

    /// The same on a disk with this fault.
    pub(super) async fn kill_on(&mut self, fault: Fault) {
        self.disk.fail(Fault::Dead);
        self.close().await;
        self.disk.fail(fault);
        self.open().unwrap();
    }

    /// The machine stops between two instructions and starts again: another boot.
    pub(super) async fn lose_power(&mut self) {
        // From here nothing that the store still writes is kept.
        self.disk.fail(Fault::Dead);
        self.close().await;
        self.disk.lose_power();
        self.clock.reboot();
        self.open().unwrap();
    }

    pub(super) fn store(&self) -> &EmbeddedStore {
        self.store.as_ref().expect("the store is open")
    }

    pub(super) async fn granted(&self, attempt: &Attempt) -> HeldLease {
        match self.store().acquire(attempt).await {
            Ok(Acquisition::Granted(held)) => held,
            other => panic!("not granted: {other:?}"),
        }
    }

    pub(super) async fn shown(&self, lock: &str) -> Inspection {
        self.store().inspect(&name(lock)).await.unwrap()
    }

    pub(super) async fn is_free(&self, lock: &str) -> bool {
        self.shown(lock).await.holder.is_none()
    }

    /// What is left of the lease of a lock.
    pub(super) async fn left(&self, lock: &str) -> Duration {
        match self.shown(lock).await.holder {
            Some(Holder::Lease(held)) => held.expires_in,
            other => panic!("not held: {other:?}"),
        }
    }

    /// How many rows are remembered.
    pub(super) fn remembered(&self) -> u64 {
        self.store().state.read().len()
    }

    /// Waits until the store can write again.
    pub(super) async fn writes_again(&self) -> HeldLease {
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            let probe = attempt("probe", 60_000);
            match self.store().acquire(&probe).await {
                Ok(Acquisition::Granted(held)) => {
                    let release = self.store().release(&probe.name, &probe.token).await;
                    release.unwrap();
                    return held;
                }
                Ok(other) => panic!("the probe must be free: {other:?}"),
                Err(StoreError::Unavailable(_)) => {}
                Err(error) => panic!("a disk that has failed is not written: {error}"),
            }
            assert!(Instant::now() < deadline, "the store does not recover");
            sleep(Duration::from_millis(10)).await;
        }
    }
}

/// The rows of everything that lives.
pub(super) fn all_rows(state: &State) -> Rows {
    let mut rows = Rows::default();
    let more = state.copy(CopyCursor::START, usize::MAX, &mut rows);
    assert!(more.is_none());
    rows
}

pub(super) fn name(text: &str) -> LockName {
    LockName::new(text).unwrap()
}

pub(super) fn ttl(ms: u64) -> Ttl {
    Ttl::from_millis(ms).unwrap()
}

pub(super) fn key() -> IdempotencyHash {
    IdempotencyHash::from_bytes(*Token::random().hash().as_bytes())
}

/// How those share a lock who set a limit, or none.
pub(super) fn share(limit: Option<u64>) -> Sharing {
    Sharing {
        limit: Limit::new(limit.unwrap_or(1_000)).unwrap(),
        has_slot: limit.is_some(),
    }
}

/// An attempt that shares the lock, as one of so many.
pub(super) fn one_of(limit: u64, lock: &str, ms: u64) -> Attempt {
    Attempt {
        sharing: Some(share(Some(limit))),
        ..attempt(lock, ms)
    }
}

/// An attempt that shares the lock with any number of others.
pub(super) fn reader(lock: &str, ms: u64) -> Attempt {
    Attempt {
        sharing: Some(share(None)),
        ..attempt(lock, ms)
    }
}

pub(super) fn attempt(lock: &str, ms: u64) -> Attempt {
    Attempt {
        name: name(lock),
        token: Token::random().hash(),
        ttl: ttl(ms),
        hold_limit: None,
        sharing: None,
        owner: None,
        metadata: Metadata::default(),
        idempotency: None,
        wait: None,
    }
}

pub(super) fn keyed(lock: &str, ms: u64, hash: IdempotencyHash) -> Attempt {
    let plain = attempt(lock, ms);
    let idempotency = Idempotency {
        hash,
        fingerprint: Fingerprint::of(Some(plain.ttl), None, None, None, &plain.metadata),
        salt: Salt::random(),
    };
    Attempt {
        idempotency: Some(idempotency),
        ..plain
    }
}

pub(super) fn limited(lock: &str, ms: u64, limit_ms: u64) -> Attempt {
    Attempt {
        hold_limit: Some(HoldLimit::from_millis(limit_ms, ttl(ms)).unwrap()),
        ..attempt(lock, ms)
    }
}
