//! The leases that events have told of, so that the event of an end is complete, and a grant is told once.

use std::{collections::HashMap, time::Duration};

use tokio::time::Instant;

use crate::{
    engine::leases::{LeaseTag, RegisteredLease},
    lock::{FencingToken, LockName, Mode, Owner},
};

use super::event::{Event, EventKind, EventMessage};

/// The leases that live, as far as events report them, while there is a listener.
///
/// Events are told in the order in which they arrive. At a hand-off, the gateway of the next holder may publish before
/// the gateway of the ended lease, and after an end no lease is known any more, so a second event of an end is told,
/// too.
#[derive(Debug, Default)]
pub(super) struct KnownLeases {
    locks: HashMap<LockName, Vec<KnownLease>>,
    count: usize,
    sweep_at: Option<Instant>,
}

#[derive(Debug)]
struct KnownLease {
    tag: Option<LeaseTag>,
    fence: FencingToken,
    owner: Option<Owner>,
    mode: Option<Mode>,
    /// Whether listeners were told of the grant.
    is_announced: bool,
    /// When the lease is removed from the known leases.
    until: Instant,
}

/// How many leases are remembered at most. The end of an unknown lease may be reported without its owner.
const MAX_LEASES: usize = 131_072;
/// How long a lease is remembered after its TTL, so that an event of its end that is on its way is complete.
const REMEMBERED: Duration = Duration::from_secs(2);

// === impl KnownLeases ===

impl KnownLeases {
    /// Adds a lease that was granted before there was a listener.
    pub(super) fn track(&mut self, tag: LeaseTag, name: &LockName, lease: &RegisteredLease) {
        let known = KnownLease {
            tag: Some(tag),
            fence: lease.fence,
            owner: lease.owner.clone(),
            mode: Some(lease.mode),
            is_announced: false,
            until: lease.until + REMEMBERED,
        };
        self.add(name, known);
    }

    /// Completes an event with what is known of its lease, and answers whether listeners are told: they are not told of
    /// a grant twice.
    pub(super) fn complete(&mut self, news: &mut EventMessage) -> bool {
        let EventMessage { event, lease: tag } = news;
        let Some(name) = event.name.clone() else {
            return true;
        };
        self.sweep(Instant::now());
        let leases = self.locks.get_mut(&name).map_or(&mut [][..], |it| it);
        let is_it =
            |it: &KnownLease| tag.is_some() && it.tag == *tag || event.fence == Some(it.fence);
        let Some(at) = leases.iter().rposition(is_it) else {
            if let Some(lease) = KnownLease::from_event(event, *tag) {
                self.add(&name, lease);
            }
            return true;
        };
        let lease = &mut leases[at];
        match event.kind {
            EventKind::Acquired if lease.is_announced => return false,
            EventKind::Acquired | EventKind::Renewed => {
                lease.is_announced |= event.kind == EventKind::Acquired;
                lease.owner.clone_from(&event.owner);
                lease.mode = event.mode;
                lease.until = until(event);
            }
            EventKind::Lost | EventKind::Released | EventKind::Expired | EventKind::Broken => {
                event.fence = Some(lease.fence);
                event.owner = event.owner.take().or_else(|| lease.owner.clone());
                event.mode = event.mode.or(lease.mode);
                *tag = tag.or(lease.tag);
                if event.ends_lease()
                    && let Some(leases) = self.locks.get_mut(&name)
                {
                    leases.swap_remove(at);
                    self.count -= 1;
                }
            }
            EventKind::Gap
            | EventKind::StoreChanged
            | EventKind::Queued
            | EventKind::ReleaseRequested
            | EventKind::StaleWriteRefused
            | EventKind::OrderSet => {}
        }
        true
    }

    fn add(&mut self, name: &LockName, lease: KnownLease) {
        if self.count < MAX_LEASES {
            self.locks.entry(name.clone()).or_default().push(lease);
            self.count += 1;
        }
    }

    /// Removes known leases whose time was over long enough ago, once per `REMEMBERED`.
    fn sweep(&mut self, now: Instant) {
        if self.sweep_at.is_some_and(|at| at > now) {
            return;
        }
        self.sweep_at = Some(now + REMEMBERED);
        self.count = 0;
        self.locks.retain(|_, leases| {
            leases.retain(|lease| lease.until > now);
            self.count += leases.len();
            !leases.is_empty()
        });
    }
}

// === impl KnownLease ===

impl KnownLease {
    /// Makes the known lease from the event of a grant or a renewal; `None` for another event, or if data is missing in
    /// the event.
    fn from_event(event: &Event, tag: Option<LeaseTag>) -> Option<Self> {
        let is_announced = event.kind == EventKind::Acquired;
        let is_of_living = is_announced || event.kind == EventKind::Renewed;
        Some(Self {
            tag,
            fence: event.fence.filter(|_| is_of_living)?,
            owner: event.owner.clone(),
            mode: event.mode,
            is_announced,
            until: until(event),
        })
    }
}

/// Until when the lease of a grant or a renewal is remembered, unless another event tells its end.
fn until(event: &Event) -> Instant {
    Instant::now() + event.expires_in.unwrap_or_default() + REMEMBERED
}
