//! The handle through which operations tell events.

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
        leases::{LeaseRegistry, LeaseTag},
    },
    lifecycle::Lifecycle,
    lock::{HeldLease, Lease, LockName, Owner, ReleaseRequest, Sharing, TokenHash},
    store::{AnyStore, contract::QueuePosition},
};

use super::{
    event::{Event, EventKind, EventMessage},
    publisher::Publisher,
    subscribers::{BusShared, Subscribers},
};

/// Publishes the events of operations to listeners. Cheap to clone.
///
/// Without listeners, here or at another gateway on the store, publishing costs one load of a flag.
#[derive(Clone)]
pub(in crate::engine) struct Bus(pub(super) Arc<BusShared>);

/// How many events may wait for the publisher. Beyond that there is a gap.
const BACKLOG: usize = 16_384;

// === impl Bus ===

impl Bus {
    /// Starts the publisher. It sleeps until somebody listens.
    pub(in crate::engine) fn start(
        store: AnyStore,
        leases: Arc<LeaseRegistry>,
        lifecycle: &Lifecycle,
        clock: Arc<dyn Clock>,
        most_listeners: usize,
    ) -> Self {
        let (news, inbox) = mpsc::channel(BACKLOG);
        // Without randomness two runs may share a name: a reader may then miss a gap.
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
        let publisher = Publisher::new(Arc::clone(&shared), inbox, store, leases);
        let stopped = lifecycle.stopped();
        lifecycle.spawn_background(async move { publisher.run(stopped).await });
        Self(shared)
    }

    /// The name of this run of the gateway.
    pub(in crate::engine) fn instance(&self) -> &str {
        &self.0.instance
    }

    /// How many listen here.
    pub(in crate::engine) fn listeners(&self) -> usize {
        self.0.subscribers.lock().listeners
    }

    /// Sends the event that `news` makes to the publisher, if there are listeners anywhere.
    pub(super) fn send(&self, news: impl FnOnce(SystemTime) -> EventMessage) {
        if !self.0.wanted.load(Ordering::Relaxed) {
            return;
        }
        if self.0.news.try_send(news(self.0.clock.wall())).is_err() {
            self.0.overflowed.store(true, Ordering::Relaxed);
        }
    }

    /// Publishes an event of a lock, to which `tell` adds what is known.
    fn publish(
        &self,
        kind: EventKind,
        name: &LockName,
        token: Option<&TokenHash>,
        tell: impl FnOnce(&mut Event),
    ) {
        self.send(|at| {
            let mut event = Event::of(kind, name, at);
            tell(&mut event);
            let lease = token.map(LeaseTag::from);
            EventMessage { event, lease }
        });
    }

    /// A request began to wait.
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

    /// A new lease was granted.
    pub(in crate::engine) fn acquired(&self, lease: &Lease, token: &TokenHash) {
        self.publish(EventKind::Acquired, &lease.name, Some(token), |event| {
            tell_lease(event, &lease.held);
            event.expires_in = Some(lease.held.left_at(Instant::now()));
            event.waited = Some(lease.waited);
        });
    }

    /// A lease lasts longer.
    pub(in crate::engine) fn renewed(&self, name: &LockName, token: &TokenHash, lease: &HeldLease) {
        self.publish(EventKind::Renewed, name, Some(token), |event| {
            tell_lease(event, lease);
            event.expires_in = Some(lease.left_at(Instant::now()));
        });
    }

    /// A lease was released with its token.
    pub(in crate::engine) fn released(&self, name: &LockName, token: &TokenHash) {
        self.publish(EventKind::Released, name, Some(token), |_| {});
    }

    /// The gateway gave a lease back: after its stream had lost it, or because its caller was gone.
    pub(in crate::engine) fn given_back(
        &self,
        name: &LockName,
        token: &TokenHash,
        lost: Option<LossReason>,
    ) {
        self.publish(EventKind::Released, name, Some(token), |event| {
            event.reason = Some(lost.map_or("abandoned", LossReason::as_str).into());
        });
    }

    /// A stream that held a lock does not hold it any more.
    pub(in crate::engine) fn lost(&self, name: &LockName, token: &TokenHash, reason: LossReason) {
        self.publish(EventKind::Lost, name, Some(token), |event| {
            event.reason = Some(reason.as_str().into());
        });
    }

    /// The holder of a lease was asked to release it.
    pub(in crate::engine) fn release_requested(
        &self,
        name: &LockName,
        lease: &HeldLease,
        request: &ReleaseRequest,
    ) {
        // An earlier one may stand.
        let request = lease.release_requested.as_deref().unwrap_or(request);
        self.publish(EventKind::ReleaseRequested, name, None, |event| {
            tell_lease(event, lease);
            event.expires_in = Some(request.within);
            event.reason = Some(request.reason.as_str().to_owned().into());
            event.by.clone_from(&request.by);
        });
    }

    /// A lease was broken, for a reason and by an API key. Of a lease that no gateway granted nothing is known.
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
    event.owner.clone_from(&lease.owner);
    event.mode = Some(lease.mode);
}
