//! The handle through which operations publish events.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::SystemTime,
};

use parking_lot::Mutex;
use tokio::{
    sync::{Notify, mpsc, watch},
    time::Instant,
};

use crate::{
    clock::Clock,
    engine::{
        LossReason,
        history::Recorder,
        leases::{LeaseRegistry, LeaseTag},
        loss::ABANDONED,
    },
    lifecycle::Lifecycle,
    lock::{FencingToken, HeldLease, Lease, LockName, Owner, ReleaseRequest, Sharing, TokenHash},
    store::{
        AnyStore,
        contract::{FenceQuery, QueuePosition},
    },
};

use super::{
    event::{Event, EventKind, EventMessage},
    publisher::Publisher,
    subscribers::{BusShared, Subscribers},
};

/// Publishes the events of operations to listeners. Cheap to clone.
///
/// Without listeners, here or at another gateway on the store, publishing costs one read of an atomic flag.
#[derive(Clone)]
pub(in crate::engine) struct Bus(pub(super) Arc<BusShared>);

/// How many events may wait for the publisher. Events beyond that are dropped, and listeners are told of a gap.
const BACKLOG: usize = 16_384;

// === impl Bus ===

impl Bus {
    /// Starts the publisher, which sleeps until there is a listener, unless there is a history.
    pub(in crate::engine) fn start(
        store: AnyStore,
        leases: Arc<LeaseRegistry>,
        history: Arc<Recorder>,
        lifecycle: &Lifecycle,
        clock: Arc<dyn Clock>,
        most_listeners: usize,
    ) -> Self {
        let (news, inbox) = mpsc::channel(BACKLOG);
        // If the machine has no random bytes, two runs of the gateway may have the same name, and then a listener
        // that resumes may miss a gap.
        let instance = format!("{:016x}", getrandom::u64().unwrap_or_default());
        let shared = Arc::new(BusShared {
            wanted: AtomicBool::new(false),
            news,
            overflowed: AtomicBool::new(false),
            subscribers: Mutex::new(Subscribers::new()),
            written: watch::Sender::new(1),
            changed: Notify::new(),
            instance: instance.into(),
            most_listeners,
            clock,
            lifecycle: lifecycle.clone(),
        });
        let publisher = Publisher::new(Arc::clone(&shared), inbox, store, leases, history);
        let stopped = lifecycle.stopped();
        lifecycle.spawn_background(async move { publisher.run(stopped).await });
        Self(shared)
    }

    /// The name of this run of the gateway.
    pub(in crate::engine) fn instance(&self) -> &str {
        &self.0.instance
    }

    /// The number of listeners at this gateway.
    pub(in crate::engine) fn listeners(&self) -> usize {
        self.0.subscribers.lock().listeners
    }

    /// Sends an event to the publisher, if there is a listener anywhere; `news` makes the event only then.
    pub(super) fn send(&self, news: impl FnOnce(SystemTime) -> EventMessage) {
        if !self.0.wanted.load(Ordering::Relaxed) {
            return;
        }
        if self.0.news.try_send(news(self.0.clock.wall())).is_err() {
            self.0.overflowed.store(true, Ordering::Relaxed);
        }
    }

    /// Publishes an event of a lock; `tell` adds the known data to the event.
    fn publish(
        &self,
        kind: EventKind,
        name: &LockName,
        token: Option<&TokenHash>,
        tell: impl FnOnce(&mut Event),
    ) {
        self.send(|at| {
            let mut event = Event::for_lock(kind, name, at);
            tell(&mut event);
            let lease = token.map(LeaseTag::from);
            EventMessage { event, lease }
        });
    }

    /// Publishes that a request began to wait.
    pub(in crate::engine) fn queued(
        &self,
        name: &LockName,
        owner: Option<&Owner>,
        sharing: Option<Sharing>,
        place: &QueuePosition,
    ) {
        self.publish(EventKind::Queued, name, None, |event| {
            event.owner = owner.cloned();
            event.mode = Some(Sharing::mode(sharing));
            event.position = Some(place.ahead + 1);
        });
    }

