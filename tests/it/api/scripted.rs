//! A store that answers what the test says.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
    time::Duration,
};

use latchgate::{
    lock::{
        BreakTarget, FencingToken, HeldLease, HoldLimit, KeeperId, LockName, Metadata, Mode,
        ReleaseRequest, TokenHash, Ttl,
    },
    store::{
        AnyStore, Store, StoreError,
        contract::{
            Acquisition, Attempt, BreakFeed, Breaking, Check, Confirmation, Contention, GiveBack,
            Holder, Inspection, Leaving, ListQuery, Page, QueuePosition, Release, Renewal,
            RenewalTtl, Renewer, Requesting, SharedHolders,
        },
        parking::{News, Parking},
    },
};
use tokio::{sync::Notify, time::Instant};

/// What a test says, and what the store was asked.
///
/// An answer that was not said in advance is the simplest success.
#[derive(Default)]
pub(crate) struct Script {
    pub(crate) acquire: Mutex<VecDeque<Result<Acquisition, StoreError>>>,
    pub(crate) renew: Mutex<VecDeque<Result<Renewal, StoreError>>>,
    pub(crate) release: Mutex<VecDeque<Result<Release, StoreError>>>,
    pub(crate) leave: Mutex<VecDeque<Result<Leaving, StoreError>>>,
    pub(crate) confirm: Mutex<VecDeque<Result<Confirmation, StoreError>>>,
    pub(crate) inspect: Mutex<VecDeque<Result<Inspection, StoreError>>>,
    pub(crate) list: Mutex<VecDeque<Result<Page, StoreError>>>,
    pub(crate) break_lock: Mutex<VecDeque<Result<Breaking, StoreError>>>,
    pub(crate) request_release: Mutex<VecDeque<Result<Requesting, StoreError>>>,
    pub(crate) breaks: BreakFeed,
    pub(crate) check: Mutex<Vec<Check>>,
    pub(crate) asked: Mutex<Vec<StoreCall>>,
    /// Who keeps the lease, if it is not the attempt that was granted it.
    pub(crate) adopted_by: Mutex<Option<KeeperId>>,
    pub(crate) parking: Parking,
    /// While it is set, nothing is answered.
    pub(crate) paused: Pause,
    /// The store cannot share a lock.
    pub(crate) shares_nothing: std::sync::atomic::AtomicBool,
    /// The next command panics.
    pub(crate) panics: std::sync::atomic::AtomicBool,
}

/// A command that the store got.
#[derive(Debug, Clone)]
pub(crate) enum StoreCall {
    Acquire(Box<Attempt>),
    Renew(TokenHash, RenewalTtl),
    Release(TokenHash),
    Confirm,
    /// With how long the place is kept.
    Leave(Option<Duration>),
    GiveBack(TokenHash),
    Inspect,
    List(Box<ListQuery>),
    Break(LockName, Option<BreakTarget>),
    RequestRelease(LockName, Option<BreakTarget>, Box<ReleaseRequest>),
}

/// Holds commands up until it is lifted.
#[derive(Default)]
pub(crate) struct Pause {
    is_set: std::sync::atomic::AtomicBool,
    lifted: Notify,
}

/// The store that follows a script.
pub(crate) struct Scripted(pub(crate) Arc<Script>);

/// How long the time of a scripted lease stands still, so that it is told as the test says.
const STANDS: Duration = Duration::from_hours(24);

/// A lease of 30 s, just granted, with a fencing token of 42.
pub(crate) fn held() -> HeldLease {
    let ttl = Ttl::from_millis(30_000).unwrap();
    HeldLease {
        fence: FencingToken::new(42).unwrap(),
        mode: Mode::Exclusive,
        ttl,
        expires_in: ttl.duration(),
        held_for: Duration::ZERO,
        hold_expires_in: None,
        owner: None,
        metadata: Metadata::default(),
        release_requested: None,
        as_of: Instant::now() + STANDS,
    }
}

/// Leases that share a lock: fencing tokens from 42 on, slots from 0 on, each a second longer than the one before.
/// `count` says how many there are in all.
pub(crate) fn sharers(shown: u16, count: u64) -> SharedHolders {
    let lease = |slot: u16| HeldLease {
        fence: FencingToken::new(42 + u64::from(slot)).unwrap(),
        mode: Mode::Shared { slot: Some(slot) },
        expires_in: Duration::from_secs(u64::from(slot) + 1),
        ..held()
    };
    SharedHolders {
        leases: (0..shown).map(lease).collect(),
        count,
    }
}

