//! Grants whose event waits for the event of the end before them.
//!
//! A hand-off wakes the next holder before whoever ended the lease goes on, so the two may be published in either order.

use std::time::Duration;

use tokio::time::Instant;

use crate::lock::LockName;

use super::{ingest::LeaseOrigin, line::EventMessage};

/// Grants whose event waits, in the order in which they were published.
#[derive(Debug, Default)]
pub(super) struct WithheldGrants(Vec<WithheldGrant>);

/// A grant whose event waits.
#[derive(Debug)]
pub(super) struct WithheldGrant {
    pub(super) news: EventMessage,
    pub(super) origin: LeaseOrigin,
    /// Until when it waits: the end may be told much later, as an expiry, or by nobody.
    until: Instant,
}

/// How long an event waits: longer than a busy gateway needs to go on.
const LONGEST_WAIT: Duration = Duration::from_millis(250);

// === impl WithheldGrants ===

impl WithheldGrants {
    pub(super) fn put(&mut self, news: EventMessage, origin: LeaseOrigin) {
        let until = Instant::now() + LONGEST_WAIT;
        self.put_back(WithheldGrant {
            news,
            origin,
            until,
        });
    }

    /// Goes on with one that was taken, until the same time.
    pub(super) fn put_back(&mut self, grant: WithheldGrant) {
        self.0.push(grant);
    }

    /// When the next one has waited for long enough.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.0.iter().map(|grant| grant.until).min()
    }

    /// Takes those that have waited for long enough.
    pub(super) fn take_due(&mut self, now: Instant) -> Vec<WithheldGrant> {
        self.0.extract_if(.., |grant| grant.until <= now).collect()
    }

    /// Takes those of the lease of an event; all of them for an event of no lock.
    pub(super) fn take_same_lease(&mut self, news: &EventMessage) -> Vec<WithheldGrant> {
        let event = &news.event;
        let is_same = |grant: &mut WithheldGrant| {
            let of_lease = grant.news.lease.is_some() && grant.news.lease == news.lease;
            let of_fence = event.fence.is_some() && grant.news.event.fence == event.fence;
            event.name.is_none() || (grant.news.event.name == event.name && (of_lease || of_fence))
        };
        self.0.extract_if(.., is_same).collect()
    }

    /// Takes those of a lock.
    pub(super) fn take_same_lock(&mut self, name: &LockName) -> Vec<WithheldGrant> {
        let is_same = |grant: &mut WithheldGrant| grant.news.event.name.as_ref() == Some(name);
        self.0.extract_if(.., is_same).collect()
    }
}