    /// Publishes that a new lease was granted.
    pub(in crate::engine) fn acquired(&self, lease: &Lease, token: &TokenHash) {
        self.publish(EventKind::Acquired, &lease.name, Some(token), |event| {
            tell_lease(event, &lease.held);
            event.expires_in = Some(lease.held.left_at(Instant::now()));
            event.waited = Some(lease.waited);
        });
    }

    /// Publishes that a lease was renewed.
    pub(in crate::engine) fn renewed(&self, name: &LockName, token: &TokenHash, lease: &HeldLease) {
        self.publish(EventKind::Renewed, name, Some(token), |event| {
            tell_lease(event, lease);
            event.expires_in = Some(lease.left_at(Instant::now()));
        });
    }

    /// Publishes that a lease was released with its token.
    pub(in crate::engine) fn released(
        &self,
        name: &LockName,
        token: &TokenHash,
        fence: Option<FencingToken>,
    ) {
        self.publish(EventKind::Released, name, Some(token), |event| {
            event.fence = fence;
        });
    }

    /// Publishes that a reservation was released by the API key that had made it.
    pub(in crate::engine) fn unreserved(&self, name: &LockName, lease: &HeldLease) {
        self.publish(EventKind::Released, name, None, |event| {
            tell_lease(event, lease);
        });
    }

    /// Publishes that the gateway released a lease itself: after its stream had lost the lease, or because its caller
    /// was gone.
    pub(in crate::engine) fn given_back(
        &self,
        name: &LockName,
        token: &TokenHash,
        lost: Option<LossReason>,
    ) {
        self.publish(EventKind::Released, name, Some(token), |event| {
            event.reason = Some(lost.map_or(ABANDONED, LossReason::as_str).into());
        });
    }

    /// Publishes that a stream has lost its lock.
    pub(in crate::engine) fn lost(&self, name: &LockName, token: &TokenHash, reason: LossReason) {
        self.publish(EventKind::Lost, name, Some(token), |event| {
            event.reason = Some(reason.as_str().into());
        });
    }

    /// Publishes that the holder of a lease was asked to release it.
    pub(in crate::engine) fn release_requested(
        &self,
        name: &LockName,
        lease: &HeldLease,
        request: &ReleaseRequest,
    ) {
        // The lease may have an earlier request with an earlier deadline, which then applies.
        let request = lease.release_requested.as_deref().unwrap_or(request);
        self.publish(EventKind::ReleaseRequested, name, None, |event| {
            tell_lease(event, lease);
            event.expires_in = Some(request.within);
            event.reason = Some(request.reason.as_str().to_owned().into());
            event.by.clone_from(&request.by);
        });
    }

    /// Publishes that a check by an API key has refused a fencing token after a larger one was granted.
    pub(in crate::engine) fn stale_write_refused(&self, query: &FenceQuery, by: Option<&Arc<str>>) {
        self.publish(EventKind::StaleWriteRefused, &query.name, None, |event| {
            event.fence = Some(query.fence);
            event.by = by.cloned();
        });
    }

    /// Publishes that a lease was broken, for a reason and by an API key. `lease` is `None` for a foreign value.
    pub(in crate::engine) fn broken(
        &self,
        name: &LockName,
        lease: Option<&HeldLease>,
        reason: &str,
        by: Option<&Arc<str>>,
    ) {
        self.publish(EventKind::Broken, name, None, |event| {
            if let Some(lease) = lease {
                tell_lease(event, lease);
            }
            event.reason = Some(reason.to_owned().into());
            event.by = by.cloned();
        });
    }
}

fn tell_lease(event: &mut Event, lease: &HeldLease) {
    event.fence = Some(lease.fence);
    event.owner.clone_from(&lease.said.owner);
    event.mode = Some(lease.mode);
}