/// What an attempt is told of a lock that somebody holds and nobody waits for.
pub(crate) fn held_by(holder: Holder) -> Acquisition {
    Acquisition::Held(Contention {
        holder: Some(holder),
        waiters: 0,
    })
}

/// A lock that somebody holds and nobody waits for.
pub(crate) fn shown(holder: Holder) -> Inspection {
    Inspection {
        holder: Some(holder),
        ..free()
    }
}

/// A lock that nobody holds or waits for.
pub(crate) fn free() -> Inspection {
    Inspection {
        holder: None,
        queue: Vec::new(),
        waiters: 0,
    }
}

/// That lease, held by somebody else, and some who wait.
pub(crate) fn contention(waiters: u64) -> Contention {
    Contention {
        holder: Some(Holder::Lease(held())),
        waiters,
    }
}

/// A place in the queue with others before it.
pub(crate) fn queued(ahead: u64) -> Acquisition {
    Acquisition::Queued(QueuePosition {
        ahead,
        waited: Duration::ZERO,
        contention: contention(ahead + 1),
    })
}

// === impl Script ===

impl Script {
    /// The next acquire is answered so.
    pub(crate) fn acquires(&self, answer: Acquisition) {
        self.acquire.lock().unwrap().push_back(Ok(answer));
    }

    /// Tells the news to everybody who waits; says how many there are.
    pub(crate) fn tell(&self, news: &News) -> usize {
        let asked = self.asked();
        let attempts = asked.iter().filter_map(|asked| match asked {
            StoreCall::Acquire(attempt) => Some((&attempt.name, attempt.token)),
            _ => None,
        });
        attempts
            .filter(|(name, token)| self.parking.deliver(name, token, news.clone()))
            .count()
    }

    pub(crate) fn asked(&self) -> Vec<StoreCall> {
        self.asked.lock().unwrap().clone()
    }

    /// How often a lease was given back.
    pub(crate) fn given_back(&self) -> usize {
        let asked = self.asked.lock().unwrap();
        let is_give_back = |asked: &&StoreCall| matches!(asked, StoreCall::GiveBack(_));
        asked.iter().filter(is_give_back).count()
    }

    async fn next<T>(
        &self,
        asked: StoreCall,
        answers: &Mutex<VecDeque<Result<T, StoreError>>>,
        otherwise: T,
    ) -> Result<T, StoreError> {
        self.asked.lock().unwrap().push(asked);
        self.paused.pass().await;
        answers.lock().unwrap().pop_front().unwrap_or(Ok(otherwise))
    }
}

// === impl Pause ===

impl Pause {
    pub(crate) fn set(&self) {
        self.is_set.store(true, std::sync::atomic::Ordering::SeqCst);
    }

    pub(crate) fn lift(&self) {
        self.is_set
            .store(false, std::sync::atomic::Ordering::SeqCst);
        self.lifted.notify_waiters();
    }

    async fn pass(&self) {
        loop {
            let lifted = self.lifted.notified();
            if !self.is_set.load(std::sync::atomic::Ordering::SeqCst) {
                return;
            }
            lifted.await;
        }
    }
}

// === impl Scripted ===

impl From<Scripted> for AnyStore {
    fn from(store: Scripted) -> Self {
        Self::other(Arc::new(store))
    }
}

impl Store for Scripted {
    async fn acquire(&self, attempt: &Attempt) -> Result<Acquisition, StoreError> {
        let mut lease = held();
        lease.ttl = attempt.ttl;
        lease.expires_in = attempt.ttl.duration();
        lease.hold_expires_in = attempt.hold_limit.map(HoldLimit::duration);
        lease.owner.clone_from(&attempt.owner);
        lease.metadata = attempt.metadata.clone();
        lease.mode = attempt.sharing.map_or(Mode::Exclusive, |sharing| {
            let slot = sharing.has_slot.then_some(0);
            Mode::Shared { slot }
        });
        let asked = StoreCall::Acquire(Box::new(attempt.clone()));
        let granted = Acquisition::Granted(lease);
        self.0.next(asked, &self.0.acquire, granted).await
    }

