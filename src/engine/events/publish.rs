//! What operations tell, each as it knows it.

use std::sync::Arc;

use tokio::time::Instant;

use crate::{
    engine::{LossReason, leases::LeaseTag},
    lock::{HeldLease, Lease, LockName, Owner, ReleaseRequest, Sharing, TokenHash},
    store::contract::QueuePosition,
};

use super::{
    bus::Bus,
    event::{Event, EventKind},
    line::EventMessage,
};

// === impl Bus ===

impl Bus {
    /// Somebody began to wait.
    pub(in crate::engine) fn queued(
        &self,
        name: &LockName,
        owner: Option<&Owner>,
        sharing: Option<Sharing>,
        place: &QueuePosition,
    ) {
        self.publish(|at| EventMessage {
            event: Event {
                owner: owner.cloned(),
                mode: Some(Sharing::mode(sharing)),
                position: Some(place.ahead + 1),
                ..Event::of(EventKind::Queued, name, at)
            },
            lease: None,
            if_known: false,
        });
    }

    /// A new lease was granted.
    pub(in crate::engine) fn acquired(&self, lease: &Lease, token: &TokenHash) {
        self.publish(|at| EventMessage {
            event: Event {
                waited: Some(lease.waited),
                ..held(EventKind::Acquired, &lease.name, &lease.held, at)
            },
            lease: Some(LeaseTag::from(token)),
            if_known: false,
        });
    }

    /// A lease lasts longer.
    pub(in crate::engine) fn renewed(&self, name: &LockName, token: &TokenHash, lease: &HeldLease) {
        self.publish(|at| EventMessage {
            event: held(EventKind::Renewed, name, lease, at),
            lease: Some(LeaseTag::from(token)),
            if_known: false,
        });
    }

    /// A lease was released with its token.
    pub(in crate::engine) fn released(&self, name: &LockName, token: &TokenHash) {
        self.publish(|at| EventMessage {
            event: Event::of(EventKind::Released, name, at),
            lease: Some(LeaseTag::from(token)),
            if_known: false,
        });
    }

    /// The gateway gave a lease back: after its stream had lost it, or because its caller was gone. There is
    /// no event if the grant had none.
    pub(in crate::engine) fn given_back(
        &self,
        name: &LockName,
        token: &TokenHash,
        lost: Option<LossReason>,
    ) {
        self.publish(|at| EventMessage {
            event: Event {
                reason: Some(lost.map_or("abandoned", LossReason::as_str).into()),
                ..Event::of(EventKind::Released, name, at)
            },
            lease: Some(LeaseTag::from(token)),
            if_known: true,
        });
    }

    /// A stream that held a lock does not hold it any more.
    pub(in crate::engine) fn lost(&self, name: &LockName, token: &TokenHash, reason: LossReason) {
        self.publish(|at| EventMessage {
            event: Event {
                reason: Some(reason.as_str().into()),
                ..Event::of(EventKind::Lost, name, at)
            },
            lease: Some(LeaseTag::from(token)),
            if_known: false,
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
        self.publish(|at| EventMessage {
            event: Event {
                fence: Some(lease.fence),
                owner: lease.owner.clone(),
                mode: Some(lease.mode),
                expires_in: Some(request.within),
                reason: Some(request.reason.as_str().to_owned().into()),
                by: request.by.clone(),
                ..Event::of(EventKind::ReleaseRequested, name, at)
            },
            lease: None,
            if_known: false,
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
        self.publish(|at| EventMessage {
            event: Event {
                fence: lease.map(|lease| lease.fence),
                owner: lease.and_then(|lease| lease.owner.clone()),
                mode: lease.map(|lease| lease.mode),
                reason: Some(reason.to_owned().into()),
                by: by.cloned(),
                ..Event::of(EventKind::Broken, name, at)
            },
            lease: None,
            if_known: false,
        });
    }
}

fn held(kind: EventKind, name: &LockName, lease: &HeldLease, at: std::time::SystemTime) -> Event {
    Event {
        fence: Some(lease.fence),
        owner: lease.owner.clone(),
        mode: Some(lease.mode),
        expires_in: Some(lease.left_at(Instant::now())),
        ..Event::of(kind, name, at)
    }
}