    async fn confirm(&self, _: &LockName, _: &TokenHash) -> Result<Confirmation, StoreError> {
        let asked = StoreCall::Confirm;
        let confirmed = Confirmation::Confirmed(held());
        self.0.next(asked, &self.0.confirm, confirmed).await
    }

    async fn leave(
        &self,
        _: &LockName,
        _: &TokenHash,
        keep_for: Option<Duration>,
    ) -> Result<Leaving, StoreError> {
        let asked = StoreCall::Leave(keep_for);
        let left = Leaving::Left(contention(3));
        self.0.next(asked, &self.0.leave, left).await
    }

    fn parking(&self) -> &Parking {
        &self.0.parking
    }

    async fn renew_as(
        &self,
        renewer: Renewer,
        _: &LockName,
        token: &TokenHash,
        ttl: RenewalTtl,
    ) -> Result<Renewal, StoreError> {
        let mut lease = held();
        lease.held_for = Duration::from_secs(10);
        lease.ttl = ttl.applied_to(lease.ttl);
        lease.expires_in = lease.ttl.duration();
        let asked = StoreCall::Renew(*token, ttl);
        match renewer {
            Renewer::Bearer => {}
            Renewer::Keeper(keeper) => {
                let adopter = *self.0.adopted_by.lock().unwrap();
                if adopter.is_some_and(|adopter| adopter != keeper) {
                    return Ok(Renewal::Adopted);
                }
            }
            Renewer::Adopter(keeper) => *self.0.adopted_by.lock().unwrap() = Some(keeper),
        }
        let margin = lease.expires_in;
        self.0
            .next(asked, &self.0.renew, Renewal::Renewed(lease, margin))
            .await
    }

    async fn release_as(
        &self,
        _: Option<KeeperId>,
        _: &LockName,
        token: &TokenHash,
    ) -> Result<Release, StoreError> {
        let asked = StoreCall::Release(*token);
        self.0.next(asked, &self.0.release, Release::Released).await
    }

    async fn give_back(&self, _: &LockName, token: &TokenHash) -> Result<GiveBack, StoreError> {
        self.0
            .asked
            .lock()
            .unwrap()
            .push(StoreCall::GiveBack(*token));
        Ok(GiveBack::GivenBack)
    }

    async fn give_back_unanswered(
        &self,
        name: &LockName,
        token: &TokenHash,
        _: KeeperId,
    ) -> Result<GiveBack, StoreError> {
        self.give_back(name, token).await
    }

    async fn inspect(&self, _: &LockName) -> Result<Inspection, StoreError> {
        assert!(
            !self.0.panics.load(std::sync::atomic::Ordering::SeqCst),
            "the script says so"
        );
        self.0
            .next(StoreCall::Inspect, &self.0.inspect, free())
            .await
    }

    async fn list(&self, query: &ListQuery) -> Result<Page, StoreError> {
        let asked = StoreCall::List(Box::new(query.clone()));
        let nothing = Page {
            locks: Vec::new(),
            next: None,
        };
        self.0.next(asked, &self.0.list, nothing).await
    }

    async fn break_lock(
        &self,
        name: &LockName,
        meant: Option<BreakTarget>,
    ) -> Result<Breaking, StoreError> {
        let asked = StoreCall::Break(name.clone(), meant);
        let broken = Breaking::Broken(Holder::Lease(held()));
        self.0.next(asked, &self.0.break_lock, broken).await
    }

    async fn request_release(
        &self,
        name: &LockName,
        meant: Option<BreakTarget>,
        request: &ReleaseRequest,
    ) -> Result<Requesting, StoreError> {
        let asked = StoreCall::RequestRelease(name.clone(), meant, Box::new(request.clone()));
        let mut lease = held();
        lease.request_release(request);
        let requested = Requesting::Requested(Holder::Lease(lease));
        let answers = &self.0.request_release;
        self.0.next(asked, answers, requested).await
    }

    fn shares(&self) -> bool {
        let shares_nothing = &self.0.shares_nothing;
        !shares_nothing.load(std::sync::atomic::Ordering::SeqCst)
    }

    fn breaks(&self) -> &BreakFeed {
        &self.0.breaks
    }

    async fn check(&self) -> Vec<Check> {
        self.0.paused.pass().await;
        self.0.check.lock().unwrap().clone()
    }

    async fn close(&self) {}

    fn describe(&self) -> String {
        "a script".to_owned()
    }
}
